//! Runs that begin with a hold whose claim has been sent twice.

use crate::setup::{Finish, Start};
use crate::step::Step;
use crate::world::World;

impl World<'_> {
    pub(crate) fn started(mut self) -> Self {
        if self.setup.start == Start::Plain {
            return self;
        }
        self.left.slow = u16::MAX;
        self.apply(Step::Call(0, 0));
        while self.network.len() < 2 {
            self.apply(Step::TimePasses);
        }
        self.settle();
        self.left = self.setup.faults;
        if self.setup.start == Start::Freed {
            // Another process has it until it ends; then the late copy gets the lock, and its reply is lost.
            self.apply(Step::Force(0));
            self.apply(Step::Call(1, 0));
            self.settle();
            self.apply(Step::End(1, 0, Finish::Release));
            self.settle();
            self.apply(Step::Deliver(0));
            self.network.retain(|message| !message.is_reply());
            self.settle();
        }
        self
    }

    /// All that is on its way arrives, except for the late claim.
    fn settle(&mut self) {
        loop {
            let index = self.network.iter().position(|message| !self.is_late(message));
            let told = self
                .processes
                .iter()
                .position(|process| !process.events.is_empty());
            match (index, told) {
                (Some(index), _) => self.apply(Step::Deliver(index)),
                (None, Some(number)) => self.apply(Step::Hear(number)),
                (None, None) => return,
            }
        }
    }
}
