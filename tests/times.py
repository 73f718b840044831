"""Where the time of the tests goes, as the tables of CONTRIBUTING.md: `python3 tests/times.py`, or `… --ci` for `.ci/run` alone.

It clones the last commit into a temporary directory with an empty cargo home, and takes 25 minutes on two cores.
Nothing else should run on the machine. Linux only.
"""

import datetime
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

# Crates and programs that take less than this many seconds to build have no line of their own.
LEAST = 3.0

# Runs a test program. Writes its name, its seconds, and the seconds of all cores meanwhile.
RUNNER = """#!/usr/bin/env bash
busy() { read -r _ user nice system _ </proc/stat; echo $(((user + nice + system) * 10)); }
export TIMES_PROGRAM=$(basename "$1" | sed 's/-[0-9a-f]*$//')
# Several examples of the documentation are one program, which starts itself for each.
[[ $TIMES_PROGRAM != rust_out ]] || export RUSTDOC_DOCTEST_BIN_PATH=$1
cores=$(busy) begun=$(date +%s%N)
"$@"
status=$?
echo "$TIMES_PROGRAM $((($(date +%s%N) - begun) / 1000000)) $(($(busy) - cores))" >>"$TIMES/programs"
exit $status
"""

# Starts a server. Writes which program has started it.
MONGOD = """#!/usr/bin/env bash
[[ $* == *--version* ]] || echo "${TIMES_PROGRAM:-?}" >>"$TIMES/servers"
exec "$TIMES_MONGOD" "$@"
"""

# Links. Writes the milliseconds, and the name of what was linked.
LINKER = """#!/usr/bin/env bash
begun=$(date +%s%N)
cc "$@"
status=$?
output=$(printf '%s\\n' "$@" | grep -A 1 -x -e -o | tail -n 1)
echo "$((($(date +%s%N) - begun) / 1000000)) $(basename "$output" | sed 's/-[0-9a-f]*$//')" >>"$TIMES/links"
exit $status
"""


def main():
    with tempfile.TemporaryDirectory(prefix="mongolock-times-") as place:
        place = Path(place)
        clone = place / "clone"
        repository = Path(__file__).resolve().parent.parent
        subprocess.run(["git", "clone", "--quiet", repository, clone], check=True)
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("CARGO", "MONGO"))}
        environment |= {"CARGO_HOME": str(place / "home"), "TIMES": str(place)}
        print(f"{datetime.date.today()}, {os.cpu_count()} cores, commit {commit(clone)}\n")
        if "--ci" in sys.argv:
            seconds, output = timed(clone, environment, ["bash", ".ci/run"])
            steps = [line for line in output.splitlines() if re.fullmatch(r"  .* \(\d+ s\)", line)]
            print("\n".join(steps), f"\n`.ci/run`: {seconds:.0f} s")
            return
        measure(place, clone, environment)


def measure(place, clone, environment):
    test = ["cargo", "test", "--workspace", "--locked"]
    main_job, _ = timed(clone, environment, ["cargo", "run", "--bin", "report", "--locked"])
    downloaded = glob.glob(f"{clone}/target/mongod-*/mongod")
    mongod = Path(downloaded[0]).rename(place / "downloaded") if downloaded else shutil.which("mongod")
    environment |= {
        "MONGOD": script(place, "mongod", MONGOD),
        "TIMES_MONGOD": str(mongod),
        "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER": script(place, "runner", RUNNER),
        "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_LINKER": script(place, "cc", LINKER),
    }
    # The linker is one of the things that cargo compares: the main job is built again for it.
    subprocess.run(["cargo", "clean", "--quiet"], cwd=clone, env=environment, check=True)
    build, _ = timed(clone, environment, [*test, "--no-run", "--timings"])
    run, _ = timed(clone, environment, test)
    size = int(subprocess.run(["du", "-sm", clone / "target"], capture_output=True, check=True).stdout.split()[0])
    programs = lines(place / "programs")
    servers = Counter(name for (name,) in lines(place / "servers"))
    links = lines(place / "links")

    table(
        ["step", "s"],
        [
            ["main job", main_job],
            ["build of the tests", build],
            ["tests", run],
            ["`cargo test --workspace`", build + run],
        ],
    )
    print(f"`target`: {size} MB\n")
    programs = [[f"`{name}`", int(wall) / 1000, int(cores) / 1000, servers.pop(name, 0)] for name, wall, cores in programs]
    programs.sort(key=lambda program: -program[1])
    rows = [program for program in programs if program[1] >= 1]
    rest = [program for program in programs if program[1] < 1]
    rows.append([f"{len(rest)} others", *(sum(program[column] for program in rest) for column in (1, 2, 3))])
    table(["program", "s", "s of all cores", "servers"], rows)
    milliseconds = sum(int(link[0]) for link in links)
    print(f"{len(links)} links: {milliseconds / 1000:.0f} s\n", flush=True)
    table(["crate or program", "s to build"], [row for row in built(clone) if row[1] >= LEAST])
    with open(clone / "mongolock/src/lib.rs", "a", encoding="utf-8") as library:
        library.write("// One more line.\n")
    again, _ = timed(clone, environment, test)
    print(f"`cargo test --workspace` after one line of the library has changed: {again:.0f} s")


def built(clone):
    """The seconds of each crate in the report of cargo."""
    report = Path(sorted(glob.glob(f"{clone}/target/cargo-timings/cargo-timing-*.html"))[-1]).read_text(encoding="utf-8")
    units = json.loads(re.search(r"const UNIT_DATA = (\[.*?\]);\n", report, re.S).group(1))
    seconds = Counter()
    for unit in units:
        seconds[f"{unit['name']}{unit['target']}"] += unit["duration"]
    return sorted(([name, value] for name, value in seconds.items()), key=lambda row: -row[1])


def timed(clone, environment, command):
    begun = time.monotonic()
    result = subprocess.run(command, cwd=clone, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if result.returncode != 0:
        sys.exit(f"{result.stdout[-5000:]}\n{' '.join(command)} has failed")
    return time.monotonic() - begun, result.stdout


def script(place, name, text):
    path = place / name
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def lines(path):
    return [line.split() for line in path.read_text(encoding="utf-8").splitlines()]


def commit(clone):
    git = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(git, cwd=clone, capture_output=True, text=True, check=True).stdout.strip()


def table(head, rows):
    print("| " + " | ".join(head) + " |")
    print("|---" + "|---:" * (len(head) - 1) + "|")
    for row in rows:
        cells = (f"{cell:.1f}" if isinstance(cell, float) else str(cell) for cell in row)
        print("| " + " | ".join(cells) + " |")
    print()


main()
