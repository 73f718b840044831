//! The line of one name: what `line/mod.rs` and `keeper.rs` of the library do. A write of a document and the query after it take
//! no time here.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

#[path = "../../../../mongolock/src/line/line.rs"]
#[allow(dead_code, reason = "only a part of the library is explored")]
mod of_name;
#[path = "../../../../mongolock/src/line/order.rs"]
#[allow(dead_code, reason = "only a part of the library is explored")]
mod order;

use of_name::{Line, Write};

use crate::hash::ByText;
use crate::process::{Caller, Cx, Process};
use crate::queue::Rivals;
use crate::setup::Setup;
use crate::time::Instant;
use crate::timing::{LINE_CHECK, LINE_MARGIN, LINE_SLOT_POLLING, LINE_SLOTS_MAX};

thread_local! {
    static IS_IN_USE: Cell<bool> = const { Cell::new(false) };
}

/// What uses a name in a process: the library keeps a weak reference to its queue.
#[derive(Debug, Clone)]
pub(crate) struct User {
    is_in_use: fn() -> bool,
}

impl User {
    fn new() -> Self {
        Self {
            is_in_use: || IS_IN_USE.get(),
        }
    }

    fn strong_count(&self) -> usize {
        usize::from((self.is_in_use)())
    }
}

/// An acquisition by this provider.
pub(crate) struct OwnAcquisition {
    pub(crate) waiting_since: Option<Instant>,
    pub(crate) user: User,
    pub(crate) has_stream: bool,
}

/// What a waiter knows of its place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Standing {
    pub(crate) ahead: usize,
    pub(crate) time_slots: Duration,
    pub(crate) polling_pause: Duration,
    pub(crate) yields_until: Option<Instant>,
}

/// `Lines`, for one name.
#[derive(Clone, Hash, Default)]
pub(crate) struct Lines {
    line: ByText<Option<Line>>,
    round_trip: Duration,
    /// The time at which all lines are checked next, since the name has no user.
    checked: Option<Instant>,
}

impl Lines {
    pub(crate) fn has_line(&self) -> bool {
        self.line.is_some()
    }

    /// The next time at which the keeper has something to do.
    pub(crate) fn next_time(&self, is_in_use: bool) -> Option<Instant> {
        let line = self.line.as_ref()?;
        line.check_at().or(self.checked.filter(|_| !is_in_use))
    }

    /// `Lines::note_round_trip`.
    pub(crate) fn note_round_trip(&mut self, setup: &Setup, request: Duration) {
        if setup.has_line {
            let (before, request) = (self.round_trip, request.min(LINE_SLOTS_MAX));
            self.round_trip = if before.is_zero() {
                request
            } else {
                (before * 7 + request) / 8
            };
        }
    }
}

/// `keeper::time_slot`.
fn time_slot(has_stream: bool, round_trip: Duration) -> Duration {
    let hearing = if has_stream {
        LINE_MARGIN
    } else {
        LINE_SLOT_POLLING
    };
    hearing + round_trip * 2
}

impl Process {
    /// `Entry::waiting_since`.
    pub(crate) fn waiting_since(&self) -> Option<Instant> {
        let begun = |caller: &usize| match &self.callers[*caller] {
            Caller::Waits(call) => Some(call.begun),
            _ => None,
        };
        self.queue.waiting.iter().filter_map(begun).min()
    }

    /// `Lines::enter`.
    pub(crate) fn enter_line(&mut self, cx: &mut Cx<'_>, begun: Instant) {
        let has_stream = self.notifier.expects_stream();
        if let Some(line) = &mut *self.lines.line {
            line.set_user(User::new());
            return;
        }
        if cx.setup.has_line {
            let mut line = Line::new(User::new(), has_stream);
            line.want_move(Some(begun));
            self.lines.line = ByText(Some(line));
            self.write_line(cx);
        }
    }

    /// `Lines::acquired`. A name that is acquired again soon after its release is not looked at.
    pub(crate) fn line_acquired(&mut self, cx: &mut Cx<'_>, request: Duration) {
        if !self.lines.has_line() {
            return;
        }
        let acquired = OwnAcquisition {
            waiting_since: self.waiting_since(),
            user: User::new(),
            has_stream: self.notifier.reports(),
        };
        self.lines.note_round_trip(cx.setup, request);
        if let Some(line) = &mut *self.lines.line {
            line.acquired(acquired);
        }
        self.write_line(cx);
    }

    /// `Lines::released`.
    pub(crate) fn line_released(&mut self, now: Instant) {
        if let Some(line) = &mut *self.lines.line {
            line.released(now);
        }
    }

    /// `Lines::waiter_left`.
    pub(crate) fn line_waiter_left(&mut self) {
        if let Some(line) = &mut *self.lines.line {
            line.may_be_idle(Instant::now());
        }
    }

    /// `Lines::standing`.
    pub(crate) fn standing(&self) -> Option<Standing> {
        let line = self.lines.line.as_ref()?;
        Some(line.standing(Instant::now()))
    }

    /// `Lines::waits`.
    pub(crate) fn line_waits(&mut self, cx: &mut Cx<'_>, since: Instant) -> Option<Standing> {
        let (now, expects_stream) = (Instant::now(), self.notifier.expects_stream());
        let line = self.lines.line.as_mut()?;
        let is_polling_new = !expects_stream && line.note_polling();
        let is_written = line.note_wait(now, since) || is_polling_new;
        let standing = line.standing(now);
        if is_written {
            self.write_line(cx);
        }
        Some(standing)
    }

    /// `Lines::held_by`.
    pub(crate) fn line_held_by(&mut self, id: &Arc<str>) {
        let is_own = id
            .split_once('#')
            .is_some_and(|(process, _)| process == &*self.mark());
        if let Some(line) = &mut *self.lines.line
            && !is_own
        {
            line.held_by(Instant::now(), id);
        }
    }

    /// `Lines::found_held`.
    pub(crate) fn line_found_held(&mut self, setup: &Setup, id: Option<&Arc<str>>, request: Duration) {
        self.lines.note_round_trip(setup, request);
        if let Some(id) = id {
            self.line_held_by(id);
        }
    }

    /// `Lines::rivals`.
    pub(crate) fn rivals(&self) -> Rivals {
        let of_line = |line: &Line| line.rivals(Instant::now());
        self.lines.line.as_ref().map_or(Rivals::Unknown, of_line)
    }

    /// `pacing::yields_until`.
    pub(crate) fn yields_until(&self) -> Option<Instant> {
        let line = self.lines.line.as_ref()?;
        line.standing(Instant::now()).yields_until
    }

    /// `keeper::write`.
    fn write_line(&mut self, cx: &mut Cx<'_>) {
        let mark = self.mark();
        let Some(line) = &mut *self.lines.line else { return };
        while let Some(write) = line.take_write() {
            match write {
                Write::Place(place) => {
                    let time_slot = time_slot(line.has_stream(), self.lines.round_trip);
                    cx.server.place(&mark, time_slot, place.is_kept);
                    line.read(&cx.server.line, &mark);
                }
                Write::Leave => {
                    cx.server.leave(&mark);
                    if line.has_user() {
                        line.want_move(None);
                    } else if !line.wants_write() {
                        self.lines.line = ByText(None);
                        self.lines.checked = None;
                        return;
                    }
                }
            }
        }
    }

    /// `Lines::read`.
    pub(crate) fn read_line(&mut self, cx: &Cx<'_>) {
        let mark = self.mark();
        if let Some(line) = &mut *self.lines.line {
            line.read(&cx.server.line, &mark);
        }
    }

    /// `Lines::check`, and the time at which all lines are checked.
    pub(crate) fn run_keeper(&mut self, cx: &mut Cx<'_>) -> bool {
        let (now, is_in_use) = (Instant::now(), self.is_in_use());
        let Some(line) = &mut *self.lines.line else {
            return false;
        };
        IS_IN_USE.set(is_in_use);
        if is_in_use {
            self.lines.checked = None;
        } else if line.check_at().is_none() && self.lines.checked.is_none() {
            self.lines.checked = Some(now + LINE_CHECK);
        }
        let is_due = line.check_at().or(self.lines.checked).is_some_and(|at| at <= now);
        if is_due {
            self.lines.checked = None;
            line.leave_if_idle(now);
            self.write_line(cx);
        }
        is_due
    }
}
