#!/usr/bin/env python3
"""Takes a rule out of the core, or turns it round, and looks whether the explorer notices it.

    tests/explore/mutants.py                 # all of them, a table at the end
    tests/explore/mutants.py "no new token"  # those whose names contain these words

Each mutant is a replacement in a file of the core, in a copy of the repository. It has to make a named case fail.
"""
import os, re, shutil, subprocess, sys, tempfile
from pathlib import Path

# What is wrong, the file, the text that is replaced, its replacement, and the case that must fail; with `long` at its end it is looked
# for within the greater bounds.
MUTANTS = [
    ("a key of something that is gone finds what is there now", "slab.rs",
     "slot.value.as_mut().filter(|_| slot.generation == key.generation)", "slot.value.as_mut()", "cancel"),
    ("a claim that waits for a command is not taken back", "sending.rs",
     "std::mem::take(&mut claim.in_lane[lane as usize]).then_some(())?;", "", "cancel"),
    ("no copy of a claim without a reply", "rooms.rs",
     "            self.go_apart(Lane::Claims, RowOrder::Each, vec![key]);\n", "", ": lost"),
    ("a claim that is given up without a reply is not released", "releases.rs",
     "if claim.may_come() {", "if false {", "cancel unclear"),
    ("a refusal of one row says that no other row was applied", "replies.rs",
     "fault.is_some_and(|fault| fault.may_be_applied);", "fault.is_some_and(|fault| fault.may_be_applied && fault.kind != FaultKind::Refused);",
     "ab, b: refused-row"),
    ("a single attempt waits for a holder of its process", "calls.rs",
     "(caller.join.is_try && is_busy).then_some(Cause::Busy)", "None", "lock try: hold"),
    ("a call goes on after its period", "calls.rs",
     "Some(period) if period.ends < limit.0 =>", "Some(period) if false && period.ends < limit.0 =>", "period period period: hold"),
    ("a single attempt waits for its turn to ask", "calls.rs",
     "caller.join.is_try && caller.after >= room.asked_by;", "false;", "lock try, lock try: crash"),
    ("no release when a late claim can no longer arrive", "releases.rs",
     ".take_if(|until| *until <= sent)", ".take()", "lock-deadline: late Left within its limit"),
    ("no release 90 s after a claim with a long lease", "releases.rs",
     "self.rules.expiry > LATE_COMMAND || self.resumes.is_some()", "false", "long-deadline: late Left"),
    ("a claim that gets the lock during its release is not released again", "replies.rs",
     "closing.is_acquired_again |= last > claim.last,", "closing.is_acquired_again |= false,", "late*2"),
    ("a claim that gets the lock after its release is not released again", "replies.rs",
     "(Stage::Released, Some(_)) => self.release(now, key, None),", "(Stage::Released, Some(_)) => {}", "lock: late"),
    ("a grant is believed that comes too late", "claims.rs",
     "if lease.until <= now || !fits", "if !fits", "lock-short"),
    ("a lease counts from its reply", "claims.rs",
     "until: flight.sent + relied_on(left),", "until: now + relied_on(left),", "lock-short"),
    ("a renewal counts from its reply", "leases.rs",
     "lease.until.max(flight.sent + relied_on(rules.expiry))", "lease.until.max(now + relied_on(rules.expiry))", "lock-short: late*4"),
    ("a shutdown loses a claim that another loss has removed", "leases.rs",
     "self.claims.get_mut(key).filter(|claim| claim.is_held());", "Some(&mut self.claims[key]).filter(|claim| claim.is_held());", "ab, b: shutdown"),
    ("a holder relies on more than its lease", "claims.rs",
     "    lasts * MS - margin(lasts)", "    lasts * MS + margin(lasts)", "lock, lock:"),
    ("a claim is delivered to a call with other options", "claims.rs",
     "caller.rules == claim.rules && ", "", "lock lock kept"),
    ("a claim of another period is believed", "claims.rs",
     "if period.is_some_and(|period| left(period) <= now - flight.sent) {", "if false && period.is_some() {", "period"),
    ("a claim of an earlier period is believed", "claims.rs",
     "|| is_earlier ", "", "period period-try: cancel lost"),
    ("the period of a call is that of the first reply", "calls.rs",
     "let waited = (flight.sent - caller.begun).max(0);", "let waited = 0;", "lock period"),
    ("no new token for the next holder", "releases.rs",
     "        claim.token += 1;\n", "", "lock lock lock"),
    ("work that may succeed once is handed over", "releases.rs",
     " && claim.rules.once.is_none()", "", "period period period period", "long"),
    ("a minimum hold is handed over", "releases.rs",
     "claim.rules.min_hold == 0 && ", "", "lock-least lock-least lock-least"),
    ("a claim whose commit is under way is handed over", "releases.rs",
     "Stage::Held if claim.commits.open > 0 =>", "Stage::Held if false =>", "commit commit commit"),
    ("a claim whose commit is unknown is handed over", "releases.rs",
     " && !claim.commits.is_unclear;", ";", "commit commit commit: unclear"),
    ("a release that finds the mark of a transaction is a loss", "claims.rs",
     "End::Release(_) | End::Mark(_) if self.is_marked_by(reply) => Ended::Marked,", "End::Mark(_) if self.is_marked_by(reply) => Ended::Marked,", "done, done: unclear"),
    ("a hold is renewed without a bound", "leases.rs",
     "if lease.renewable_until <= now {", "if false {", "most"),
    ("a claim leaves out the takeover margin", "sending.rs",
     "(When::Free { margin },", "(When::Free { margin: 0 },", "margin"),
    ("a renewal that misses is no loss", "commits.rs",
     "            self.lose(now, key, LossReason::Gone);\n        } else if let Some(lease)", "        } else if let Some(lease)", "forced"),
    ("a renewal without the token", "sending.rs",
     "(self.id.clone()?, Some(self.last), Some(0))", "(self.id.clone()?, None, Some(0))", "forced hold*4 Freed"),
    ("a lost lease is not released", "leases.rs",
     "            self.release(now, key, None);\n        } else if may_last",
     "            self.end_released(now, now, key, Ended::Lost);\n        } else if may_last", "forced"),
    ("a lease that the server may keep for longer is not released", "leases.rs",
     "let may_last = lease.may_last || claim.may_come() || self.conf.margin > 0;", "let may_last = false;", "lock-short: hold Renewing"),
    ("a failed release is not repeated", "releases.rs",
     "let is_refused = fault.kind == FaultKind::Refused || at >= closing.stop;", "let is_refused = true;", "lock-long, lock: unsent"),
    ("a release that was never sent counts as an earlier one", "replies.rs",
     "u8::from(!is_unclear)", "0", "forced unsent"),
    ("a command that was rejected is forgotten", "replies.rs",
     "            claim.in_lane[flight.lane as usize] = true;\n", "", "rejected"),
    ("a rejection is taken for a failure before the command", "replies.rs",
     "fault.is_some_and(|fault| fault.may_be_applied)",
     "fault.is_some_and(|fault| fault.may_be_applied && fault.kind != FaultKind::Overloaded)", "rejected"),
    ("a command that has failed together was not applied", "replies.rs",
     "claim.landed(now, flight, Some(fault));",
     "claim.landed(now, flight, Some(&Fault { may_be_applied: false, ..fault.clone() }));", "a b: rejected unclear"),
    ("what has failed together does not go apart", "replies.rs",
     ".extend(parts.map(|part|", ".extend(parts.take(0).map(|part|", "a b: rejected unclear"),
    ("the reply to a look that was sent before an event puts off what the event has said", "news.rs",
     "() if flight.number <= room.taken_after && room", "() if flight.lane == Lane::Claims && flight.number <= room.taken_after && room", "period period, period period: hold*2", "long"),
    ("a release that is reported during a claim is forgotten", "news.rs",
     "(room.seen, room.freed_after) = (None, self.commands);", "room.seen = None;", "lock lock, lock lock"),
    ("what was asked before the stream was open is not asked again", "stream.rs",
     "self.reports(filter) && since > self.opened_at", "self.reports(filter)", "lock, lock lock-try: hold"),
    ("a room is forgotten although its claim has to be released", "rooms.rs",
     "            if room.claims.is_empty() {\n                self.linger(now, key);", "            {\n                self.linger(now, key);", "cancel"),
    ("an old reply answers a single try", "calls.rs",
     "let is_new = caller.after < flight.number;", "let is_new = true;", "try"),
    ("a set keeps what it may have only later", "replies.rs",
     "                self.withdraw(room);\n            }\n            // An operator", "            }\n            // An operator", "ab b, a-short: lost Crashed"),
    ("a set that has lost a lock goes on", "leases.rs",
     "            self.begin_again(now, caller, room);", "            let _ = caller;", "ab-short, b-least: forced"),
    ("a set is lost only if its last lock was", "releases.rs",
     ".filter(is_worse)", ".filter(|before| is_worse(before) && false)", "forced"),
    ("a permit of another process counts as free", "permits.rs",
     "let permit = if is_taken {\n                PermitState::Taken", "let permit = if is_taken {\n                PermitState::Free", "permit"),
    ("claims for permits that no call waits for go on", "rooms.rs",
     "        self.give_up_surplus(now, key);\n", "", "permit"),
    ("a lost release is not repeated", "releases.rs",
     "() if stop > now => self.push(key, Lane::Ends),", "() if stop > now => {}", "lock, lock: lost"),
    ("a resumption that is given up is released", "sending.rs",
     "(End::Release(_), Some((to, ttl))) => (When::is(id), rename((to, *ttl), 0)),", "(End::Release(_), Some(_)) => (When::is(id), Then::End { min_hold: 0, unused: 0 }),", "detach"),
    ("a lease that was resumed and not taken is released", "releases.rs",
     "self.claims[*part].resumes = Some(handle);", "let _ = (part, handle);", "detach, resume: cancel"),
    ("a reply from before a lease was given back says that the lease is gone", "resuming.rs",
     "cause.filter(|_| is_recent)", "cause", "detach, resume resume: cancel"),
    ("a resumption that is given up is forgotten", "releases.rs",
     "                self.give_up(now, key);\n", "", "detach"),
    ("a renewal before the end of a commit decides it", "commits.rs",
     "was_made || flight.number > unknown.after", "was_made || flight.number > 0", "done"),
    ("a lease with a commit under way ends at once", "leases.rs",
     "if claim.commits.open > 0 && claim.commits.marks {", "if false && claim.commits.marks {", "done"),
    ("a shutdown leaves calls", "calls.rs",
     "                self.fail_call(now, key, Cause::ShutDown);", "", "shutdown"),
    ("a shutdown leaves holds", "mod.rs",
     "            self.lose(now, claim, LossReason::ShutDown);", "            let _ = claim;", "shutdown"),
    ("a lease that a copy has won is renewed as late as others", "claims.rs",
     "(left - (rules.expiry - rules.renew_every)) * MS", "rules.renew_every * MS", "lock-short: lost hold*2"),
    ("the reply to an earlier release ends a claim", "replies.rs",
     "if self.claims[key].is_ended_since(flight) => {}", "if false => {}", "rejected late*2"),
    ("a rejected claim that was released before stays", "replies.rs",
     "            self.claim_due(now, *key);\n", "", "rejected late*2"),
    ("a release that was refused is not sent again", "news.rs",
     "            self.push(refused, Lane::Ends);", "            let _ = refused;", "lock lock lock: refused"),
    ("no caller learns of a release that was refused", "releases.rs",
     "            self.note_fault(now, room, fault);\n", "", "lock lock lock: refused"),
    ("an event says that all permits are held that were not seen since", "news.rs",
     "number.is_none() || self.stream.reports_since(room.filter, room.asked)", "true", "permit2 permit2, permit2 permit2: crash", "long"),
    ("a reply that is older than an event puts off the next command", "news.rs",
     "() if flight.number <= room.taken_after && room", "() if false && room", "period period, period period: hold", "long"),
    ("ids come from the core's own state", "sending.rs",
     "luck.id()).text", "u64::from(self.trips)).text", "copies"),
]

ROOT = Path(__file__).resolve().parents[2]


def run(copy, case, bounds):
    """What the explorer says of the cases with these words: how many failed, and the first breach."""
    # Most are found at once, so that optimising would take longer than it saves.
    unoptimised = ["--config", "profile.dev.package.mongolock-explore.opt-level=0"]
    command = ["cargo", *unoptimised, "test", "--quiet", "-p", "mongolock-explore", "--locked", "--", case]
    environment = dict(os.environ, CARGO_TARGET_DIR=str(ROOT / "target" / "mutants"), MONGOLOCK_EXPLORE=bounds + "first")
    ran = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, timeout=1800)
    failed = re.search(r"(\d+) failed", ran.stdout)
    if not failed:
        # A panic of the core, an endless loop that was ended, or a mutant that does not compile.
        lines = [line for line in ran.stderr.splitlines() if "panicked at" in line or line.startswith("error")]
        is_panic = bool(lines) and "panicked" in lines[0]
        return (1, "the core panics") if is_panic else (0, lines[0] if lines else "nothing was said")
    breach = re.search(r"^(\S.*?)  +\d+ .*FAILED\n +\d+ steps: (.*)", ran.stdout, re.MULTILINE)
    return int(failed[1]), f"{breach[2]} (`{breach[1]}`)" if breach else ""


def main():
    words = sys.argv[1:] or [""]
    wanted = [mutant for mutant in MUTANTS if any(word in mutant[0] for word in words)]
    missed = []
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns("target", ".git"))
        print("| wrong | case | what is found |\n|---|---|---|", flush=True)
        for name, file, before, after, case, *bounds in wanted:
            path = copy / "mongolock/src/core" / file
            source = path.read_text()
            if source.count(before) != 1:
                missed.append(name)
                print(f"| {name} | | its text is {source.count(before)} times in {file} |", flush=True)
                continue
            path.write_text(source.replace(before, after))
            failed, breach = run(copy, case, " ".join([*bounds, ""]))
            path.write_text(source)
            if not failed:
                missed.append(name)
            print(f"| {name} | {case} | {breach if failed else f'**nothing** {breach}'} |", flush=True)
    print(f"{len(wanted) - len(missed)} of {len(wanted)} are found")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
