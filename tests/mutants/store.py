#!/usr/bin/env python3
"""Mutants of the store's commands: each changes one rule of a command, and a suite on a real server must fail.

    python3 tests/mutants/store.py                 # all of them, and the table that tests/mutants/README.md has
    python3 tests/mutants/store.py --list          # their names
    python3 tests/mutants/store.py 3 7 12          # these
    python3 tests/mutants/store.py --check         # only whether each text to replace is there once
    python3 tests/mutants/store.py --no-baseline 5 # this one, without running the suite without a mutant first

A mutant is made in a copy of the repository under cargo's target directory, with a target directory of its own, because
cargo does not tell the crates of the two trees apart. It is killed by the first test that fails, also alone. "survives"
is a gap in the tests or a rule that another rule makes superfluous, and is explained in the README.
"""

import argparse
import glob
import os
import re
import shutil
import signal
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
STORE = "mongolock/src/store/"
MODULES = ["conformance", "protocol", "commit", "interop_dotnet", "conditional_release", "forced_release", "admin", "options",
           "handover", "tokens", "unawaited_release", "lock_set", "semaphore", "many_waiters", "detached"]
# The time after which a run counts as killed: a mutant can make a test wait for a lock that is never free.
LIMIT = 240

# What is changed, the file, the text as it is, and the text of the mutant.
MUTANTS = [
    ("acquire: the token of the document is taken over, not the next one", "claims.rs",
     '{ "$add": ["$fencingToken", 1_i64] }', '{ "$add": ["$fencingToken", 0_i64] }'),
    ("acquire: tokens do not follow the time", "claims.rs",
     '{ "$multiply": [{ "$toLong": "$$NOW" }, 1000_i64] }', '{ "$toLong": 1_i64 }'),
    ("acquire: the smaller one of the two tokens", "claims.rs",
     'let next_token = doc! { "$max": [', 'let next_token = doc! { "$min": ['),
    ("acquire: tokens follow the milliseconds, without room between them", "claims.rs",
     '"$toLong": "$$NOW" }, 1000_i64]', '"$toLong": "$$NOW" }, 1_i64]'),
    ("acquire: no tokens are reserved", "claims.rs",
     '"$add": [next_token, request.tokens - 1]', '"$add": [next_token, 0_i64]'),
    ("acquire: the id is read as an expression", "claims.rs",
     '"lockId": { "$literal": lock_id },', '"lockId": lock_id,'),
    ("acquire: the beginning of the lease is not set", "claims.rs",
     'granted(&key.lock_id, "$$NOW", request)', 'granted(&key.lock_id, "$acquiredAt", request)'),
    ("acquire: an attempt prolongs the lease of another holder", "claims.rs",
     'taken, "$$ROOT"] }',
     'taken, { "$mergeObjects": ["$$ROOT", { "expiresAt": { "$add": ["$$NOW", millis(request.expiry)] } }] }] }'),
    ("acquire: a lease ends twice as late", "claims.rs",
     '"$add": ["$$NOW", millis(request.expiry)]', '"$add": ["$$NOW", millis(request.expiry * 2)]'),
    ("acquire: a missing document is not inserted", "claims.rs", 'command.insert("upsert", true)', 'command.insert("upsert", false)'),
    ("acquire: the reply is the document before the update", "claims.rs", '"new": true', '"new": false'),
    ("acquire: the reply tells the rest of the lease with the wrong sign", "claims.rs",
     '"$subtract": ["$expiresAt", "$$NOW"]', '"$subtract": ["$$NOW", "$expiresAt"]'),
    ("acquire: any holder counts as the claim itself", "claims.rs",
     'if holder != Some(&key.lock_id) {', 'if holder.is_none() {'),
    ("acquire: a duplicate key is an error", "claims.rs",
     'Err(error) if driver_error::is_duplicate_key(&error) => Ok', 'Err(error) if false && driver_error::is_duplicate_key(&error) => Ok'),
    ("free: only after the end, not at it", "takeover.rs",
     '{ "$lte": ["$expiresAt", latest_end(takeover_margin)] }', '{ "$lt": ["$expiresAt", latest_end(takeover_margin)] }'),
    ("free: a released lock only after its end", "takeover.rs",
     'doc! { "$or": [{ "$eq": ["$lockId", ""] }, {', 'doc! { "$or": [{'),
    ("free: every lock is free", "takeover.rs",
     '{ "$lte": ["$expiresAt", latest_end(takeover_margin)] }', '{ "$ne": [latest_end(takeover_margin), 0] }'),
    ("free: the takeover margin is ignored", "takeover.rs",
     'if takeover_margin.is_zero() {', 'if takeover_margin >= Duration::ZERO {'),
    ("free: the takeover margin applies to released locks", "takeover.rs",
     '"$cond": [is_claimed(), early, "$$NOW"]', '"$cond": [{ "$literal": true }, early, "$$NOW"]'),
    ("renewal: the earlier one of the two ends", "claims.rs",
     'doc! { "$set": { "expiresAt": { "$max": [granted(Duration::ZERO), present] } } }',
     'doc! { "$set": { "expiresAt": { "$min": [granted(Duration::ZERO), present] } } }'),
    ("renewal: takes back what a later one has granted", "claims.rs",
     '{ "$max": [granted(Duration::ZERO), present] }', '{ "$max": [granted(Duration::ZERO)] }'),
    ("renewal: keeps an end from a clock that was ahead", "claims.rs",
     '"$min": ["$expiresAt", granted(LATE_COMMAND)]', '"$min": ["$expiresAt"]'),
    ("renewal and release of several: of any claim", "claims.rs",
     'doc! { "_id": { "$in": names }, "lockId": { "$in": ids } }', '{ drop(ids); doc! { "_id": { "$in": names } } }'),
    ("release: of any claim", "claims.rs",
     'doc! { "_id": &*key.name, "lockId": &*key.lock_id }', 'doc! { "_id": &*key.name }'),
    ("release: the id stays", "claims.rs",
     'doc! { "$set": { "lockId": "", "expiresAt": "$$NOW" } }', 'doc! { "$set": { "expiresAt": "$$NOW" } }'),
    ("release: the end stays", "claims.rs",
     'doc! { "$set": { "lockId": "", "expiresAt": "$$NOW" } }', 'doc! { "$set": { "lockId": "" } }'),
    ("release: a minimum hold keeps the id", "claims.rs", '[KEPT_PREFIX, "$lockId"]', '["", "$lockId"]'),
    ("release: a minimum hold that is over is kept", "claims.rs",
     '{ "$cond": [{ "$gt": [&end, "$$NOW"] }, kept, ""] }', '{ "$cond": [{ "$gt": [&end, 0] }, kept, ""] }'),
    ("release: a minimum hold counts from a begin in the future", "claims.rs",
     '{ "$min": ["$acquiredAt", "$$NOW"] }', '"$acquiredAt"'),
    ("release: the minimum hold is ignored", "claims.rs",
     'if min_hold.is_zero() {', 'if min_hold >= Duration::ZERO {'),
    ("every write: one member confirms it", "mongo.rs",
     'doc! { "w": "majority" }, limit)', 'doc! { "w": 1 }, limit)'),
    ("every write: no limit at the server", "mongo.rs",
     'command.insert("maxTimeMS", max_time(limit));', 'let _ = limit;'),
    ("commit: the guard changes nothing", "transaction.rs",
     'doc! { "$add": ["$expiresAt", 1_i64] }', 'doc! { "$add": ["$expiresAt", 0_i64] }'),
    ("commit: the guard does not renew", "transaction.rs",
     'doc! { "$max": [{ "$add": ["$$NOW", millis(expiry)] }, later] }', '{ let _ = expiry; later }'),
    ("commit: the guard counts as made without the claim", "transaction.rs",
     'Ok(updated) if updated.matched_count == keys.len() as u64 =>', 'Ok(_) =>'),
    ("commit: every conflict is a loss", "transaction.rs",
     'Err(error) if self.have_locks(keys).await.unwrap_or(true) =>',
     'Err(error) if self.have_locks(keys).await.unwrap_or(true) && false =>'),
    ("forced release: of whichever hold there is", "admin.rs",
     '"$expr": { "$and": as_read.to_vec() } }', '"$expr": { "$ne": [as_read.len() as i64, 0] } }'),
    ("forced release: a missing field matches any value", "admin.rs",
     'None => doc! { "$eq": [{ "$type": field }, "missing"] }', 'None => doc! { "$ne": [{ "$type": field }, ""] }'),
    ("forced release: a damaged document is released only", "admin.rs",
     '"$cond": [is_sound(), released, anew]', '"$cond": [{ "$literal": true }, released, anew]'),
    ("forced release: the token of a damaged document falls", "admin.rs",
     '"$max": [token, {', '"$min": [token, {'),
    ("forced release: also of a lock that is free", "admin.rs",
     'doc! { "$or": [taken(takeover_margin), {', 'doc! { "$or": [{ "$ne": [{ "$literal": takeover_margin.is_zero() }, 1] }, {'),
    ("forced release: the token is not compared", "../admin/force_release.rs",
     'seen.retain(|hold| hold.token == Some(token.get().into()));', 'drop(token);'),
    ("sets: one upsert that fails stops the rest", "several.rs", '"ordered": false', '"ordered": true'),
    ("sets: the claims are read without a majority", "several.rs",
     'level: "majority"', 'level: "local"'),
    ("sets: renewal and release of any claim", "claims.rs",
     'doc! { "_id": { "$in": names }, "lockId": id }', '{ let _ = id; doc! { "_id": { "$in": names } } }'),
    ("marks: of any claim", "mark.rs",
     'let own = doc! { "$eq": ["$lockId", { "$literal": &*key.lock_id }] };', 'let own = doc! { "$literal": true };'),
    ("marks: also after the end of the period", "mark.rs",
     'MarkEnd::At(end) => doc! { "$gte": ["$$NOW", end] }.into()', 'MarkEnd::At(_) => doc! { "$literal": false }.into()'),
    ("marks: a repetition does not find the first one", "mark.rs",
     '|| found.lock_id == lock_id::mark_of(&self.key.lock_id)', ''),
    ("marks: a lock that others have had counts as released", "mark.rs",
     'found.token == self.token && (is_own || was_released)', '(is_own || was_released)'),
    ("marks: a claim that was ended by force counts as released", "mark.rs",
     'found.lock_id.is_empty() && found.expires_at >= end', '{ let _ = end; found.lock_id.is_empty() }'),
    ("free: the takeover margin applies to marks", "takeover.rs",
     '{ "$eq": [&id, ""] }, begins(MARK_PREFIX), begins', '{ "$eq": [&id, ""] }, begins'),
    ("free: the takeover margin applies to minimum holds", "takeover.rs",
     'begins(MARK_PREFIX), begins(KEPT_PREFIX)]', 'begins(MARK_PREFIX)]'),
    ("detached: a detachment looks for no token", "detached.rs",
     '{ "$eq": ["$fencingToken", tokens[0]] }', '{ "$literal": tokens[0].get() > 0 }'),
    ("detached: a detachment of any lease", "detached.rs",
     'let is_own = doc! { "$and": [is_id(&key.lock_id), {', 'let is_own = doc! { "$and": [{ "$ne": ["$lockId", ""] }, {'),
    ("detached: the minimum hold is ignored", "detached.rs",
     'if !min_hold.is_zero() {', 'if min_hold > WEEK {'),
    ("detached: the locks of a set come in their order", "detached.rs",
     '.zip(&**tokens).rev()', '.zip(&**tokens)'),
    ("detached: an expired lease is resumed", "detached.rs",
     'doc! { "$and": [is_id(lock_id), { "$gt": ["$expiresAt", "$$NOW"] }] }', 'is_id(lock_id)'),
    ("detached: any lease is resumed", "detached.rs",
     'doc! { "$and": [is_id(lock_id), { "$gt": ["$expiresAt", "$$NOW"] }] }', 'doc! { "$gt": ["$expiresAt", "$$NOW"] }'),
    ("detached: the resumption of a set goes on", "claims.rs",
     '"update": collection.name(), "updates": updates }', '"update": collection.name(), "updates": updates, "ordered": false }'),
    ("detached: an extension shortens", "detached.rs",
     '{ "$max": [from_now(ttl), present] }', '{ "$max": [from_now(ttl)] }'),
    ("detached: an extension keeps an end from a clock that was ahead", "detached.rs",
     '"$min": ["$expiresAt", from_now(WEEK + LATE_COMMAND)]', '"$min": ["$expiresAt"]'),
    ("detached: a release by the handle counts also when the lease is over", "detached.rs",
     'query.insert("$expr", taken(takeover_margin));', 'let _ = (query, taken(takeover_margin));'),
    ("looks: every lock is free", "look.rs",
     'if document.get_bool("free").unwrap_or(true) {', 'if document.get_bool("free").unwrap_or(true) || true {'),
    ("looks: no lock is free", "look.rs",
     'if document.get_bool("free").unwrap_or(true) {', 'if document.get_bool("free").unwrap_or(true) && false {'),
    ("commit: one claim of a set is enough", "transaction.rs",
     'Ok(updated) if updated.matched_count == keys.len() as u64 =>', 'Ok(updated) if updated.matched_count > 0 =>'),
    ("commit: the guard that releases ignores the minimum hold", "transaction.rs",
     'return release_stage(min_hold)', 'return release_stage(min_hold * 0)'),
]


def copy(target):
    """A copy of the files that git knows, with the changes of the working tree."""
    place = os.path.join(target, "mutants", "copy")
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout
    for name in filter(None, listed.decode().split("\0")):
        source, copied = os.path.join(ROOT, name), os.path.join(place, name)
        if not os.path.lexists(source):
            continue
        os.makedirs(os.path.dirname(copied), exist_ok=True)
        if os.path.lexists(copied):
            os.remove(copied)
        shutil.copy2(source, copied, follow_symlinks=False)
    return place


def text_of(place, mutant):
    path = os.path.join(place, STORE, mutant[1])
    with open(path, encoding="utf-8") as file:
        return path, file.read()


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def run(place):
    """Builds and runs the suite; returns what happened, and the test that failed first.

    That test runs once more alone: a test that fails only beside others, on a busy machine, has found nothing, and then
    the suite runs again.
    """
    for _ in range(3):
        outcome, detail = run_tests(place, [f"{module}::" for module in MODULES])
        if outcome != "killed" or "::" not in detail:
            return outcome, detail
        again, _ = run_tests(place, ["--exact", detail])
        if again == "killed":
            return outcome, detail
    return "unclear", detail


def run_tests(place, wanted):
    """Runs the tests that these arguments select, until the first of them fails."""
    environment = dict(os.environ, CARGO_TARGET_DIR=os.path.join(target_directory(), "mutants", "target"))
    # The tests have downloaded a server; without this they would do so again.
    downloaded = sorted(glob.glob(os.path.join(target_directory(), "mongod-*", "mongod")))
    if downloaded:
        environment.setdefault("MONGOD", downloaded[-1])
    command = ["cargo", "test", "-p", "mongolock-tests", "--test", "behaviour", "--locked"]
    log = os.path.join(target_directory(), "mutants", "log")
    with open(log, "w", encoding="utf-8") as output:
        suite = subprocess.Popen(
            [*command, "--", *wanted], cwd=place, env=environment,
            stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
    until = None
    while until is None or time.monotonic() < until:
        has_ended = suite.poll() is not None
        with open(log, encoding="utf-8", errors="replace") as output:
            seen = output.read()
        if until is None and "\nrunning " in seen:
            until = time.monotonic() + LIMIT
        failed = re.search(r"^test (\S+) \.\.\. FAILED", seen, re.MULTILINE)
        if failed:
            end(suite)
            return "killed", failed.group(1)
        if has_ended:
            counted = re.search(r"test result: ok\. (\d+) passed", seen)
            if suite.returncode == 0 and counted and int(counted.group(1)) > 0:
                return "survives", f"{counted.group(1)} tests pass"
            if "could not compile" in seen:
                return "does not compile", re.search(r"^error.*", seen, re.MULTILINE).group(0)
            return "error", (seen.strip().splitlines() or ["no output"])[-1]
        time.sleep(0.2)
    end(suite)
    return "killed", "no end within the limit"


def end(suite):
    """Ends the suite that this script has started; its servers notice that and end by themselves."""
    try:
        os.killpg(suite.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    suite.wait()


def target_directory():
    return os.path.abspath(os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target")))


def check(place):
    """Every text is there exactly once: otherwise the list is out of date."""
    wrong = 0
    for number, mutant in enumerate(MUTANTS, 1):
        _, text = text_of(place, mutant)
        if text.count(mutant[2]) != 1:
            print(f"{number}. {mutant[0]}: the text is there {text.count(mutant[2])} times")
            wrong += 1
    return wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("numbers", nargs="*", type=int)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--no-baseline", action="store_true", help="do not run the suite without a mutant first")
    arguments = parser.parse_args()
    if arguments.list:
        for number, mutant in enumerate(MUTANTS, 1):
            print(f"{number}. {mutant[0]}")
        return 0
    if check(ROOT):
        return 1
    if arguments.check:
        print(f"{len(MUTANTS)} mutants")
        return 0
    place = copy(target_directory())
    outcome, detail = ("survives", "") if arguments.no_baseline else run(place)
    if outcome != "survives":
        sys.exit(f"the suite does not pass without a mutant: {outcome}, {detail}")
    print("| mutant | outcome | by |\n|---|---|---|", flush=True)
    survivors = 0
    for number in arguments.numbers or range(1, len(MUTANTS) + 1):
        mutant = MUTANTS[number - 1]
        path, text = text_of(place, mutant)
        write(path, text.replace(mutant[2], mutant[3]))
        outcome, detail = run(place)
        write(path, text)
        survivors += outcome != "killed"
        shown = f"`{detail}`" if "::" in detail else detail
        print(f"| {number}. {mutant[0]} | {outcome} | {shown} |", flush=True)
    print(f"\n{survivors} of them were not killed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
