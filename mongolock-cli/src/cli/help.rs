//! The long parts of the help.

pub(super) const TABLE: &str = "\
Exit codes: 0 done; 1 no such lock, nothing released, or something is wrong; \
2 wrong command line (125 of `run`); 75 others hold the lock; 124 a detached lease is over; 125 failed. `run` has codes \
of its own: see `mongolock run --help`.";

pub(super) const EXAMPLES: &str = "\
Examples:
  export MONGODB_URI=mongodb://db.example.com/app
  mongolock ls --held                          who holds what
  mongolock show report:42                     holder, since when, the time left
  mongolock release report:42                  free it; the holder learns of it at its next renewal
  mongolock run nightly -- ./nightly.sh        a command under a lock
  mongolock hold deploy:web --for 30m          a lock for a person, until `mongolock release deploy:web`

Exit codes: 0 done; 1 no such lock, nothing released, or something is wrong; \
2 wrong command line (125 of `run`); 75 others hold the lock; 124 a detached lease is over; 125 failed. `run` has codes \
of its own: see `mongolock run --help`.";

pub(super) const RUN_HELP: &str = "\
The command runs in a process group of its own, under the watch of a second process, the guardian. No process of that \
group is alive when the lock is lost, also if `mongolock run` is killed or stopped, or the network is cut:
  - SIGTERM (and SIGCONT) to the group at the end of the lease less 5s or a sixth of the expiry, whichever is less; with \
    an expiry of 50s or longer, 5s before SIGKILL; after it a late renewal changes nothing
  - SIGKILL at the end of the lease less 100ms or a twentieth of the expiry, whichever is more; at once if `run` has \
    ended or the lock was released by force

A wait of more than 5s is a line on standard error, which names the holder. \
If a renewal fails, a line says why and how much time is left; another one comes before SIGTERM.

When the command has ended, the rest of its group gets SIGTERM, and SIGKILL after 5s. The lock is released when the last \
process of the group has ended.

HUP, INT, QUIT, TERM, USR1 and USR2 are passed on to the group, unless they are ignored at the start (nohup). A stopped \
command is continued for the first four, which it could not get otherwise. Ctrl-Z stops `run`, too; the lock cannot be \
renewed then, so a longer stop costs it. At a terminal the command is in the foreground if standard input and standard \
output are that terminal.

The command gets MONGOLOCK_NAME and MONGOLOCK_TOKEN (the fencing token; both separated by commas for several names; no \
token with --permits). Standard input and output belong to the command; messages of `run` go to standard error.

A command under a lock that asks for the same lock, with `run`, `acquire` or `hold`, would wait for its own end. It fails at once \
instead: MONGOLOCK_INSIDE tells it which locks are held around it, and by which tokens.

With --resume the command runs under a lease of `mongolock acquire`, which `run` holds and renews meanwhile. With \
--then-detach the lease is detached again when the command has ended, whatever its exit code, so that a command that has \
failed can be run again; its new handle replaces that in FILE. Without it the lock is released, and FILE is deleted. If \
`run` is killed, or the lock is lost, the handle in FILE is of no use any more: `mongolock release --handle FILE` deletes it.

The release, the mark of --once-per and the detachment are repeated while the lease lasts: `run` says every 10 s what is not \
confirmed and for how long it is still tried. A signal ends that wait at once.

Exit codes:
  that of CMD, and 128 + n if signal n has ended it (by INT or QUIT `run` ends itself)
  0     the period is already done (--once-per); a line on standard error says so
  75    others hold the lock, or its work is marked as done (-E sets another code)
  124   the lock was lost, and CMD was ended; or the lease of --resume is over, and CMD was not started
  125   `mongolock run` failed, or could not mark the period as done, or detach the lease again, also because a signal ended \
    the wait for that; or its command line is wrong
  126   CMD cannot be executed
  127   CMD was not found
  128+n signal n has ended the wait

Not covered:
  - a child that leaves the process group (setsid, `timeout` without --foreground, a shell with job control)
  - a process in an uninterruptible system call: if it is still there at the end, the lock is not released
  - a CMD that is setuid, which the guardian may not end
  - a forced release: CMD is ended at the next renewal only, while others may have the lock
  - `run` and its guardian stopped (SIGSTOP) at the same time: CMD outlives the lock until one of them continues, which \
    kills it at once; or a whole machine that is frozen and continues later
  - the guardian killed while `run` is stopped: CMD outlives the lock until `run` continues, which kills it at once
  - `kill -9` of `run` and its guardian at once, for the children of CMD; CMD itself ends
  - systems other than Linux: CMD outlives a `run` and guardian that are killed together, and the time in which the \
    machine is suspended may not count

Where a late write would do harm, give it MONGOLOCK_TOKEN, and let the store refuse smaller tokens.

Examples:
  mongolock run nightly -- ./nightly.sh
  mongolock run deploy:web deploy:db --wait 5m -- make deploy
  mongolock run report --once-per 1d -- ./report.sh        each host may start it; one run a day succeeds
  mongolock run export --permits 3 -- ./export.sh          three at a time
  mongolock run --resume lease --then-detach 30m -- ./step-2.sh";

pub(super) const ACQUIRE_HELP: &str = "\
The lease goes on when the command has ended: it is detached. No process renews it, and it ends after --ttl. Its handle is a \
text of one line, with which any process on any machine resumes, extends or releases the lease. Who has the handle has the \
lock, so keep it as a password. The file can only be read and written by its owner. No command takes a handle as an argument, \
which `ps` would show, and none prints it, except for this one with `--handle -`.

The file is created before the lock is asked for, and removed again if the lock is not acquired. The handle is in it, and \
on the disk, before the lease is detached. A command that is killed on its way leaves the file, and the lock ends by itself \
after 30s or after --ttl, unless the handle in the file already works.

Exit codes: 0 acquired; 75 others hold the lock (-E sets another code); 2 wrong command line; 124 the lock was lost on the \
way; 125 failed, also if the handle cannot be written or its file was deleted, and the lock is released then; 128 + n signal \
n has ended it, and the lock is released.

Examples:
  mongolock acquire deploy:web --ttl 30m --wait 5m --handle lease --owner deploy-4711
  mongolock run --resume lease --then-detach 30m -- ./step-1.sh
  mongolock extend --handle lease --ttl 1h
  mongolock release --handle lease";

pub(super) const EXTEND_HELP: &str = "\
The new end is printed as RFC 3339 in UTC, by the server's clock. It is the later one of the present end and --ttl from now. \
To shorten a lease, use `mongolock run --resume FILE --then-detach TIME -- true`.

Field of --json:
  expires_at   RFC 3339, UTC

Exit codes: 0 extended; 124 the lease is over: it has ended, or was released or resumed; 2 wrong command line; 125 failed.

Examples:
  mongolock extend --handle lease --ttl 30m
  mongolock extend --handle lease --ttl 30m --json | jq -r .expires_at";

pub(super) const HOLD_HELP: &str = "\
The lock is held by `user@host`, and nothing has to run meanwhile. A line says until when. It ends then, or earlier by \
`mongolock release NAME`, or `mongolock release --owner user@host` for all locks of this person on this host.

Exit codes: 0 held; 75 others hold the lock (-E sets another code); 2 wrong command line; 125 failed; 128 + n signal n has \
ended the wait.

Examples:
  mongolock hold deploy:web --for 30m
  mongolock hold deploy:web deploy:db --for 2h --wait 5m";

pub(super) const LS_HELP: &str = "\
The columns are name, state, remaining time and owner, each as wide as its content. At a terminal a line that is \
too long is cut in the middle of its name or owner. A permit of a semaphore is shown as `name #number`. A \
document that cannot be read as a lock is a line with the state `damaged`. Without locks there are no lines, and one on \
standard error says in which database and collection there are none. `no renewal for 42 s` stands in the place of `held` if that is \
more than half of the expiry: the holder has probably died. It is known for leases of up to two minutes, where change streams are. The state of a lock that is held by no process is `detached`: its \
lease ends when the remaining time is over, unless a process with its handle resumes or extends it.

Fields of --json:
  name                        text
  permit                      number of the permit; only for permits
  state                       held, expired, released, done or damaged
  detached                    true; only if the last lease was one that no process renews; `state` says whether it runs
  owner                       text; null once released, and for holders that write none
  fencing_token               number; not for permits, which have none
  acquired_at, expires_at     RFC 3339, UTC
  held_ms                     time since the acquisition; null unless held
  remaining_ms                time until the lock is free
  problem                     text; only for damaged documents, which have name, state and problem

Examples:
  mongolock ls report: --held
  mongolock ls --held --json | jq -r .name";

pub(super) const RELEASE_HELP: &str = "\
The hold that is seen is released, and no later one. Its holder, if it is a process, goes on until its next renewal (a third of its expiry): \
until then two may work under the lock. If only `expiresAt` is set by hand, the holder loses the lock at that renewal as well, but \
the lock counts as expired and not as released.

--token compares the token in the document. A process whose waiters hand the lock over among themselves leaves that token \
unchanged, so the token also fits the next holder in the same process.

With --wait the command ends when the lock has another holder or none, and a line says which.

At a terminal the command asks first, and --yes answers. Without a terminal it needs --yes.

With --handle the detached lease of the handle is released, and never the hold of a process that has resumed it. The file is \
deleted, also if there was nothing to release: the handle has no use any more. An empty file, which an `acquire` that was \
killed leaves, is deleted, too. A file that another command has written since stays. A `run --resume --then-detach` that is active \
is not ended: it writes the file again when it detaches the lease.

Exit codes: 0 all that was asked for is released; 1 nothing released (no such lock, not held, another token, no file with a \
handle, the answer is no), or not all of it, as a line says; 2 wrong command line; 125 failed, also if nobody can be asked.

Examples:
  mongolock release report:42
  mongolock release report:42 --token 1763764800123000
  mongolock release report:42 --wait
  mongolock release export --permit 2
  mongolock release nightly --done
  mongolock release --owner web-3:4711 --yes              in a script
  mongolock release --handle lease";

pub(super) const SHOW_HELP: &str = "\
A semaphore is shown as its permits. The owner of a detached lease stays its owner when a process resumes it. \
The exit code is 1 if there is no lock of this name.

Examples:
  mongolock show report:42
  mongolock show export --json | jq 'select(.state == \"held\") | .owner'";

pub(super) const WATCH_HELP: &str = "\
The changes are acquired, detached, resumed, released, taken over, expired, deleted, damaged and done. It needs a replica set and the \
right to open change streams on the collection of the locks.

  - The server tells no expiry: the lock is read when its lease would end.
  - A forced release looks like a release.
  - A document that cannot be read as a lock any more is `damaged`; if only the end of its lease cannot be read, that is \
    noticed when the lease would end.
  - Waiters of one process that hand a lock over among themselves do not appear: the document stays as it is.
  - After an outage it goes on with the next change. If the server no longer has the changes, a line says so (`gap`), and the \
    locks are read again.
  - A line says when no primary answers any more (`gone`), and another one when one answers again (`back`).

Fields of --json:
  at               RFC 3339, UTC, the time of the change by the server's clock (for gone and back: of this machine)
  event            acquired, detached, resumed, released, taken_over, expired, deleted, damaged, done, gap, gone or back
  name             text; not for gap, gone and back, nor for deleted if the collection was dropped or renamed
  permit           number of the permit; only for permits
  owner            text; the owner that has the lock, or had it last; left out if unknown
  previous_owner   text; only for taken_over, if known
  fencing_token    number; left out for permits, and if unknown
  lock_id          text; the hold, as its document names it; left out if unknown
  acquired_at      RFC 3339, UTC; left out if unknown
  expires_at       RFC 3339, UTC; the end of the lease, if the change tells it
  since            RFC 3339, UTC; only for gap: the last time up to which nothing was missed
  problem          text; only for gone

Examples:
  mongolock watch report:
  mongolock watch --json | jq -r 'select(.event == \"expired\") | .name'";

pub(super) const LOG_HELP: &str = "\
The past is read from the oplog of the server, by a change stream: it goes back as far as the oplog does, and a line says at first \
how far that is. It needs a replica set, and `find` and `changeStream` on the collection of the locks. It takes about 12s for each GB \
of oplog since the beginning of the time that is asked for.

TIME is a duration before the present (`12h`), a time of the day (`02:00`, today or yesterday), or a date with or without one \
(`2025-11-21`, `2025-11-21T02:00`), all in the zone of the terminal; or RFC 3339 with a zone of its own.

The ends of a turn:
  held             it is on
  released, done   by its holder; a release with `mongolock release` looks like one by the holder
  expired          the lease was over at that time
  expired by then  the lease was over at that time or before: the next holder came, or the document was deleted
  unknown          events are missing

  - A `?` is not known: the turn has begun more than 10 minutes before --since or --at, or before the time that the server remembers.
  - The turn of a holder that was killed is missing if it has begun before that, and another holder came later.
  - Waiters of one process that hand a lock over among themselves are one turn, and so is a lease that was detached and resumed.
  - 1,000 locks with leases of 30s write 8.6 million renewals a day, which are nearly 2 GB of oplog.

Fields of --json:
  remembers_since    RFC 3339, UTC; in the first line only, and null if the server remembers all since it was set up
  name               text
  permit             number of the permit; only for permits
  owner              text; null if not known
  fencing_token      number; left out for permits, and if not known
  from, to           RFC 3339, UTC; null if not known, and `to` while it is held
  held_ms            time from `from` to `to`, or to now
  end                held, released, done, expired, expired_by or unknown

Examples:
  mongolock log report:42 --since 2d
  mongolock log report: --at 02:00                        who held these locks at two o'clock
  mongolock log --since 02:00 --until 04:00 --json | jq -r 'select(.end == \"expired\") | .name'";

pub(super) const DOCTOR_HELP: &str = "\
Each finding is ok, wrong, or unknown (this user has no right to see it), with the command that mends it. The command changes \
nothing: it tries a majority write that matches no document, and the documents of a lock in a transaction that it aborts. The \
exit code is 1 if a finding is wrong: no lock can be acquired, or held ones get lost, or something else is to be mended.

Fields of --json:
  check     text, such as `privileges`
  state     ok, wrong or unknown
  finding   text
  mend      text: a command, for mongosh unless it says otherwise; left out if there is nothing to mend. A standalone \
    server is ok, with the command that makes it a replica set

Example:
  mongolock doctor --json | jq 'select(.state != \"ok\")'";
