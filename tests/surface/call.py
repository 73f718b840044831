#!/usr/bin/env python3
"""Counts the files of the library that an uncontended acquire leads through, from the attribute to the server.

    python3 tests/surface/call.py [--list]

The program of `call.rs` acquires free locks in calls of an annotated function, once a few and once more, under `valgrind`. A
file counts if its instructions grow with the number of calls by at least one for each. It needs `valgrind` and a `mongod`.
"""
import collections
import json
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
FEW, MANY = 20, 60
PACKAGE = "mongolock/src/"


def program():
    """Builds the program, with the lines of the library."""
    lines = [f'profile.dev.package.{package}.debug="line-tables-only"' for package in ("mongolock", "mongolock-tests")]
    command = ["cargo", "bench", "--profile", "dev", "--no-run", "--locked", "-p", "mongolock-tests", "--bench", "call"]
    for line in lines:
        command += ["--config", line]
    built = subprocess.run(command + ["--message-format=json"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    messages = map(json.loads, built.stdout.splitlines())
    paths = [message["executable"] for message in messages if message.get("executable")]
    return paths[-1]


def instructions(path, calls):
    """The instructions of each file of the library."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "out"
        command = ["valgrind", "--tool=callgrind", "--compress-strings=no", f"--callgrind-out-file={out}", path]
        subprocess.run(command + [str(calls)], cwd=ROOT / "tests", check=True, stderr=subprocess.DEVNULL)
        counts, file, is_call = collections.Counter(), "", False
        for line in out.read_text().splitlines():
            if found := re.match(r"(fl|fi|fe)=(.*)", line):
                file = found[2]
            elif line.startswith("calls="):
                is_call = True  # The next line has the cost of the function that is called.
            elif re.match(r"[+*-]?\d*\s*\d", line) and line[:1] in "+-*0123456789":
                if not is_call and PACKAGE in file:
                    counts[file.split(PACKAGE)[1]] += int(line.split()[-1])
                is_call = False
        return counts


def main():
    path = program()
    few, many = instructions(path, FEW), instructions(path, MANY)
    files = sorted(file for file in many if many[file] - few[file] >= MANY - FEW)
    if "--list" in sys.argv:
        print("\n".join(f"{(many[file] - few[file]) // (MANY - FEW):>7} {file}" for file in files))
    print(f"{len(files)} files")


main()
