//! Equal situations are equal states.

use super::{Command, Detached, Hold, Name, Owed, Phase, Request, Stage, State};
use crate::protocol::LockId;

impl State {
    /// The ids that a document has, or may get. Each bit is one.
    fn possible_ids(&self) -> u64 {
        let bit = |hold: Hold| 1_u64 << self.id(hold).0;
        let id_of = |name: &Name| match name.document?.lock_id {
            LockId::Claim(id) => Some(1_u64 << id.0),
            LockId::Released | LockId::Done(_) => None,
        };
        let mut ids = self.names.iter().filter_map(id_of).fold(0, |ids, id| ids | id);
        let mut steps: Vec<(u64, u64)> = Vec::new();
        let mut may = |request: Request| match request {
            Request::Acquire(hold) => ids |= bit(hold),
            Request::Detach { .. } | Request::Resume { .. } | Request::GiveBack { .. } => {
                steps.push((bit(request.of()), bit(request.makes())));
            }
            Request::Renew(_) | Request::Release(_) | Request::Extend(_) => {}
        };
        let is_command = |command: &&Command| matches!(command.stage, Stage::Parts(_));
        let commands = self.commands.iter().filter(is_command);
        commands.for_each(|command| may(command.request));
        self.processes
            .iter()
            .copied()
            .filter_map(Phase::request)
            .for_each(&mut may);
        self.owed.iter().for_each(|owed| may(owed.request()));
        loop {
            let more = steps.iter().filter(|(from, _)| ids & from != 0);
            let more = more.fold(ids, |ids, (_, to)| ids | to);
            if more == ids {
                return ids;
            }
            ids = more;
        }
    }

    /// Forgets what can have no effect any more, and orders the rest: equal situations are then equal states.
    pub(super) fn tidy(&mut self, model: &Detached) {
        let now = self.now;
        for phase in &mut self.processes {
            // A lease that is over stays over.
            if matches!(phase, Phase::Holding { deadline, .. } if *deadline <= now) {
                *phase = Phase::Idle;
            }
        }
        if model.lease.min_hold == 0 {
            let documents = self.names.iter_mut().filter_map(|name| name.document.as_mut());
            documents.for_each(|document| document.acquired_at = 0);
        }
        let ids = self.possible_ids();
        let (holds, processes) = (&self.holds, &self.processes);
        let is_possible = |hold: Hold| ids & 1 << holds[usize::from(hold.0)].id.0 != 0;
        self.commands.retain(|command| {
            let is_awaited = processes.iter().any(|phase| phase.awaits(command.request));
            match (command.stage, command.request) {
                (Stage::Parts(_), Request::Acquire(_)) => true,
                (Stage::Parts(_), request) => is_awaited || is_possible(request.of()),
                (Stage::Reads | Stage::Replied(_), _) => is_awaited,
            }
        });
        self.owed.retain(|owed| match owed {
            Owed::GiveBack { hold, .. } | Owed::Release(hold) => is_possible(*hold),
        });
        self.owed.sort_unstable();
        self.owed.dedup();
        self.commands.sort_unstable();
        self.processes.sort_unstable();
    }
}
