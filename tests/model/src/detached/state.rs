//! What the steps of the model change in a state.

use super::{
    About, Changed, Command, Detached, Hold, Name, Order, Origin, Owed, Phase, Reply, Request, Stage, State,
};
use crate::protocol::{ClaimId, Document, LockId, Rules, Time, has_id};

impl Phase {
    /// The request that a process has sent, and may send again.
    pub(super) fn request(self) -> Option<Request> {
        match self {
            Self::Acquiring(hold) => Some(Request::Acquire(hold)),
            Self::Detaching { old, handle } => Some(Request::Detach { old, handle }),
            Self::Resuming { handle, hold } => Some(Request::Resume { handle, hold }),
            Self::Idle | Self::Holding { .. } => None,
        }
    }

    pub(super) fn awaits(self, request: Request) -> bool {
        match self {
            Self::Holding { hold, .. } => request == Request::Renew(hold),
            _ => self.request() == Some(request),
        }
    }
}

impl Owed {
    pub(super) fn request(self) -> Request {
        match self {
            Self::GiveBack { hold, handle } => Request::GiveBack { hold, handle },
            Self::Release(hold) => Request::Release(hold),
        }
    }
}

impl Name {
    /// Whether its lease runs.
    fn runs(&self, now: Time) -> bool {
        self.document.is_some_and(|document| document.expires_at > now)
    }
}

impl Request {
    /// The hold that the command is for: it changes no document of another.
    pub(super) fn of(self) -> Hold {
        match self {
            Self::Acquire(hold)
            | Self::Renew(hold)
            | Self::Release(hold)
            | Self::Extend(hold)
            | Self::Detach { old: hold, .. }
            | Self::Resume { handle: hold, .. }
            | Self::GiveBack { hold, .. } => hold,
        }
    }

    /// The hold that has the lock after the command.
    pub(super) fn makes(self) -> Hold {
        match self {
            Self::Detach { handle, .. } | Self::GiveBack { handle, .. } => handle,
            Self::Resume { hold, .. } => hold,
            _ => self.of(),
        }
    }

    fn has_reply(self) -> bool {
        !matches!(self, Self::Release(_) | Self::GiveBack { .. } | Self::Extend(_))
    }
}

impl Detached {
    /// The place of the name that a command changes with this part.
    fn name(&self, request: Request, part: usize) -> usize {
        match request {
            Request::Detach { .. } if self.order == Order::Reverse => self.names - 1 - part,
            _ => part,
        }
    }

    fn extend(&self, at: &mut Option<Document>, id: ClaimId, now: Time) {
        if self.changed == Changed::ExtendsLikeRenewal {
            let expiry = self.extension;
            Rules { expiry, ..self.rules }.renew(at, id, now);
        } else {
            self.rules.extend(at, id, self.extension, now);
        }
    }
}

impl State {
    pub(super) fn about(&self, hold: Hold) -> &About {
        &self.holds[usize::from(hold.0)]
    }

    fn about_mut(&mut self, hold: Hold) -> &mut About {
        &mut self.holds[usize::from(hold.0)]
    }

    pub(super) fn id(&self, hold: Hold) -> ClaimId {
        self.about(hold).id
    }

    /// A new hold, with the id that the rules give it.
    pub(super) fn new_hold(&mut self, model: &Detached, origin: Origin) -> Hold {
        let number = u8::try_from(self.holds.len()).unwrap_or(u8::MAX);
        let id = match (origin, model.changed) {
            (Origin::Detached(old), Changed::DetachKeepsId) => self.id(old),
            (Origin::Resumed(handle), Changed::ResumeKeepsId) => self.id(handle),
            _ => ClaimId(number),
        };
        self.holds.push(About {
            origin,
            id,
            tokens: [0; 2],
            is_ended: false,
            won: 0,
        });
        Hold(number)
    }

    pub(super) fn send(&mut self, request: Request) {
        let tells = matches!(
            request,
            Request::Acquire(_) | Request::Renew(_) | Request::Resume { .. }
        );
        self.commands.push(Command {
            request,
            sent: if tells { self.now } else { 0 },
            begun: None,
            stage: Stage::Parts(0),
        });
    }

    /// A process ends what it waits for, or its hold.
    pub(super) fn give_up(&mut self, model: &Detached, process: usize) {
        match self.processes[process] {
            Phase::Idle => {}
            Phase::Acquiring(hold) | Phase::Holding { hold, .. } => self.send(Request::Release(hold)),
            Phase::Detaching { old, handle } => {
                self.is_disturbed = true;
                self.about_mut(handle).is_ended = true;
                for hold in [old, handle] {
                    self.send(Request::Release(hold));
                    self.owed.push(Owed::Release(hold));
                }
            }
            Phase::Resuming { handle, hold } => {
                self.is_disturbed = true;
                self.send(Request::GiveBack { hold, handle });
                if model.changed != Changed::GivesBackOnce {
                    self.owed.push(Owed::GiveBack { hold, handle });
                }
            }
        }
        self.processes[process] = Phase::Idle;
    }

    pub(super) fn release_handle(&mut self, handle: Hold) {
        self.is_disturbed = true;
        self.about_mut(handle).is_ended = true;
        self.send(Request::Release(handle));
    }

    /// The next part of a command takes effect.
    pub(super) fn run(&mut self, model: &Detached, command: Command) {
        let Stage::Parts(part) = command.stage else {
            return;
        };
        let now = command.begun.unwrap_or(self.now);
        let goes_on = self.change(model, command.request, model.name(command.request, part), now);
        let stage = if goes_on && part + 1 < model.names {
            Stage::Parts(part + 1)
        } else if !command.request.has_reply() {
            return;
        } else if model.names > 1 {
            Stage::Reads
        } else {
            Stage::Replied(self.read(command.request, now))
        };
        self.commands.push(Command { stage, ..command });
    }

    /// What a query for the id of a request finds.
    pub(super) fn read(&self, request: Request, now: Time) -> Reply {
        let (id, from) = (self.id(request.makes()), self.id(request.of()));
        let stored = self.names.iter().filter_map(|name| name.document);
        let own = stored
            .clone()
            .filter(|document| document.lock_id == LockId::Claim(id));
        let ends: Vec<Time> = own.map(|document| document.expires_at).collect();
        let comes_back = |name: &Name| {
            let is_resumed = |hold: Hold| matches!(self.about(hold).origin, Origin::Resumed(_));
            name.hold.is_some_and(is_resumed)
                || (has_id(name.document, LockId::Claim(from)) && name.runs(now))
        };
        match ends.iter().min() {
            Some(end) if ends.len() == self.names.len() => {
                let mut tokens = [0; 2];
                for (token, document) in tokens.iter_mut().zip(stored) {
                    *token = document.token;
                }
                let remaining = *end - now;
                Reply::All { remaining, tokens }
            }
            Some(_) => Reply::Some {
                is_whole: self.names.iter().all(comes_back),
            },
            None => Reply::None,
        }
    }

    /// Changes one document, and says whether the command goes on with the next one.
    fn change(&mut self, model: &Detached, request: Request, name: usize, now: Time) -> bool {
        let About { id, tokens, .. } = *self.about(request.of());
        let new = self.id(request.makes());
        let before = self.names[name];
        let at = &mut self.names[name].document;
        let rules = model.rules;
        let mut goes_on = true;
        let token = (model.changed != Changed::DetachIgnoresToken).then_some(tokens[name]);
        match request {
            Request::Acquire(_) => drop(rules.claim(at, id, now, 1)),
            Request::Renew(_) => drop(rules.renew(at, id, now)),
            Request::Release(_) => rules.release(at, id, now),
            Request::Detach { .. } => drop(rules.rename(at, (id, token), new, model.lease, now)),
            Request::GiveBack { .. } => drop(rules.rename(at, (id, None), new, model.lease, now)),
            Request::Extend(_) => model.extend(at, id, now),
            Request::Resume { .. } => {
                rules.resume(at, id, new, now);
                goes_on = has_id(*at, LockId::Claim(new)) || model.changed == Changed::Unordered;
                if let (Changed::ResumeKeepsToken, Some(after), Some(old)) =
                    (model.changed, at, before.document)
                {
                    after.token = old.token;
                }
                let had_handle = has_id(before.document, LockId::Claim(id));
                self.is_disturbed |= had_handle && !before.runs(now);
            }
        }
        if self.names[name].document != before.document {
            self.note(request, name, before, now);
        }
        goes_on
    }

    /// Notes what a change of a document means.
    fn note(&mut self, request: Request, name: usize, before: Name, now: Time) {
        let Some(after) = self.names[name].document else {
            return;
        };
        let is_for_it = before.hold == Some(request.of());
        let has_a_token = matches!(request, Request::Acquire(_) | Request::Resume { .. });
        let ends_it = matches!(request, Request::Release(_) | Request::Resume { .. }) && is_for_it;
        let wrongs = &mut self.wrongs;
        match request {
            Request::Acquire(_) => {
                // The lease of every handle is over.
                self.is_disturbed = true;
                wrongs.acquired_early |= now < before.granted;
            }
            _ => wrongs.changed_other |= !is_for_it,
        }
        wrongs.cut |= after.expires_at < before.granted && !ends_it;
        let last = before.document.map_or(0, |document| document.token);
        wrongs.token_fell |= has_a_token && after.token <= last;
        let at = &mut self.names[name];
        (at.hold, at.granted) = match request {
            Request::Acquire(_) | Request::Resume { .. } => (Some(request.makes()), 0),
            Request::Release(_) => (None, 0),
            Request::Detach { .. } | Request::GiveBack { .. } => (Some(request.makes()), after.expires_at),
            Request::Extend(_) => (before.hold, before.granted.max(after.expires_at)),
            Request::Renew(_) => (before.hold, before.granted),
        };
    }

    /// What a process does with a reply.
    pub(super) fn learn(&mut self, model: &Detached, command: Command, reply: Reply) {
        let now = self.now;
        let hold = command.request.makes();
        let awaits = |phase: &Phase| phase.awaits(command.request);
        let Some(process) = self.processes.iter().position(awaits) else {
            return;
        };
        let (deadline, tokens) = match reply {
            Reply::All { remaining, tokens } => (command.sent + remaining.min(model.rules.expiry), tokens),
            Reply::Some { .. } | Reply::None => (0, [0; 2]),
        };
        let has_all = now < deadline;
        match self.processes[process] {
            Phase::Acquiring(_) if has_all => {
                self.processes[process] = Phase::Holding { hold, deadline };
                self.about_mut(hold).tokens = tokens;
            }
            Phase::Holding {
                deadline: present, ..
            } if has_all => {
                let deadline = deadline.max(present);
                self.processes[process] = Phase::Holding { hold, deadline };
            }
            Phase::Holding { .. } => self.processes[process] = Phase::Idle,
            Phase::Detaching { .. } if matches!(reply, Reply::All { .. }) => {
                self.processes[process] = Phase::Idle;
            }
            Phase::Resuming { handle, .. } if has_all => {
                self.processes[process] = Phase::Holding { hold, deadline };
                self.about_mut(handle).won += 1;
                self.about_mut(hold).won = 1;
                self.about_mut(hold).tokens = tokens;
            }
            Phase::Resuming { handle, .. } if !matches!(reply, Reply::All { .. }) => {
                self.processes[process] = Phase::Idle;
                self.lose(model, hold, handle, reply);
            }
            _ => self.give_up(model, process),
        }
    }

    /// A process that resumes has learned that it has not got all names.
    fn lose(&mut self, model: &Detached, hold: Hold, handle: Hold, reply: Reply) {
        let keeps = match reply {
            Reply::Some { is_whole } => is_whole && model.changed != Changed::PartReleases,
            Reply::None | Reply::All { .. } => model.changed != Changed::LoserReleases,
        };
        if keeps {
            let has_part = matches!(reply, Reply::Some { .. });
            has_part.then(|| self.send(Request::GiveBack { hold, handle }));
            // A copy of its request may be late.
            let forgets = [Changed::GivesBackOnce, Changed::LoserForgets].contains(&model.changed);
            (!forgets).then(|| self.owed.push(Owed::GiveBack { hold, handle }));
            return;
        }
        self.wrongs.lost_lease |= self.is_whole(handle);
        self.about_mut(handle).is_ended = true;
        for hold in [hold, handle] {
            self.send(Request::Release(hold));
            self.owed.push(Owed::Release(hold));
        }
    }

    /// Whether the lease of a handle runs in all names, under whichever of its ids, and nobody has asked for its end.
    fn is_whole(&self, handle: Hold) -> bool {
        let origin = self.about(handle).origin;
        let is_of = |hold: Hold| {
            hold == handle
                || self.about(hold).origin == Origin::Resumed(handle)
                || origin == Origin::Detached(hold)
        };
        let is_part = |name: &Name| name.hold.is_some_and(is_of) && name.runs(self.now);
        !self.about(handle).is_ended && self.names.iter().all(is_part)
    }
}
