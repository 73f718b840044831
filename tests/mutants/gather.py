#!/usr/bin/env python3
"""Mutants of the requests that become one command: each breaks one rule, and the simulation or a unit test must fail.

    python3 tests/mutants/gather.py          # all of them, and the table that tests/mutants/README.md has
    python3 tests/mutants/gather.py 3 7      # these
    python3 tests/mutants/gather.py --check  # only whether each text to replace is there once

A mutant is made in place, so that its build is short, and taken back at the end, also after an interruption. The script refuses
to run while one of these files has changes that are not committed.
"""

import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SEEDS = "1960"  # 70 of the scenario

GATHER, REQUEST = "mongolock/src/store/gather.rs", "mongolock/src/acquire/request.rs"
LINK, BOOK = "mongolock/src/simulation/link.rs", "mongolock/src/lease/book.rs"
RELEASE = "mongolock/src/lease/release.rs"

# The rule, the file, the text as it is, and the text of the mutant.
MUTANTS = [
    ("all claims of a command have the id of the first one", GATHER,
     "let replies = store.claim_each(items, limit).await?.map_err(unknown)?;",
     "let mut items = items.to_vec(); let id = Arc::clone(&items[0].key.lock_id); "
     "for item in &mut items { item.key.lock_id = Arc::clone(&id); } "
     "let replies = store.claim_each(&items, limit).await?.map_err(unknown)?;"),
    ("a lease counts from the reply", REQUEST,
     "shared.note(sent, &outcome);\n        let result",
     "shared.note(sent, &outcome);\n        let sent = Instant::now();\n        let result"),
    ("a command has the longest of the limits of its requests", GATHER,
     "limit = limit.min(joined.limit);", "limit = limit.max(joined.limit);"),
    ("a query decides after a write that no majority has confirmed", LINK,
     "if driver_error::is_blocked_update(&error) {\n                return Err(driver_error::blocked(&keys[0].name, error));\n            }\n            return Err(error.into());",
     "if !errors::is_not_confirmed(&error) { return Err(error.into()); }"),
    ("the error of the query is that of each claim", GATHER,
     "store.claim_each(items, limit).await?.map_err(unknown)?", "store.claim_each(items, limit).await??"),
    ("fewer releases than claims: the command is sent again for all", LINK,
     "let outcome = |item: &ReleaseItem| item.outcome(found.get(&item.key.name), begun.elapsed());",
     "let outcome = |_: &ReleaseItem| { let _ = (&found, begun); Ok(false) };"),
    ("a claim that was given up goes alone all the same", BOOK,
     "let is_in_use = self.first.phase == Phase::InUse;", "let is_in_use = true;"),
    ("the requests of a failed command are forgotten", REQUEST,
     "if matches!(&outcome, Some(Err(error)) if driver_error::failed_together(error)) {\n            shared.note(sent, &outcome);",
     "if matches!(&outcome, Some(Err(error)) if driver_error::failed_together(error)) {\n"
     "            shared.note(sent, &Some(Ok(Ok(Few::one(AcquireReply::HELD)))));"),
    ("a lane is kept for as long as a command has no reply", GATHER,
     "let most = limit + LANE_GRACE;", "let most = limit + 100 * LANE_GRACE;"),
    ("a release that goes alone takes its claim for lost", RELEASE,
     "(is_first, may_gather) = (false, false);", "may_gather = false;"),
]


def read(name):
    with open(os.path.join(ROOT, name), encoding="utf-8") as file:
        return file.read()


def write(name, text):
    with open(os.path.join(ROOT, name), "w", encoding="utf-8") as file:
        file.write(text)


def outcome():
    """Builds and runs the tests; returns what happened, and the first test that failed with what it says."""
    environment = dict(os.environ, MONGOLOCK_SEEDS=SEEDS)
    command = ["cargo", "test", "-p", "mongolock", "--lib", "--locked", "--",
               "gather", "admission", "book", "many_calls_at_once"]
    try:
        ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    except subprocess.TimeoutExpired:
        return "killed", "does not end"
    said = ran.stdout + ran.stderr
    failed = re.search(r"^test (\S+) \.\.\. FAILED", said, re.MULTILINE)
    if failed:
        seed = re.search(r"^    seed: (\d+)", said, re.MULTILINE)
        return "killed", failed.group(1) + (f", seed {seed.group(1)}" if seed else "")
    if ran.returncode == 0 and re.search(r"test result: ok\. [1-9]", said):
        return "survives", ""
    return "does not build", said[-600:]


def main():
    wanted = [int(number) for number in sys.argv[1:] if number.isdigit()] or range(1, len(MUTANTS) + 1)
    broken = [(number, read(file).count(old)) for number, (_, file, old, _) in enumerate(MUTANTS, 1)
              if read(file).count(old) != 1]
    for number, count in broken:
        print(f"{number}. {MUTANTS[number - 1][0]}: the text is there {count} times")
    if broken or "--check" in sys.argv:
        print(f"{len(MUTANTS)} mutants")
        return int(bool(broken))
    files = sorted({file for _, file, _, _ in MUTANTS})
    if subprocess.run(["git", "diff", "--quiet", "HEAD", "--", *files], cwd=ROOT, check=False).returncode:
        sys.exit("one of the files has changes that are not committed")
    print("| mutant | outcome | test |\n|---|---|---|")
    for number in wanted:
        rule, file, old, new = MUTANTS[number - 1]
        text = read(file)
        try:
            write(file, text.replace(old, new))
            result, test = outcome()
        finally:
            write(file, text)
        print(f"| {number}. {rule} | {result} | {test} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
