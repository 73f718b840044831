//! The cases of single locks.

use crate::core::MS;
use crate::setup::Start;

use super::{List, ONE, TWO, parts};

impl List {
    pub(super) fn locks(&mut self) {
        let few = "lock, lock | lock deadline | lock try | lock lock lock";
        let longer = "late*3 | hold*3 | deleted hold*2 | lost-event hold*4";
        self.each(few, &[ONE, TWO, longer]);
        let many = "lock lock, lock lock | lock try, lock try | lock deadline, lock deadline | \
            lock, lock, lock";
        self.each(many, &["| crash | lost | cancel"]);
        // A claim may arrive after its last release; one with a long lease is released once more after that.
        for processes in ["lock", "lock lock"] {
            for is_in_limit in [false, true] {
                let case = self.add(processes, "late*8 cancel");
                case.setup.has_ghosts = !is_in_limit;
                // One that arrives within the server's limit after its end in the process is released after that.
                if is_in_limit {
                    case.name.push_str(" within its limit");
                    case.setup.latest = None;
                }
            }
        }
        self.each("lock-long | lock-long lock-long", &["late*8 cancel"]);
        // The same when its caller has left, and nothing else is late.
        self.begun(Start::Left, "long-deadline", "late");
        let case = self.begun(Start::Left, "lock-deadline", "late");
        case.name.push_str(" within its limit");
        case.setup.latest = None;
    }

    /// A claim that goes from the second call to the third one: that of the first call has one token only, because nobody waited when
    /// it was sent.
    pub(super) fn hand_overs(&mut self) {
        let processes = "lock lock lock, lock | lock lock kept | period period period | \
            lock-least lock-least lock-least | ab ab ab";
        self.each(processes, &["| hold*2 | cancel"]);
        // The fourth call comes in another period.
        self.each("period period period period", &["hold*3"]);
        self.each("commit commit commit", &["abort | unclear | cancel"]);
    }

    /// The server rejects commands because of its load.
    pub(super) fn rejections(&mut self) {
        let rejected = "rejected | rejected*3 | rejected*2 hold*2 | rejected*2 cancel | rejected lost | \
            rejected*2 unclear | rejected late*2";
        // Both go together then, and the command may take effect after each has gone alone.
        self.add("a b", "rejected unclear");
        let processes = "lock, lock | lock deadline | lock try | lock lock, lock lock";
        self.each(processes, &[rejected]);
    }

    /// The server refuses commands for good, or they fail before they are sent.
    pub(super) fn refusals(&mut self) {
        let processes = "lock, lock | lock deadline | lock lock lock | ab, b | kept, kept | \
            permit1, permit1 | detach, resume | detach-ab, resume | done, done";
        for processes in parts(processes) {
            for faults in ["refused", "unsent*2"] {
                // A release that is refused leaves the lock until the lease ends.
                self.add(processes, faults).setup.has_ghosts = faults == "refused";
            }
        }
        // A release that has failed is repeated: nobody waits until the long lease ends.
        self.each("lock-long, lock | lock-long lock", &["unsent"]);
        // What the command has changed before is known to no caller.
        self.each(
            "ab, b | ab, ab | ab, a, b | detach-ab, resume | done-ab, done-ab",
            &["refused-row | refused-row cancel"],
        );
    }

    /// Holds that are renewed for a bounded time, and callers with different options.
    pub(super) fn options_of_holds(&mut self) {
        let bounded = "lock-short-most, lock-short | ab-short-most, b | permit1-short-most, permit1";
        self.each(bounded, &["hold*6"]);
        self.each("lock period", &["hold*2"]);
    }

    /// A lock stays taken for a while after a lease that was not released.
    pub(super) fn margins(&mut self) {
        let processes = "lock-short, lock-short lock-short-try | ab-short, b-short | \
            permit1-short, permit1-short";
        for processes in parts(processes) {
            for faults in parts("crash | lost*2 hold*5 | forced hold*2") {
                let case = self.add(processes, faults);
                case.name.push_str(" margin");
                case.setup.margin = 1000;
            }
        }
    }

    /// There is no change stream: none may be used, or the server has none.
    pub(super) fn without_streams(&mut self) {
        let processes = "lock, lock | lock lock, lock try | ab, b | permit1, permit1 | \
            permit2 permit2, permit2";
        for processes in parts(processes) {
            for faults in parts("hold*3 | lost hold | crash hold | refused-stream hold*3") {
                let case = self.add(processes, faults);
                if !faults.starts_with("refused") {
                    case.name.push_str(" no stream");
                    case.setup.may_listen = false;
                }
                // Without a stream a call asks after a second at most.
                case.setup.most_free = case.setup.most_free.max(1100 * MS);
            }
        }
    }

    /// Renewals are lost, and replies come late.
    pub(super) fn leases_that_end(&mut self) {
        let faults = "lost*2 late hold*5 | late*4 hold | doubled late*3 hold | crash late hold*2";
        self.each("lock-short, lock-short", &[faults]);
        // A copy of the claim wins, with less time left than that between two renewals.
        self.add("lock-short", "lost hold*2");
        // A renewal arrives when the lease is over for its holder.
        self.begun(Start::Renewing, "lock-short", "hold");
        self.begun(Start::Renewing, "lock-short", "hold late");
    }

    /// An operator releases the lock while a copy of the holder's claim is on its way.
    pub(super) fn forced_releases(&mut self) {
        for (start, faults) in [
            (Start::Plain, ""),
            (Start::Plain, " late*3"),
            (Start::Plain, " lost late*2"),
            (Start::Plain, " cancel late*2"),
            (Start::Copied, ""),
            (Start::Copied, " lost"),
            (Start::Copied, " cancel"),
            (Start::Freed, ""),
            (Start::Freed, " lost"),
        ] {
            let processes = "lock-short, lock-short | lock-short lock-short, lock-short | \
                lock-short, lock-short lock-short";
            for processes in parts(processes) {
                let case = self.begun(start, processes, &format!("forced hold*4{faults}"));
                case.setup.has_ghosts = start != Start::Plain;
            }
        }
    }

    /// The same before a hold ends in another way.
    pub(super) fn forced_before_the_end(&mut self) {
        // A mark finds the late claim, which has the lock with other tokens.
        self.begun(Start::Freed, "kept, kept", "forced").setup.has_ghosts = true;
        let processes = "kept, kept | period, period | detach, resume | lock-least, lock-least";
        let faults = "forced hold*2 | forced lost hold*2 | forced late*2 hold";
        self.each(processes, &[faults]);
        // A release that was never applied is no earlier one.
        self.each("lock, lock", &["forced unsent | forced rejected"]);
    }

    /// The same for sets, also for one that waits, for permits and for detached leases.
    pub(super) fn forced_releases_of_several(&mut self) {
        let processes = "ab, b | ab ab | ab-short, b | detach-ab, b | permit1, permit1 | \
            permit1-short permit1-short | permit2, permit2 permit2 | detach, resume";
        self.each(processes, &["forced hold*4 | forced lost hold"]);
        // The set waits for the end of a minimum hold, and loses its first lock meanwhile.
        self.add("ab-short, b-least", "forced");
        self.add("detach-ab", "forced");
    }
}
