//! One situation: the server, the network, the processes, and the faults that are left.

use std::rc::Rc;
use std::time::Duration;

use crate::hash::fingerprint;
use crate::judge::{Judge, Longest};
use crate::lease::EndOfHold;
use crate::network::{Body, Event, Failure, Message};
use crate::process::{Caller, Cx, Kept, Process};
use crate::server::Server;
use crate::setup::{Faults, Setup};
use crate::step::Step;
use crate::time::{Instant, set_luck};
use crate::timing::SLOW_REPLY;

/// A command takes effect within this time, or never.
const LATEST: Duration = Duration::from_secs(85);

#[derive(Clone)]
pub(crate) struct World {
    now: Instant,
    pub(crate) server: Server,
    pub(crate) network: Vec<Message>,
    pub(crate) processes: Vec<Rc<Kept>>,
    faults: Faults,
    judge: Judge,
    longest: Longest,
    /// The number of events of the change stream.
    events: u32,
}

impl World {
    pub(crate) fn new(setup: &Setup) -> Self {
        Self {
            now: Instant::BEGINNING,
            server: Server::new(),
            network: Vec::new(),
            processes: (0..setup.processes)
                .map(|index| Rc::new(Kept::new(Process::new(index, setup))))
                .collect(),
            faults: setup.faults,
            judge: Judge::new(setup),
            longest: Longest::default(),
            events: 0,
        }
    }

    pub(crate) fn breach(&self) -> Option<&'static str> {
        self.judge.found()
    }

    pub(crate) fn longest(&self) -> Longest {
        self.longest
    }

    pub(crate) fn now(&self) -> Duration {
        self.now.since_beginning()
    }

    /// Makes the time and the tokens of this situation those that hashes are relative to.
    fn enter(&self) {
        self.now.set_present();
        self.server.token.set_last();
    }

    pub(crate) fn fingerprint(&self) -> u64 {
        self.enter();
        let of_process = |process: &Rc<Kept>| process.fingerprint(self.server.token);
        let processes: Vec<u64> = self.processes.iter().map(of_process).collect();
        fingerprint(&(&self.server, &self.network, &self.faults, &self.judge, processes))
    }

    /// Everything that may happen next.
    pub(crate) fn steps(&self, setup: &Setup) -> Vec<Step> {
        self.enter();
        let mut steps = Vec::new();
        for (index, message) in self.network.iter().enumerate() {
            if !self.is_overtaking(message) {
                steps.push(Step::Deliver(index));
                self.faults_of(index, message, &mut steps);
            }
        }
        let is_first = self.processes.iter().all(|process| process.is_new());
        // At the beginning the processes are alike.
        let processes = if is_first { 1 } else { self.processes.len() };
        for (index, process) in self.processes[..processes].iter().enumerate() {
            if process.is_alive {
                self.steps_of(setup, index, process, &mut steps);
            }
        }
        if self.time_may_pass() {
            steps.push(Step::TimePasses);
        }
        steps
    }

    /// Whether an event would arrive before an earlier one.
    fn is_overtaking(&self, message: &Message) -> bool {
        let is_earlier = |other: &Message| {
            matches!(other.body, Body::Event(_)) && other.process == message.process && other.no < message.no
        };
        matches!(message.body, Body::Event(_)) && self.network.iter().any(is_earlier)
    }

    fn faults_of(&self, index: usize, message: &Message, steps: &mut Vec<Step>) {
        if self.faults.lost > 0 {
            steps.push(Step::Lose(index));
        }
        for (failure, left) in [
            (Failure::Unclear, self.faults.unclear),
            (Failure::Blocked, self.faults.blocked),
        ] {
            if left > 0 && message.failed(failure).is_some() {
                steps.push(Step::Fail(index, failure));
            }
        }
        let is_claim = matches!(message.body, Body::Claim { is_echo: false, .. });
        if self.faults.unclear > 0 && is_claim {
            steps.push(Step::Cut(index));
        }
        if self.faults.repeated > 0 && is_claim && self.now - message.sent >= SLOW_REPLY {
            steps.push(Step::Repeat(index));
        }
    }

    fn steps_of(&self, setup: &Setup, index: usize, process: &Process, steps: &mut Vec<Step>) {
        let mut may_call = true;
        for (caller, state) in process.callers.iter().enumerate() {
            match state {
                // Idle callers of one process are alike, except for their last one.
                Caller::Idle if may_call || caller + 1 == setup.callers => {
                    may_call = false;
                    steps.push(Step::Call(index, caller));
                }
                Caller::Waits(_) if self.faults.cancelled > 0 => steps.push(Step::Cancel(index, caller)),
                Caller::Holds(_) | Caller::Lost(_) => {
                    steps.push(Step::End(index, caller, EndOfHold::Awaited));
                    if setup.unawaited && matches!(state, Caller::Holds(_)) {
                        steps.push(Step::End(index, caller, EndOfHold::Unawaited));
                    }
                }
                _ => {}
            }
        }
        if self.faults.crashes > 0 && !process.is_new() {
            steps.push(Step::Crash(index));
        }
        if self.faults.stopped_streams > 0 && process.notifier.reports() {
            steps.push(Step::StopStream(index));
        }
    }

    /// Whether a caller has a hold that it has not ended.
    fn is_held(&self) -> bool {
        let holds = |caller: &Caller| matches!(caller, Caller::Holds(_) | Caller::Lost(_));
        self.alive().flat_map(|process| &process.callers).any(holds)
    }

    fn time_may_pass(&self) -> bool {
        let may_pass = if self.network.is_empty() {
            !self.is_held() || self.faults.holds > 0
        } else {
            self.faults.slow > 0
        };
        may_pass && self.next_time().is_some()
    }

    fn alive(&self) -> impl Iterator<Item = &Process> {
        let processes = self.processes.iter().map(|process| &***process);
        processes.filter(|process| process.is_alive)
    }

    fn next_time(&self) -> Option<Instant> {
        self.alive().filter_map(Process::next_time).min()
    }

    /// Does one step, and judges the situation after it.
    pub(crate) fn apply(&mut self, setup: &Setup, step: Step, luck: f64) {
        self.enter();
        set_luck(luck);
        match step {
            Step::Call(process, caller) => self.run(setup, process, |own, cx| own.call(cx, caller)),
            Step::Cancel(process, caller) => {
                self.faults.cancelled -= 1;
                self.run(setup, process, |own, cx| own.cancel(cx, caller));
            }
            Step::End(process, caller, end) => {
                self.run(setup, process, |own, cx| own.end_hold(cx, caller, end));
            }
            Step::Deliver(index) => {
                let message = self.network.remove(index);
                self.deliver(setup, message);
            }
            Step::Lose(index) => {
                self.faults.lost -= 1;
                self.network.remove(index);
            }
            Step::Fail(index, failure) => self.fail(index, failure),
            Step::Cut(index) => {
                self.faults.unclear -= 1;
                let failed = self.network[index].failed(Failure::Unclear);
                self.add_echo(index);
                self.network.extend(failed);
                self.network.remove(index);
            }
            Step::Repeat(index) => {
                self.faults.repeated -= 1;
                self.add_echo(index);
            }
            Step::StopStream(index) => self.stop_stream(setup, index),
            Step::Crash(index) => self.crash(index),
            Step::TimePasses => self.time_passes(setup),
        }
        self.network.sort_unstable();
        self.server.token.set_last();
        let longest = self.judge.judge(setup, &self.processes, &self.server);
        self.longest = self.longest.max(longest);
    }

    /// Judges the end, when no step is left.
    pub(crate) fn judge_end(&mut self) {
        self.enter();
        self.judge.judge_end(&self.processes, &self.server);
    }

    /// One event of a process, and everything that follows in it.
    fn run(&mut self, setup: &Setup, process: usize, event: impl FnOnce(&mut Process, &mut Cx<'_>)) {
        if !self.processes[process].is_alive {
            return;
        }
        let process = Rc::make_mut(&mut self.processes[process]).change();
        let mut cx = Cx {
            setup,
            server: &mut self.server,
            network: &mut self.network,
            judge: &mut self.judge,
        };
        event(process, &mut cx);
        process.settle(&mut cx);
        if process.next_time().is_some_and(|at| at <= Instant::now()) {
            self.judge.breach("a timer is due again at once");
        }
    }

    fn deliver(&mut self, setup: &Setup, message: Message) {
        let (process, no) = (usize::from(message.process), message.no);
        if let Body::Claimed(Ok(_) | Err(Failure::Blocked)) | Body::Released(Ok(_)) | Body::Looked(Ok(_)) =
            message.body
        {
            self.judge.answered(message.process, message.sent);
        }
        match message.body {
            Body::Claim { .. } | Body::Release(_) | Body::Look => self.serve(message),
            Body::Claimed(reply) => self.run(setup, process, |own, cx| own.claimed(cx, no, Some(reply))),
            Body::Released(reply) => self.run(setup, process, |own, cx| own.release_replied(cx, no, reply)),
            Body::Looked(reply) => self.run(setup, process, |own, cx| own.look_replied(cx, no, reply)),
            Body::Event(event) => self.run(setup, process, |own, cx| own.note_event(cx, event)),
        }
    }

    /// A command arrives at the server.
    fn serve(&mut self, message: Message) {
        let (body, event) = self.server.apply(message.body);
        if !matches!(message.body, Body::Claim { is_echo: true, .. }) {
            self.network.push(Message { body, ..message });
        }
        let Some(event) = event else { return };
        for process in self.processes.iter().filter(|process| process.is_alive) {
            let is_own = process.index == message.process;
            let is_sent = !is_own || event == Event::Released;
            if is_sent && process.notifier.reports() && !process.is_done() {
                self.events += 1;
                self.network.push(Message {
                    process: process.index,
                    no: self.events,
                    sent: self.now,
                    body: Body::Event(event),
                });
            }
        }
    }

    fn fail(&mut self, index: usize, failure: Failure) {
        match failure {
            Failure::Unclear => self.faults.unclear -= 1,
            Failure::Blocked => self.faults.blocked -= 1,
        }
        if let Some(failed) = self.network[index].failed(failure) {
            self.network[index] = failed;
        }
    }

    /// The same command arrives once more, and no process reads its reply.
    fn add_echo(&mut self, index: usize) {
        let mut echo = self.network[index];
        if let Body::Claim { is_echo, .. } = &mut echo.body {
            *is_echo = true;
        }
        self.network.push(echo);
    }

    fn stop_stream(&mut self, setup: &Setup, index: usize) {
        self.faults.stopped_streams -= 1;
        let process = self.processes[index].index;
        self.network
            .retain(|message| message.process != process || !matches!(message.body, Body::Event(_)));
        self.run(setup, index, |own, _| own.stop_stream());
    }

    fn crash(&mut self, index: usize) {
        self.faults.crashes -= 1;
        let process = Rc::make_mut(&mut self.processes[index]).change();
        process.is_alive = false;
        process.callers.fill(Caller::Done);
        let of_process = process.index;
        // Its commands may still arrive.
        self.network
            .retain(|message| message.process != of_process || message.is_command());
    }

    fn time_passes(&mut self, setup: &Setup) {
        let Some(next) = self.next_time() else { return };
        if !self.network.is_empty() {
            self.faults.slow -= 1;
        } else if self.is_held() {
            self.faults.holds -= 1;
        }
        self.now = next.max(self.now);
        self.now.set_present();
        let now = self.now;
        self.network
            .retain(|message| !message.is_command() || now - message.sent < LATEST);
        for process in 0..self.processes.len() {
            if self.processes[process].next_time().is_some_and(|at| at <= now) {
                self.run(setup, process, |own, _| own.close_renewer());
            }
        }
    }
}
