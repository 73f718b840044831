//! A command that is repeated until it has a reply, by copies on tasks of their own: no caller drops one that was sent.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::renewer::Renewer;
use crate::backoff::Backoff;
use crate::moment::Luck;
use crate::store::driver_error::{self, Refusals};
use crate::store::{AdmissionClass, Store};
use crate::timing::{MARK_NO_REPLY, MARK_OVERDUE, RELEASE_REPLY_LIMIT};
use crate::{LockError, task};

/// A command that may be repeated.
pub(crate) trait Command: Send + Sync + 'static {
    type Reply: Send + 'static;

    fn send(&self, store: &Store) -> impl Future<Output = Result<Self::Reply, LockError>> + Send;

    /// Notes that a copy is sent.
    fn sent(&self) {}

    /// Notes how the copy has ended that was sent then; `None` without a reply.
    fn ended(
        &self,
        _renewer: &Arc<Renewer>,
        _sent: Instant,
        _reply: Option<&Result<Self::Reply, LockError>>,
    ) {
    }
}

/// The copies of one command.
pub(crate) struct Requests<'a, C: Command> {
    renewer: &'a Arc<Renewer>,
    command: Arc<C>,
    outcomes: UnboundedReceiver<Option<Result<C::Reply, LockError>>>,
    sender: UnboundedSender<Option<Result<C::Reply, LockError>>>,
    /// Among which commands of the provider the next copy is admitted.
    class: AdmissionClass,
}

impl<'a, C: Command> Requests<'a, C> {
    pub(super) fn new(renewer: &'a Arc<Renewer>, command: C) -> Self {
        let (sender, outcomes) = unbounded_channel();
        Self {
            renewer,
            command: Arc::new(command),
            outcomes,
            sender,
            class: AdmissionClass::Release,
        }
    }

    /// Sends a copy, and returns the next reply to any of them; `None` if it is overdue.
    async fn next(&mut self) -> Option<Result<C::Reply, LockError>> {
        let store = self.renewer.store();
        let admission = tokio::select! {
            biased;
            Some(Some(reply)) = self.outcomes.recv() => return Some(reply),
            admission = store.admissions().admit(self.class, None) => admission,
        };
        // Repetitions may wait for a blocked document, and must not use up the places of releases.
        self.class = AdmissionClass::RepeatedRelease;
        let (renewer, command) = (Arc::clone(self.renewer), Arc::clone(&self.command));
        let sender = self.sender.clone();
        command.sent();
        let sending = async move {
            let sent = Instant::now();
            // By then the server has ended the command.
            let reply = task::reply_within(MARK_NO_REPLY, command.send(renewer.store())).await;
            drop(admission);
            command.ended(&renewer, sent, reply.as_ref());
            // No caller waits for the replies that come after the first good one.
            let _ = sender.send(reply);
        };
        drop(task::spawn_for_caller(sending));
        let overdue = Instant::now() + MARK_OVERDUE;
        loop {
            let outcome = timeout_at(overdue, self.outcomes.recv()).await.ok()??;
            if outcome.is_some() {
                return outcome;
            }
        }
    }

    /// The first reply until the time that `end` returns, which may move, and whether a copy before it may have taken effect
    /// without one. `failed` is called after each error, and if a reply is overdue.
    pub(super) async fn reply(
        &mut self,
        request: &str,
        end: impl Fn() -> Instant,
        mut failed: impl FnMut(&LockError, Duration),
    ) -> Result<(C::Reply, bool), LockError> {
        let store = self.renewer.store();
        if store.never_waits() {
            return self.command.send(store).await.map(|reply| (reply, false));
        }
        let begun = Instant::now();
        let mut backoff = Backoff::new(Duration::from_millis(20)..=Duration::from_secs(1));
        let mut refusals = Refusals::default();
        let (mut last_error, mut is_repetition) = (None, false);
        loop {
            let by = end();
            if by <= Instant::now() {
                let no_reply = || store.no_reply(request, begun.elapsed());
                return Err(last_error.unwrap_or_else(no_reply));
            }
            let (error, pause) = match timeout_at(by, self.next()).await {
                Ok(Some(Ok(reply))) => return Ok((reply, is_repetition)),
                Ok(Some(Err(error))) => {
                    is_repetition |= !driver_error::was_not_applied(&error);
                    (error, backoff.next(Luck::draw()))
                }
                Ok(None) => {
                    is_repetition = true;
                    (store.no_reply(request, MARK_OVERDUE), Duration::ZERO)
                }
                Err(_) => continue,
            };
            failed(&error, pause);
            if refusals.end(Instant::now(), &error) || driver_error::is_closed(&error) {
                return Err(error);
            }
            // A copy that was rejected for overload has kept no place of a release.
            if error.is_rejection() {
                self.class = AdmissionClass::Release;
            }
            if !driver_error::is_no_reply(&error) {
                last_error = Some(error);
            }
            // It does not return before the end: callers take an earlier error for a refusal for good.
            sleep_until((Instant::now() + pause).min(end())).await;
        }
    }
}

/// Sends a command until it has a reply, for [`RELEASE_REPLY_LIMIT`] at most.
pub(crate) async fn reply<C: Command>(
    renewer: &Arc<Renewer>,
    command: C,
    request: &str,
) -> Result<(C::Reply, bool), LockError> {
    let end = Instant::now() + RELEASE_REPLY_LIMIT;
    Requests::new(renewer, command)
        .reply(request, || end, |_, _| ())
        .await
}
