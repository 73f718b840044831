"""Finds how deep annotated functions can be nested with the compiler's default recursion limit.

For each shape and each order in the source, a crate of its own is generated and compiled with more and more nested calls on
a spawned task. The script prints the largest depth that compiles, and fails below the depth that the documentation of
`#[distributed_lock]` promises. RUSTUP_TOOLCHAIN chooses the compiler. Arguments are passed to the compiler of the generated
crate, but not to that of its dependencies: `RUSTC_BOOTSTRAP=1 python3 tests/nesting.py -Znext-solver=globally`.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CRATE = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "nesting"

# What the documentation promises for each shape, in the figure of its row.
PROMISED = {
    "locked functions": 12,
    "locked functions, a plain one below each": 8,
    "plain functions above a locked one": 25,
}

# No program nests deeper, and the compiler takes long for it.
MOST = 96

MANIFEST = f"""
[package]
name = "nesting"
version = "0.0.0"
edition = "2024"
publish = false

[workspace]

[dependencies]
mongolock = {{ path = "{ROOT / "mongolock"}" }}
tokio = {{ version = "1", features = ["macros", "rt"] }}
"""

PROGRAM = """
use mongolock::{{LockError, LockProvider, distributed_lock}};

{functions}

#[tokio::main(flavor = "current_thread")]
async fn main() {{
    LockProvider::in_memory().set_global().unwrap();
    assert_eq!(tokio::spawn(f0(1)).await.unwrap().unwrap(), 1);
}}
"""


def function(number, body, is_locked):
    attribute = '#[distributed_lock(name = "all of them")]\n' if is_locked else ""
    return f"{attribute}async fn f{number}(id: u64) -> Result<u64, LockError> {{\n    {body}\n}}\n"


def functions(shape, depth):
    """Each function calls the next one, and the last one waits."""
    locked = {
        "locked functions": [True] * depth,
        "locked functions, a plain one below each": [True, False] * depth,
        "plain functions above a locked one": [False] * depth + [True],
    }[shape]
    calls = [function(number, f"f{number + 1}(id).await", is_locked) for number, is_locked in enumerate(locked)]
    return calls + [function(len(calls), "tokio::task::yield_now().await;\n    Ok(id)", False)]


def compiles(shape, depth, is_reversed):
    text = functions(shape, depth)
    if is_reversed:
        text.reverse()
    (CRATE / "src/main.rs").write_text(PROGRAM.format(functions="\n".join(text)))
    command = ["cargo", "rustc", "--quiet", "--locked", "--", *sys.argv[1:]]
    environment = {**os.environ, "CARGO_TARGET_DIR": str(CRATE / "target"), "CARGO_PROFILE_DEV_DEBUG": "none"}
    done = subprocess.run(command, cwd=CRATE, env=environment, capture_output=True, text=True)
    if done.returncode == 0:
        return True
    # Any other error says nothing about the depth.
    if "overflow" not in done.stderr:
        sys.exit(f"{shape}, depth {depth}:\n{done.stderr}")
    return False


def greatest(shape, is_reversed):
    works, fails = 0, MOST + 1
    depth = PROMISED[shape]
    while fails - works > 1:
        if compiles(shape, depth, is_reversed):
            works = depth
        else:
            fails = depth
        # Up to the first failure the depth grows by half.
        depth = min(works + works // 2 + 1, MOST) if fails > MOST else (works + fails) // 2
    return works


def main():
    (CRATE / "src").mkdir(parents=True, exist_ok=True)
    (CRATE / "Cargo.toml").write_text(MANIFEST)
    (CRATE / "src/main.rs").write_text("fn main() {}\n")
    # The versions of the workspace. What the crate does not need is removed.
    shutil.copy(ROOT / "Cargo.lock", CRATE / "Cargo.lock")
    subprocess.run(["cargo", "metadata", "--format-version=1"], cwd=CRATE, check=True, stdout=subprocess.DEVNULL)
    version = subprocess.run(["rustc", "--version"], check=True, capture_output=True, text=True).stdout.strip()
    print(f"{version} {' '.join(sys.argv[1:])}\n")
    print("| nested | innermost first in the source | outermost first | promised |")
    print("|---|---|---|---|")
    is_kept = True
    for shape, promised in PROMISED.items():
        found = [greatest(shape, is_reversed) for is_reversed in (True, False)]
        is_kept &= min(found) >= promised
        shown = [f"{depth} or more" if depth == MOST else str(depth) for depth in found]
        print(f"| {shape} | {shown[0]} | {shown[1]} | {promised} |", flush=True)
    if not is_kept:
        sys.exit("a chain that the documentation promises does not compile")


if __name__ == "__main__":
    main()
