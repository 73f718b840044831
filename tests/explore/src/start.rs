//! Runs that begin with a command that is late, or with the lease of a process that has ended.

use crate::setup::{Finish, Start};
use crate::step::Step;
use crate::world::World;

impl World<'_> {
    pub(crate) fn started(mut self) -> Self {
        if self.setup.start == Start::Plain {
            return self;
        }
        (self.left.slow, self.left.holds, self.left.crashes) = (u16::MAX, u16::MAX, 1);
        let first = usize::from(self.setup.start == Start::Crashed);
        self.apply(Step::Call(first, 0));
        match self.setup.start {
            Start::Plain | Start::Copied | Start::Freed => self.wins_by_copy(),
            Start::Crashed => {
                self.settle();
                self.apply(Step::Crash(1));
            }
            Start::Left => {
                while self.waits_any() {
                    self.loses_all_but_late();
                    self.apply(Step::TimePasses);
                }
            }
            Start::Renewing => {
                self.settle();
                let until = |world: &Self| world.processes[0].holds().map(|holds| holds.until).min();
                while self.next_time() < until(&self) {
                    self.apply(Step::TimePasses);
                    self.loses_all_but_late();
                }
            }
        }
        self.left = self.setup.faults;
        if self.setup.start == Start::Freed {
            self.is_freed();
        }
        self
    }

    /// The first claim has no reply, and its copy gets the lock.
    fn wins_by_copy(&mut self) {
        while self.network.len() < 2 {
            self.apply(Step::TimePasses);
        }
        self.settle();
    }

    /// Another process has the lock until it ends; then the late claim gets the lock, and its reply is lost.
    fn is_freed(&mut self) {
        self.apply(Step::Force(0));
        self.apply(Step::Call(1, 0));
        self.settle();
        self.apply(Step::End(1, 0, Finish::Release));
        self.settle();
        self.apply(Step::Deliver(0));
        self.network.retain(|message| !message.is_reply());
        self.settle();
    }

    fn loses_all_but_late(&mut self) {
        let is_late: Vec<bool> = self.network.iter().map(|message| self.is_late(message)).collect();
        let mut is_late = is_late.into_iter();
        self.network.retain(|_| is_late.next().unwrap_or_default());
    }

    /// All that is on its way arrives, except for the late claim.
    fn settle(&mut self) {
        loop {
            let index = self.network.iter().position(|message| !self.is_late(message));
            let mut processes = self.processes.iter();
            let told = processes.position(|process| !process.events.is_empty());
            match (index, told) {
                (Some(index), _) => self.apply(Step::Deliver(index)),
                (None, Some(number)) => self.apply(Step::Hear(number)),
                (None, None) => return,
            }
        }
    }
}
