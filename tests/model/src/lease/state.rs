//! What the steps of the model change in a state.

use super::{Action, Command, Lease, Phase, Process, Request, Stage, State, Stored, Write};
use crate::protocol::{ClaimId, LockId, Reply, Time, Token};

impl State {
    /// Whether this process relies on the lock.
    pub(super) fn believes(&self, process: &Process) -> bool {
        matches!(process.phase, Phase::Holding { deadline, .. } if self.now < deadline)
    }

    pub(super) fn believers(&self) -> impl Iterator<Item = &Process> {
        self.processes.iter().filter(|process| self.believes(process))
    }

    /// The process that waits for this claim or holds the lock by it.
    pub(super) fn user(&mut self, claim: ClaimId) -> Option<&mut Process> {
        let uses = |process: &&mut Process| process.claim() == Some(claim);
        self.processes.iter_mut().find(uses)
    }

    pub(super) fn server_time(&self, model: &Lease) -> Time {
        self.now + model.clocks[usize::from(self.primary)]
    }

    /// The process of this claim sends a command.
    fn send(&mut self, request: Request, claim: ClaimId) {
        let by_peer = self.user(claim).is_some_and(|process| process.is_peer);
        self.commands.push(Command {
            request,
            claim,
            by_peer,
            sent: self.now,
            stage: Stage::Sent,
        });
    }

    /// The step of a process that sends a command.
    pub(super) fn send_next(&mut self, action: Action) -> Option<()> {
        match action {
            Action::Acquire(process) => {
                let claim = ClaimId(self.done.claims);
                self.done.claims += 1;
                self.processes[process].phase = Phase::Acquiring(claim);
                self.send(Request::Acquire, claim);
            }
            Action::GiveUp(claim) | Action::Release(claim) => {
                self.send(Request::Release, claim);
                self.user(claim)?.phase = Phase::Idle;
            }
            _ => return None,
        }
        Some(())
    }

    /// Runs a command that began at this time of the server, and puts its reply on the way.
    pub(super) fn run(&mut self, model: &Lease, command: Command, now: Time) {
        let rules = model.rules_of(&command);
        let before = self.stored.document;
        let at = &mut self.stored.document;
        let reply = match command.request {
            Request::Acquire => Some(rules.claim(at, command.claim, now, 1)),
            Request::Release => {
                rules.release(at, command.claim, now);
                None
            }
        };
        if self.stored.document != before {
            self.stored.version += 1;
            if command.request == Request::Acquire {
                self.grants += 1;
                self.stored.grant = self.grants;
            }
        }
        let (grant, after) = (self.stored.grant, self.stored.version);
        self.commands.extend(reply.map(|reply| Command {
            stage: Stage::Replied { reply, grant, after },
            ..command
        }));
    }

    /// What a process does with a reply.
    pub(super) fn learn(&mut self, model: &Lease, command: Command, reply: Reply, grant: u8) {
        let (now, claim) = (self.now, command.claim);
        let expiry = model.rules_of(&command).expiry;
        if let (Some(process), Reply::Acquired { token, remaining }) = (self.user(claim), reply) {
            let deadline = command.sent + remaining.min(expiry);
            // A reply that comes after the end of its lease grants nothing.
            if now < deadline {
                process.phase = Phase::Holding { claim, deadline };
                if !process.is_peer {
                    process.write = Some(Write { token, grant });
                    self.knows(grant, token);
                }
            }
        }
    }

    /// Notes that a process has learned of a grant.
    fn knows(&mut self, grant: u8, token: Token) {
        let (last_grant, last_token) = self.last_known;
        self.has_token_fallen |= (grant > last_grant) != (token > last_token);
        if grant > last_grant {
            self.last_known = (grant, token);
        }
    }

    pub(super) fn write_arrives(&mut self, model: &Lease, write: Write) {
        let (seen, last_grant) = self.data;
        if model.is_fenced && write.token < seen {
            self.has_refused_last_holder |= write.grant == self.grants;
            return;
        }
        self.has_taken_stale_write |= write.grant < last_grant;
        self.data = (seen.max(write.token), last_grant.max(write.grant));
    }

    /// Forgets what can have no effect any more, and orders the rest: equal situations are then equal states.
    pub(super) fn tidy(&mut self) {
        let is_pending = |command: &&Command| {
            command.request == Request::Acquire && !matches!(command.stage, Stage::Replied { .. })
        };
        let pending = self.commands.iter().filter(is_pending);
        let pending = pending.fold(0_u64, |pending, command| pending | 1 << command.claim.0);
        let may_acquire = |claim: ClaimId| pending & 1 << claim.0 != 0;
        let id_of = |stored: Stored| stored.document.map(|document| document.lock_id);
        let (stored, committed) = (id_of(self.stored), id_of(self.committed));
        let processes = &self.processes;
        self.commands.retain(|command| {
            let awaits = Phase::Acquiring(command.claim);
            match (command.stage, command.request) {
                (Stage::Replied { .. }, _) => processes.iter().any(|process| process.phase == awaits),
                (_, Request::Acquire) => true,
                (_, Request::Release) => {
                    let id = Some(LockId::Claim(command.claim));
                    stored == id || committed == id || may_acquire(command.claim)
                }
            }
        });
        self.commands.sort_unstable();
        self.processes.sort_unstable();
    }
}
