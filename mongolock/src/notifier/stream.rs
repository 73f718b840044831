//! The task that reads the change stream and wakes waiters by its events.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::cost::StreamReply;
use super::{NotifierState, ReleaseNotifier};
use crate::backoff::Backoff;
use crate::moment::Luck;
use crate::protocol::News;
use crate::store::{LockStream, StreamFilter, driver_error};
use crate::sync::lock;
use crate::timing::{LINE_FAR, LINE_FAR_PAUSE, STREAM_IDLE, STREAM_REPLY, STREAM_UNAVAILABLE};
use crate::{LockError, permit_id, trace};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamState {
    Closed,
    Open,
    /// The server has no change streams or does not allow them; the stream is not opened again before this time.
    Unavailable(Instant),
    /// The stream costs more than it brings; it is not opened again before this time.
    TooCostly(Instant),
    /// Wake-ups are switched off, or the provider is shut down; the stream is never opened again.
    Off,
}

impl StreamState {
    /// Whether there is a stream, or one is opened for the next waiter.
    pub(super) fn is_expected(self) -> bool {
        matches!(self, Self::Open | Self::Closed)
    }

    pub(super) fn is_too_costly(self) -> bool {
        matches!(self, Self::TooCostly(_))
    }
}

impl ReleaseNotifier {
    /// Starts the task that opens the stream, unless it runs or the stream is not available at this time. It is called
    /// whenever a waiter rests, so that no task has to exist while the stream is unavailable.
    pub(super) fn ensure_stream(self: &Arc<Self>, state: &mut NotifierState) {
        let may_open = match state.stream {
            StreamState::Closed | StreamState::Open => true,
            StreamState::Unavailable(until) | StreamState::TooCostly(until) => until <= Instant::now(),
            StreamState::Off => false,
        };
        if may_open && state.stream_task.as_ref().is_none_or(JoinHandle::is_finished) {
            state.stream_task = Some(crate::task::spawn(run(Arc::clone(self))));
        }
    }

    /// Notes a reply of the stream, and the locks that it reports from now on and from now on no more.
    pub(super) fn note_reply(self: &Arc<Self>, filter: &StreamFilter) {
        let mut state = lock(&self.state);
        state.last_reply = Instant::now();
        if state.filter.present() != filter {
            let before = state.filter.set(filter.clone());
            // A waiter that came during the change may rely on the filter before it.
            self.outdate(&mut state, |name| filter.admits(name) != before.admits(name));
        }
    }

    /// Notes that a stream was opened. A release of one of its locks before that is not known.
    pub(super) fn opened(self: &Arc<Self>, filter: &StreamFilter) {
        let mut state = lock(&self.state);
        state.filter.set(filter.clone());
        state.cost.opened(Instant::now());
        self.set_stream(&mut state, StreamState::Open);
        self.lines.reread();
    }

    /// Changes the state of the stream. What happens to its locks at this time may not be known.
    pub(super) fn set_stream(self: &Arc<Self>, state: &mut NotifierState, stream: StreamState) {
        if state.stream != StreamState::Off {
            state.stream = stream;
        }
        state.last_reply = Instant::now();
        let filter = state.filter.present().clone();
        self.outdate(state, |name| filter.admits(name));
    }

    fn outdate(self: &Arc<Self>, state: &mut NotifierState, is_concerned: impl Fn(&str) -> bool) {
        state.waiters.outdate(is_concerned);
        if !state.waiters.is_empty() {
            self.reschedule(state);
        }
    }

    /// Notes an event of the stream, and returns whether it concerns a waiter or a line.
    fn note_event(self: &Arc<Self>, news: &News) -> bool {
        let name = &news.name;
        let awaited = permit_id::awaited(name);
        let is_permit = *awaited != **name;
        match news.holder() {
            None if is_permit => self.released(&Arc::from(awaited)),
            None => self.released(name),
            // Other permits may be free: only the order of the waiters has changed.
            Some(holder) if is_permit => self.lines.held_by(&Arc::from(awaited), holder).is_in_line,
            Some(holder) => self.acquired(name, holder),
        }
    }

    /// The filter to which the stream is to be changed now.
    fn due_switch(&self, stream: &LockStream) -> Option<StreamFilter> {
        let state = &mut *lock(&self.state);
        if stream.is_switching() {
            return None;
        }
        let now = Instant::now();
        let filter = state
            .filter
            .due_switch(now, &state.waiters, || self.lines.names());
        if filter.is_some() {
            state.filter.begin_switch(now);
        }
        filter
    }

    /// Notes that the stream could not be opened, and returns whether the task tries again soon.
    pub(super) fn retries_after(self: &Arc<Self>, error: &LockError) -> bool {
        trace::wake_up_failed(error);
        let is_unavailable = driver_error::is_unavailable_stream(error);
        if is_unavailable {
            let pause = Luck::draw().spread(STREAM_UNAVAILABLE);
            let unavailable = StreamState::Unavailable(Instant::now() + pause);
            self.set_stream(&mut lock(&self.state), unavailable);
        }
        !is_unavailable
    }

    /// Has the waiters poll for this time, after which the next one that rests opens the stream again.
    pub(super) fn poll_instead(self: &Arc<Self>, pause: Duration) {
        let too_costly = StreamState::TooCostly(Instant::now() + pause);
        self.set_stream(&mut lock(&self.state), too_costly);
    }

    /// How long to poll instead of reading the stream, if it costs more than it brings.
    fn polling_pause(&self, reply: StreamReply) -> Option<Duration> {
        let state = &mut *lock(&self.state);
        let pause = state
            .cost
            .polling_pause(Instant::now(), reply, state.waiters.len())?;
        Some(Luck::draw().spread(pause))
    }

    /// Whether all waiters stand far back in their lines, so that they need to hear of each release only after a pause.
    fn is_far_back(&self) -> bool {
        let state = lock(&self.state);
        let is_far = |name: &Arc<str>| {
            let standing = self.lines.standing(name);
            standing.is_some_and(|standing| standing.ahead >= LINE_FAR)
        };
        let waiters = state.waiters.len();
        // With many names one of them is near the front anyway.
        (1..=LINE_FAR).contains(&waiters) && state.waiters.names().all(is_far)
    }

    /// Closes the stream if there was no waiter for a while, and returns whether the task ends; the next waiter starts
    /// another one.
    fn close_if_idle(&self) -> bool {
        let mut state = lock(&self.state);
        if state.stream == StreamState::Off {
            return true;
        }
        let idle =
            state.waiters.is_empty() && self.lines.is_empty() && state.last_used.elapsed() >= STREAM_IDLE;
        if idle {
            state.stream = StreamState::Closed;
            state.stream_task = None;
        }
        idle
    }
}

async fn run(notifier: Arc<ReleaseNotifier>) {
    let pauses = Duration::from_millis(100)..=Duration::from_secs(10);
    let mut backoff = Backoff::new(pauses.clone());
    loop {
        let filter = {
            let state = &mut *lock(&notifier.state);
            state
                .filter
                .at_opening(Instant::now(), &state.waiters, &notifier.lines.names())
        };
        match notifier.store.watch(filter).await {
            Ok(stream) => {
                notifier.opened(stream.filter());
                let opened = Instant::now();
                match follow(&notifier, stream).await {
                    Ok(End::Idle) => return,
                    Ok(End::TooCostly(pause)) => {
                        trace::stream_costs_too_much(pause);
                        return notifier.poll_instead(pause);
                    }
                    Err(error) => trace::wake_up_failed(&error),
                }
                notifier.set_stream(&mut lock(&notifier.state), StreamState::Closed);
                if opened.elapsed() > *pauses.end() {
                    backoff = Backoff::new(pauses.clone());
                }
            }
            Err(error) if !notifier.retries_after(&error) => return,
            Err(_) => {}
        }
        if notifier.close_if_idle() {
            return;
        }
        tokio::time::sleep(backoff.next(Luck::draw())).await;
    }
}

/// Why a stream that works is closed.
enum End {
    /// There are no waiters any more.
    Idle,
    /// It costs more than it brings, and the waiters poll for this time.
    TooCostly(Duration),
}

/// Wakes waiters by the releases of an open stream.
async fn follow(notifier: &Arc<ReleaseNotifier>, mut stream: LockStream) -> Result<End, LockError> {
    let mut has_paused = false;
    loop {
        let (asked, was_switching) = (Instant::now(), stream.is_switching());
        let event = stream.next().await?;
        notifier.note_reply(stream.filter());
        let reply = match event {
            Some(event) if notifier.note_event(&event) => StreamReply::Use,
            Some(_) => StreamReply::Useless,
            None if was_switching => StreamReply::Switched,
            None => StreamReply::Empty {
                after: asked.elapsed(),
            },
        };
        if notifier.close_if_idle() {
            return Ok(End::Idle);
        }
        if asked.elapsed() >= STREAM_REPLY {
            // The reply after a pause has several events, and only the first of them is known here: the place is an old one.
            has_paused = !has_paused && notifier.is_far_back();
            if has_paused {
                tokio::time::sleep(LINE_FAR_PAUSE).await;
            }
        }
        if stream.costs_the_server()
            && let Some(pause) = notifier.polling_pause(reply)
        {
            return Ok(End::TooCostly(pause));
        }
        if let Some(filter) = notifier.due_switch(&stream)
            && let Err(error) = stream.switch_to(filter).await
        {
            // The change is tried again.
            trace::switch_failed(&error);
        }
    }
}
