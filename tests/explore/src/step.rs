//! What can happen next, and that it happens.

use crate::core::{Event, FaultKind};
use crate::network::{Body, Message};
use crate::process::{Holds, Phase, Process, State, Told, Waits, mark_of};
use crate::protocol::{Document, Id, Name, News, Row, RowOrder, Then, When};
use crate::setup::{Finish, Wants};
use crate::transaction::Part;
use crate::world::{Deceived, Handle, World};

/// One step. Numbers are those of processes and callers, or places in the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Call(usize, usize),
    Leave(usize, usize),
    End(usize, usize, Finish),
    Deliver(usize),
    /// The next event of the change stream of a process.
    Hear(usize),
    Transact(usize, Part),
    Lose(usize),
    /// With whether the command may have been applied.
    Fail(usize, FaultKind, bool),
    Double(usize),
    LoseEvent(usize),
    DoubleEvent(usize),
    CloseStream(usize),
    /// The server has no change streams.
    RefuseStream(usize),
    Drain(usize),
    ShutDown(usize),
    Crash(usize),
    /// An operator releases one of the locks.
    Force(usize),
    Delete,
    TimePasses,
}

impl Step {
    /// Whether it is seldom in a random run.
    pub(crate) fn is_fault(self) -> bool {
        !matches!(
            self,
            Self::Call(..)
                | Self::End(..)
                | Self::Deliver(_)
                | Self::Hear(_)
                | Self::Transact(_, Part::Proceeds)
                | Self::TimePasses
        )
    }
}

impl World<'_> {
    pub(crate) fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        for (index, message) in self.network.iter().enumerate() {
            self.steps_of_message(index, message, &mut steps);
        }
        for (number, process) in self.alive() {
            self.steps_of_stream(number, process, &mut steps);
            self.steps_of_callers(number, process, &mut steps);
        }
        for (index, transaction) in self.transactions.iter().enumerate() {
            let parts = self.parts(transaction).into_iter();
            steps.extend(parts.map(|part| Step::Transact(index, part)));
        }
        if self.left.forced > 0 && self.deceived.is_none() {
            steps.extend((0..self.to_release().len()).map(Step::Force));
        }
        if self.left.deleted > 0 && self.to_delete().is_some() {
            steps.push(Step::Delete);
        }
        let may_pass = if self.is_quiet() {
            self.left.holds > 0 || !self.holds_any()
        } else {
            self.left.slow > 0
        };
        if may_pass && self.next_time().is_some() {
            steps.push(Step::TimePasses);
        }
        steps
    }

    fn steps_of_message(&self, index: usize, message: &Message, steps: &mut Vec<Step>) {
        let (is_command, left) = (message.is_command(), &self.left);
        if matches!(&message.body, Body::Rows(rows, ..) if self.is_blocked(rows)) {
            return;
        }
        steps.push(Step::Deliver(index));
        if matches!(message.body, Body::Watch(..)) {
            if left.refused_streams > 0 {
                steps.push(Step::RefuseStream(index));
            }
            return;
        }
        if left.lost > 0 {
            steps.push(Step::Lose(index));
        }
        if left.unclear > 0 && !message.is_copy {
            steps.push(Step::Fail(index, FaultKind::Failed, true));
        }
        if left.blocked > 0 && matches!(message.body, Body::Rows(..)) && !message.is_copy {
            steps.push(Step::Fail(index, FaultKind::Blocked, false));
        }
        if left.rejected > 0 && !message.is_copy {
            let may_be_applied = !is_command;
            steps.push(Step::Fail(index, FaultKind::Overloaded, may_be_applied));
        }
        if left.refused > 0 && is_command {
            steps.push(Step::Fail(index, FaultKind::Refused, false));
        }
        if left.refused_rows > 0
            && matches!(&message.body, Body::Rows(rows, RowOrder::StopAtMiss, _) if rows.len() > 1)
        {
            steps.push(Step::Fail(index, FaultKind::Refused, true));
        }
        if left.unsent > 0 && is_command && !message.is_copy {
            steps.push(Step::Fail(index, FaultKind::Failed, false));
        }
        if left.doubled > 0 && matches!(message.body, Body::Rows(..)) && !message.is_copy {
            steps.push(Step::Double(index));
        }
    }

    fn steps_of_stream(&self, number: usize, process: &Process, steps: &mut Vec<Step>) {
        if let Some(told) = process.events.front() {
            steps.push(Step::Hear(number));
            if self.left.lost_events > 0 && matches!(told, Told::News(_)) {
                steps.push(Step::LoseEvent(number));
            }
            if self.left.doubled_events > 0 && matches!(told, Told::News(_)) {
                steps.push(Step::DoubleEvent(number));
            }
        }
        if self.left.closed_streams > 0 && process.stream.is_some() {
            steps.push(Step::CloseStream(number));
        }
    }

    fn steps_of_callers(&self, number: usize, process: &Process, steps: &mut Vec<Step>) {
        let mut may_call = true;
        for (caller, state) in process.callers.iter().enumerate() {
            match state {
                State::Outside if std::mem::take(&mut may_call) && self.may_call(number, caller) => {
                    steps.push(Step::Call(number, caller));
                }
                State::Waits(_) if self.left.cancelled > 0 => steps.push(Step::Leave(number, caller)),
                State::Holds(_) if self.has_transaction(number, caller) => {
                    steps.push(Step::End(number, caller, Finish::Release));
                    if self.left.cancelled > 0 {
                        steps.push(Step::Leave(number, caller));
                    }
                }
                State::Holds(holds) => {
                    let options = self.setup.caller(number, caller);
                    if self.left.cancelled > 0 && options.wants == Wants::Lease {
                        steps.push(Step::Leave(number, caller));
                    }
                    let mut ends = options.ends;
                    if holds.has_committed {
                        ends = &[Finish::Release];
                    }
                    let finish = |finish: &Finish| match finish {
                        Finish::Detach if !self.may_detach(holds) => Finish::Release,
                        finish => *finish,
                    };
                    steps.extend(ends.iter().map(|own| Step::End(number, caller, finish(own))));
                }
                State::Lost(_) => steps.push(Step::End(number, caller, Finish::Release)),
                _ => {}
            }
        }
        let has_begun = process.rounds.iter().any(|round| *round > 0);
        if self.left.crashes > 0 && has_begun {
            steps.push(Step::Crash(number));
        }
        if self.left.shutdowns > 0 && has_begun && process.phase < Phase::Closed {
            steps.extend((process.phase < Phase::Draining).then_some(Step::Drain(number)));
            steps.push(Step::ShutDown(number));
        }
    }

    /// There is one handle at a time: another lease is detached when nobody can resume the one before. The permit must be
    /// known.
    fn may_detach(&self, holds: &Holds) -> bool {
        let resumes = |number: usize, caller: usize, state: &State| {
            matches!(state, State::Waits(_)) && self.setup.caller(number, caller).wants == Wants::Lease
        };
        let mut processes = self.alive();
        let is_awaited = processes.any(|(number, process)| {
            let mut callers = process.callers.iter().enumerate();
            callers.any(|(caller, state)| resumes(number, caller, state))
        });
        let is_over = |handle: &Handle| handle.is_taken || handle.is_delivered && !self.is_there(handle);
        let is_known = holds.claims.iter().all(|(_, id, _)| !id.is_empty());
        is_known && !is_awaited && self.handle.as_ref().is_none_or(is_over)
    }

    /// A lease can be resumed when its handle is known.
    fn may_call(&self, number: usize, caller: usize) -> bool {
        let is_delivered = || self.handle.as_ref().is_some_and(|handle| handle.is_delivered);
        self.setup.caller(number, caller).wants != Wants::Lease || is_delivered()
    }

    pub(crate) fn apply(&mut self, step: Step) {
        match step {
            Step::Call(number, caller) => self.call(number, caller),
            Step::Leave(number, caller) => {
                self.left.cancelled -= 1;
                self.leave(number, caller);
            }
            Step::End(number, caller, finish) => self.end(number, caller, finish),
            Step::Deliver(index) => {
                let message = self.network.remove(index);
                self.deliver(&message);
            }
            Step::Hear(number) => {
                if let Some(told) = self.process(number).events.pop_front() {
                    self.hear(number, told);
                }
            }
            Step::Transact(index, part) => self.transact(index, part),
            Step::Lose(index) => {
                self.left.lost -= 1;
                self.network.remove(index);
            }
            Step::Fail(index, kind, may_be_applied) => self.fail(index, kind, may_be_applied),
            Step::Double(index) => self.double(index),
            Step::LoseEvent(number) => {
                self.left.lost_events -= 1;
                self.process(number).events.pop_front();
            }
            Step::DoubleEvent(number) => {
                self.left.doubled_events -= 1;
                let events = &mut self.process(number).events;
                events.extend(events.front().cloned());
            }
            Step::CloseStream(number) => {
                self.left.closed_streams -= 1;
                if let Some((stream, _)) = self.processes[number].stream {
                    self.close_stream(number, stream, false);
                }
            }
            Step::RefuseStream(index) => {
                self.left.refused_streams -= 1;
                let message = &self.network[index];
                if let Body::Watch(stream, _) = message.body {
                    self.close_stream(message.process, stream, true);
                }
            }
            Step::Drain(number) => self.shut_down(number, false),
            Step::ShutDown(number) => self.shut_down(number, true),
            Step::Crash(number) => {
                self.left.crashes -= 1;
                self.crash(number);
            }
            Step::Force(place) => self.force(place),
            Step::Delete => self.delete(),
            Step::TimePasses => self.time_passes(),
        }
        self.network.sort_by_key(Message::order);
        self.judge_situation();
    }

    fn double(&mut self, index: usize) {
        self.left.doubled -= 1;
        let message = self.network[index].clone();
        self.network.push(Message {
            is_copy: true,
            ..message
        });
    }

    fn delete(&mut self) {
        self.left.deleted -= 1;
        if let Some(name) = self.to_delete() {
            self.documents.remove(&name);
            self.report(&News { name, sight: None });
        }
    }

    fn close_stream(&mut self, process: usize, number: u32, is_lasting: bool) {
        self.feed(process, Event::Closed { number, is_lasting });
    }

    /// The command ends with a fault.
    fn fail(&mut self, index: usize, kind: FaultKind, may_be_applied: bool) {
        let left = &mut self.left;
        match kind {
            FaultKind::Failed if may_be_applied => left.unclear -= 1,
            FaultKind::Blocked => left.blocked -= 1,
            FaultKind::Refused if may_be_applied => left.refused_rows -= 1,
            FaultKind::Refused => left.refused -= 1,
            FaultKind::Failed | FaultKind::Unreachable => left.unsent -= 1,
            FaultKind::Overloaded => left.rejected -= 1,
        }
        let failed = self.network[index].failed(kind, may_be_applied);
        let is_command = self.network[index].is_command();
        // One whose end is unclear may arrive later.
        if is_command && kind == FaultKind::Failed && may_be_applied {
            self.network.push(failed);
            return;
        }
        let message = self.network.remove(index);
        if let Body::Rows(rows, ..) = &message.body
            && kind == FaultKind::Refused
            && self.setup.is_refused_once
            && let [row] = &rows[..]
            && matches!(row.then, Then::End { .. })
        {
            self.refused = Some((message.process, message.flight, row.name.clone()));
        }
        if let Body::Rows(rows, ..) = &message.body
            && (kind == FaultKind::Blocked || kind == FaultKind::Refused && may_be_applied)
        {
            for row in &rows[..rows.len() - 1] {
                self.run(row);
            }
        }
        self.network.push(failed);
    }

    fn shut_down(&mut self, number: usize, is_closed: bool) {
        self.process(number).phase = if is_closed { Phase::Closed } else { Phase::Draining };
        self.left.shutdowns -= u16::from(is_closed);
        self.feed(number, Event::Shutdown { is_closed });
        let holds_any = self.processes[number].holds().next().is_some() && !self.transactions_of(number);
        self.judge
            .unless(!(is_closed && holds_any), "a hold goes on after the shutdown");
    }

    /// An operator releases the lock that was read.
    fn force(&mut self, place: usize) {
        self.left.forced -= 1;
        let (name, user) = self.to_release().swap_remove(place);
        let document = &self.documents[&name];
        let (lock_id, token) = (document.lock_id.clone(), document.token.clone());
        self.judge.is_forced(&name);
        self.deceived = user.zip(lock_id.text()).map(|(process, id)| Deceived {
            number: self.left.forced,
            process,
            name: name.clone(),
            id: id.clone(),
        });
        self.run(&Row {
            name,
            when: When::AsRead { lock_id, token },
            then: Then::Force,
        });
    }

    /// The locks that an operator may release, and the processes that rely on them: those of holds, of sets that wait for others, and of
    /// a detached lease.
    fn to_release(&self) -> Vec<(Name, Option<usize>)> {
        let user = |(name, document): (&Name, &Document)| {
            let id = document.lock_id.text()?;
            let holds = |holds: &Holds| holds.claims.iter().any(|(_, own, _)| own == id);
            let mark = Id::parse(id).map(Id::mark);
            let waits = |number, waits: &Waits| waits.names.contains(name) && mark == Some(mark_of(number));
            let has_it = |(number, process): &(usize, &Process)| {
                process.holds().any(holds)
                    || process
                        .waits()
                        .any(|own| waits(*number, own) && own.names.len() > 1)
            };
            let user = self.alive().find(has_it).map(|(number, _)| number);
            let is_lease = self.handle.as_ref().is_some_and(|handle| handle.has(name, id));
            (user.is_some() || is_lease).then(|| (name.clone(), user))
        };
        let documents = self.documents.iter();
        let held = documents.filter(|(_, document)| !document.is_free(self.ms(), self.setup.margin));
        held.filter_map(user).collect()
    }
}
