//! What can happen next, and that it happens.

use crate::core::{Event, FaultKind};
use crate::network::{Body, Message};
use crate::process::{Phase, Process, State, Told};
use crate::protocol::{News, Row, Then, When};
use crate::setup::{Finish, Wants};
use crate::transaction::Part;
use crate::world::World;

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
    Fail(usize, FaultKind),
    Double(usize),
    LoseEvent(usize),
    DoubleEvent(usize),
    CloseStream(usize),
    ShutDown(usize),
    Crash(usize),
    Force,
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
        if self.left.forced > 0 && self.to_release().is_some() {
            steps.push(Step::Force);
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
            return;
        }
        if left.lost > 0 {
            steps.push(Step::Lose(index));
        }
        if left.unclear > 0 && !message.is_copy {
            steps.push(Step::Fail(index, FaultKind::Unclear));
        }
        if left.blocked > 0 && matches!(message.body, Body::Rows(..)) && !message.is_copy {
            steps.push(Step::Fail(index, FaultKind::Blocked));
        }
        if left.rejected > 0 && !message.is_copy {
            let may_be_applied = !is_command;
            steps.push(Step::Fail(index, FaultKind::Overloaded { may_be_applied }));
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
                    let ends = self.setup.caller(number, caller).ends;
                    let ends = if holds.has_committed {
                        &[Finish::Release]
                    } else {
                        ends
                    };
                    steps.extend(ends.iter().map(|finish| Step::End(number, caller, *finish)));
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
            steps.push(Step::ShutDown(number));
        }
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
            Step::Fail(index, kind) => self.fail(index, kind),
            Step::Double(index) => {
                self.left.doubled -= 1;
                let message = self.network[index].clone();
                self.network.push(Message {
                    is_copy: true,
                    ..message
                });
            }
            Step::LoseEvent(number) => {
                self.left.lost_events -= 1;
                self.process(number).events.pop_front();
            }
            Step::DoubleEvent(number) => {
                self.left.doubled_events -= 1;
                let events = &mut self.process(number).events;
                events.extend(events.front().cloned());
            }
            Step::CloseStream(number) => self.close_stream(number),
            Step::ShutDown(number) => self.shut_down(number),
            Step::Crash(number) => {
                self.left.crashes -= 1;
                self.crash(number);
            }
            Step::Force => self.force(),
            Step::Delete => {
                self.left.deleted -= 1;
                if let Some(name) = self.to_delete() {
                    self.documents.remove(&name);
                    self.report(&News { name, sight: None });
                }
            }
            Step::TimePasses => self.time_passes(),
        }
        self.network.sort_by_key(Message::order);
        self.judge_situation();
    }

    fn close_stream(&mut self, number: usize) {
        self.left.closed_streams -= 1;
        let process = self.process(number);
        process.stream = None;
        process.events.clear();
        self.network
            .retain(|message| message.process != number || !matches!(message.body, Body::Watch(..)));
        self.feed(number, Event::Closed { is_lasting: false });
    }

    /// The command ends with a fault.
    fn fail(&mut self, index: usize, kind: FaultKind) {
        let left = &mut self.left;
        match kind {
            FaultKind::Unclear => left.unclear -= 1,
            FaultKind::Blocked => left.blocked -= 1,
            _ => left.rejected -= 1,
        }
        let failed = self.network[index].failed(kind);
        let is_command = self.network[index].is_command();
        // One whose end is unclear may arrive later.
        if is_command && kind == FaultKind::Unclear {
            self.network.push(failed);
            return;
        }
        let message = self.network.remove(index);
        if let Body::Rows(rows, ..) = &message.body
            && kind == FaultKind::Blocked
        {
            for row in &rows[..rows.len() - 1] {
                self.run(row);
            }
        }
        self.network.push(failed);
    }

    fn shut_down(&mut self, number: usize) {
        let process = self.process(number);
        let is_closed = process.phase == Phase::Draining;
        process.phase = if is_closed { Phase::Closed } else { Phase::Draining };
        self.left.shutdowns -= u16::from(is_closed);
        self.feed(number, Event::Shutdown { is_closed });
        let holds_any = self.processes[number].holds().next().is_some() && !self.transactions_of(number);
        self.judge
            .unless(!(is_closed && holds_any), "a hold goes on after the shutdown");
    }

    /// An operator releases the lock that was read.
    fn force(&mut self) {
        self.left.forced -= 1;
        self.deceived = self.to_release();
        let Some(document) = self.documents.get("n") else {
            return;
        };
        let (lock_id, token) = (document.lock_id.clone(), document.token.clone());
        self.run(&Row {
            name: "n".into(),
            when: When::AsRead { lock_id, token },
            then: Then::Force,
        });
    }
}
