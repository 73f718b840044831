//! Sends each command to the store that there is: MongoDB, memory, or the server of the simulation.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use mongodb::ClientSession;
use mongodb::bson::DateTime;
use tokio::sync::watch;
use tokio::time::Instant;

use super::look::running;
use super::mongo::millis;
use super::sending::{Sending, Waits};
use super::{
    AdmissionClass, Admissions, Begin, DocumentStream, GuardChange, GuardOutcome, IndexCheck, IndexState,
    Lane, LeaseId, LockFilter, LockStream, Looked, MongoStore, ProviderMark, Ran, RunningLeases, Selected,
    Store, StreamFilter, WaiterEntry, WaitersByName, driver_error,
};
use crate::error::failure::Failure;
use crate::few::Few;
use crate::meter::CommandKind;
use crate::options::TtlOptions;
use crate::protocol::{Name, Order, Row, Sight};
#[cfg(test)]
use crate::task::{with_reply_limit, within};
use crate::{LockError, permit_id};

/// Sends a command by its kind, with the time for which it waits for the reply. The method of a store has the name and the
/// values of the command; those that wait for a server get the limit as well.
macro_rules! send {
    // A hint about waiters, which is admitted here.
    ($store:ident, Line within $limit:ident, $command:ident($($value:expr),*)) => {{
        let _admission = $store.admissions().admit(AdmissionClass::Line, None).await;
        send!(@ $store, run_within($limit, CommandKind::Line), $command($($value),*), [$limit],
            |link| link.$command($($value),*).await)
    }};
    // An operator's command. It may come after a shutdown, and has no faults in the simulation.
    ($store:ident, $command:ident($($value:expr),*)) => {
        send!(@ $store, run_always(CommandKind::Admin), $command($($value),*), [],
            |link| Ok(link.memory().$command($($value),*)))
    };
    (@ $store:ident, $run:ident($($how:expr),*), $command:ident($($value:expr),*), [$($limit:ident)?],
        |$link:ident| $simulated:expr) => {
        match $store {
            // The command is pinned here, because each function that took it by value would double its size.
            Self::Mongo(store) => {
                let command = pin!(store.$command($($value,)* $($limit)?));
                store.gate.$run($($how,)* command).await
            }
            Self::Memory(store) => Ok(store.$command($($value),*)),
            #[cfg(test)]
            Self::Simulated($link) => $simulated,
        }
    };
}

impl Store {
    /// The store on a server; `None` in memory and in the simulation.
    fn mongo(&self) -> Option<&MongoStore> {
        match self {
            Self::Mongo(store) => Some(store),
            Self::Memory(_) => None,
            #[cfg(test)]
            Self::Simulated(_) => None,
        }
    }

    /// Counts the requests in a command that several calls have in common.
    pub(super) fn count_gathered(&self, kind: CommandKind, requests: usize) {
        if let Some(store) = self.mongo() {
            store.gate.gathered(kind, requests);
        }
    }

    /// Ends every command and stream at the end of a shutdown, and the client if no other provider uses it. After this
    /// only an operator's commands are sent.
    pub(crate) async fn close(&self) {
        if let Some(store) = self.mongo() {
            store.close().await;
        }
    }

    /// The error of every call, if the store cannot have locks.
    pub(crate) fn check(&self) -> Result<(), LockError> {
        self.mongo().map_or(Ok(()), |store| store.gate.check())
    }

    /// Whether the store was closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.mongo().is_some_and(|store| store.gate.is_closed())
    }

    /// What admits the commands on the client.
    pub(crate) fn admissions(&self) -> &Arc<Admissions> {
        match self {
            Self::Mongo(store) => store.servers.admissions(),
            Self::Memory(store) => &store.admissions,
            #[cfg(test)]
            Self::Simulated(link) => &link.admissions,
        }
    }

    /// Whether every command ends at once: then a request needs no task, because it cannot be cut off half-way.
    pub(crate) fn never_waits(&self) -> bool {
        matches!(self, Self::Memory(_))
    }

    /// Whether the application may use the connections as well: the client is its own.
    pub(crate) fn shares_pool(&self) -> bool {
        self.mongo().is_some_and(MongoStore::shares_pool)
    }

    /// The error of a request without a reply.
    pub(crate) fn no_reply(&self, request: &str, waited: Duration) -> LockError {
        if self.overloaded_for().is_some() {
            let request = request.to_owned();
            return Failure::Overloaded { request, waited }.into_error();
        }
        LockError::no_reply(request, waited)
    }

    /// [`Self::no_reply`] of a call that ends with it, with what the driver has said about its connections.
    pub(crate) fn unanswered(&self, request: &str, waited: Duration) -> LockError {
        match self.mongo() {
            Some(store) if self.overloaded_for().is_none() => {
                store.servers.unanswered(request, waited).into_error()
            }
            _ => self.no_reply(request, waited),
        }
    }

    /// Whether a primary replies; `false` if only another member of a replica set does.
    pub(crate) async fn hello(&self) -> Result<bool, LockError> {
        let Some(store) = self.mongo() else {
            return Ok(true);
        };
        let asking = pin!(store.hello());
        store.gate.run_always(CommandKind::Hello, asking).await
    }

    /// Why the last release was refused for good; `None` after one that has ended a claim.
    pub(crate) fn refused_release(&self) -> Option<LockError> {
        self.mongo()?.refused_release()
    }

    /// The refusal of the last acquire or renewal, for a missing right or a wrong password, or of every call; `None` if it was
    /// not refused.
    pub(crate) fn refusal(&self) -> Option<LockError> {
        self.mongo()?.refusal()
    }

    /// Finds out whether the server still refuses acquires, if it has refused the last acquire or renewal.
    pub(crate) async fn ask_again(&self) {
        if let Some(store) = self.mongo()
            && store.refusal().is_some()
        {
            let asking = pin!(store.ask_again());
            // The store notes the outcome.
            let _ = store.gate.run(CommandKind::Acquire, asking).await;
        }
    }

    /// Whether a request may have taken effect: before the first connection of a client none has.
    pub(crate) fn has_been_connected(&self) -> bool {
        self.mongo().is_none_or(|store| store.servers.has_been_ready())
    }

    /// The time at which the server last confirmed a write; `None` without a server.
    pub(crate) fn last_confirmed(&self) -> Option<Instant> {
        self.mongo()?.last_confirmed()
    }

    /// The lane of the requests for locks that can become one command with others of this store.
    pub(crate) fn lane(&self) -> Option<Lane> {
        let of = |place: *const ()| Some(Lane(place.addr()));
        match self {
            Self::Mongo(store) => of(std::ptr::from_ref(store).cast()),
            Self::Memory(_) => None,
            #[cfg(test)]
            Self::Simulated(link) => of(Arc::as_ptr(link).cast()),
        }
    }

    /// For how long the server has rejected commands of this provider for overload; `None` if it has rejected none lately.
    pub(crate) fn overloaded_for(&self) -> Option<Duration> {
        self.admissions().overload().duration()
    }

    /// Notes what the outcome of a command of a call says about the server. It was sent at this time.
    pub(crate) fn note<T>(&self, sent: Instant, outcome: &Result<T, LockError>) {
        self.admissions().note(sent, outcome);
    }

    /// Runs these rows. An error of the query alone that follows an update is the inner one.
    pub(super) async fn run(&self, sending: Sending, rows: &Few<Row>, order: Order, limit: Duration) -> Ran {
        let sent = Instant::now();
        let tells_each = sending.tells_each;
        let ran = match self {
            // The command is pinned here, because each function that took it by value would double its size.
            Self::Mongo(store) => {
                let command = pin!(store.run(rows, order, limit, tells_each));
                match sending.waits {
                    Waits::Reply => store.gate.run(sending.kind, command).await,
                    Waits::Limit => store.gate.run_within(limit, sending.kind, command).await,
                    Waits::Always => return store.gate.run_always(sending.kind, command).await,
                }
            }
            Self::Memory(store) => Ok(Ok(store.run_at_once(rows, order))),
            #[cfg(test)]
            Self::Simulated(link) => {
                let command = link.run(sending, rows, order, limit);
                match sending.waits {
                    Waits::Reply => with_reply_limit(command).await,
                    Waits::Limit => within(limit, command).await,
                    Waits::Always => return Ok(Ok(link.memory().run_at_once(rows, order))),
                }
            }
        };
        if sending.pauses {
            self.noted_claim(sent, ran)
        } else {
            self.noted(sent, ran)
        }
    }

    /// Looks which of these locks are held, with one query that changes nothing. The caller has the admission, and may drop
    /// the future: nothing depends on the reply.
    pub(crate) async fn look(
        &self,
        looked: Looked<'_>,
        takeover_margin: Duration,
        limit: Duration,
    ) -> Result<RunningLeases, LockError> {
        let (sent, margin) = (Instant::now(), millis(takeover_margin));
        let seen = match self {
            Self::Mongo(store) => {
                let looking = pin!(store.look(looked, limit));
                store.gate.run_within(limit, CommandKind::Look, looking).await
            }
            Self::Memory(store) => Ok(store.look(looked)),
            #[cfg(test)]
            Self::Simulated(link) => within(limit, link.look(looked, margin, limit)).await,
        };
        if seen.as_ref().is_err_and(LockError::is_rejection) {
            self.admissions().begin_pause();
        }
        Ok(running(self.noted(sent, seen)?, margin))
    }

    /// [`Self::note`], with the outcome.
    fn noted<T>(&self, sent: Instant, outcome: Result<T, LockError>) -> Result<T, LockError> {
        self.note(sent, &outcome);
        outcome
    }

    /// [`Self::noted`] of a claim, whose inner error is that of the query about it. One that was rejected keeps its place for the
    /// pause before the next one.
    fn noted_claim<T>(
        &self,
        sent: Instant,
        outcome: Result<Result<T, LockError>, LockError>,
    ) -> Result<Result<T, LockError>, LockError> {
        let error = match &outcome {
            Ok(queried) => queried.as_ref().err(),
            Err(error) => Some(error),
        };
        self.note(sent, &error.map_or(Ok(()), |error| Err(error.clone())));
        if error.is_some_and(LockError::is_rejection) {
            self.admissions().begin_pause();
        }
        outcome
    }

    /// What stands in handles for the locks of this store.
    pub(crate) fn home(&self) -> String {
        match self {
            Self::Mongo(store) => store.locks.namespace().to_string(),
            Self::Memory(store) => store.id.clone(),
            #[cfg(test)]
            Self::Simulated(link) => link.memory().id.clone(),
        }
    }

    /// Whether there are transactions that could have a guarding statement.
    pub(crate) fn has_transactions(&self) -> bool {
        self.mongo().is_some()
    }

    /// Guards a commit: it changes the documents of these claims, those of one lease, within the session's transaction. If
    /// that fails, a second command finds the reason.
    pub(crate) async fn guard(
        &self,
        keys: &[LeaseId],
        change: GuardChange,
        session: &mut ClientSession,
    ) -> Result<GuardOutcome, LockError> {
        let Some(store) = self.mongo() else {
            return Err(LockError::NoTransaction {
                name: permit_id::shown(&keys[0].name).to_owned(),
                reason: "the lock is in memory, and only MongoDB has transactions".to_owned(),
            });
        };
        let guarding = pin!(store.guard(keys, change, session));
        let sent = Instant::now();
        self.noted(sent, store.gate.count(CommandKind::Commit, guarding).await)
    }

    /// Begins the transaction of the session at the server, without a change.
    pub(crate) async fn begin_transaction(&self, session: &mut ClientSession) -> mongodb::error::Result<()> {
        match self.mongo() {
            Some(store) => store.begin_transaction(session).await.map(drop),
            None => Ok(()),
        }
    }

    /// Checks the index that removes the documents of unused locks, and creates it if it is missing. It sends several
    /// commands, none of which can delay those of others by more than a second.
    pub(crate) async fn ensure_index(&self, wanted: TtlOptions) -> IndexCheck {
        match self {
            Self::Mongo(store) => {
                let checking = async { Ok(store.ensure_index(wanted).await) };
                let checked = store.gate.run_always(CommandKind::Index, pin!(checking)).await;
                checked.unwrap_or_else(|error| IndexState::unknown(&error).into())
            }
            Self::Memory(_) => IndexState::Ready.into(),
            #[cfg(test)]
            Self::Simulated(link) => link.ensure_index().await.into(),
        }
    }

    /// How often the collection was dropped or renamed, as far as streams have told it.
    pub(crate) fn collection_ends(&self) -> watch::Sender<u64> {
        self.mongo()
            .map_or_else(|| watch::Sender::new(0), |store| store.ends.clone())
    }

    /// Reads the state of that index. It sends two commands that read.
    pub(crate) async fn inspect_index(&self, wanted: TtlOptions) -> IndexState {
        let Some(store) = self.mongo() else {
            return IndexState::Ready;
        };
        let reading = async { Ok(store.inspect_index(wanted).await) };
        let read = store.gate.run_always(CommandKind::Index, pin!(reading)).await;
        read.unwrap_or_else(|error| IndexState::unknown(&error))
    }

    /// Reads documents for operators: a page of those after this name, at most so many, and the last name if others follow it.
    pub(super) async fn select(
        &self,
        selected: Selected<'_>,
        after: Option<&str>,
        limit: Option<u32>,
    ) -> Result<(Vec<(Name, Sight)>, Option<Name>), LockError> {
        send!(self, select(selected, after, limit))
    }

    /// The time of the server's clock.
    pub(crate) async fn server_time(&self) -> Result<DateTime, LockError> {
        send!(self, server_time())
    }

    /// Opens a stream of the changes of documents, for operators.
    pub(crate) async fn document_changes(
        &self,
        filter: &LockFilter,
        begin: Begin,
        ends_at_present: bool,
    ) -> Result<DocumentStream, LockError> {
        match self.mongo() {
            Some(store) => store.document_changes(filter, begin, ends_at_present).await,
            None => Err(driver_error::no_streams()),
        }
    }

    /// Opens the stream of the releases and deletions of these locks.
    pub(crate) async fn watch(&self, filter: StreamFilter) -> Result<LockStream, LockError> {
        match self {
            Self::Mongo(store) => store.watch(filter).await,
            Self::Memory(store) => Ok(store.watch(filter)),
            #[cfg(test)]
            Self::Simulated(link) => {
                let hints = link.watch().await?;
                Ok(LockStream::simulated(hints, filter))
            }
        }
    }

    /// Enters the lines of these names, or moves to their ends, with one command. A new place is later than the last known one
    /// of its line, and never earlier than the one that the provider has.
    pub(crate) async fn move_to_end(
        &self,
        entries: &[WaiterEntry],
        limit: Duration,
    ) -> Result<(), LockError> {
        send!(self, Line within limit, move_to_end(entries))
    }

    /// Keeps the documents of a provider for another while; it writes no document that was removed.
    pub(crate) async fn prolong_waits(
        &self,
        provider: &ProviderMark,
        names: &[Arc<str>],
        limit: Duration,
    ) -> Result<(), LockError> {
        send!(self, Line within limit, prolong_waits(provider, names))
    }

    /// Removes the documents of a provider for these names. It must follow all earlier writes of these documents.
    pub(crate) async fn leave_lines(
        &self,
        provider: &ProviderMark,
        names: &[Arc<str>],
        limit: Duration,
    ) -> Result<(), LockError> {
        send!(self, Line within limit, leave_lines(provider, names))
    }

    /// The lines of these names, with one query.
    pub(crate) async fn lines(
        &self,
        names: &[Arc<str>],
        limit: Duration,
    ) -> Result<WaitersByName, LockError> {
        send!(self, Line within limit, lines(names))
    }

    /// Checks the indexes of the documents of waiters, and has those built that are missing.
    pub(crate) async fn ensure_waiters_indexes(&self) -> IndexState {
        let Some(store) = self.mongo() else {
            return IndexState::Ready;
        };
        let checking = async { Ok(store.ensure_waiters_indexes().await) };
        let checked = store.gate.run(CommandKind::Index, pin!(checking)).await;
        checked.unwrap_or_else(|error| IndexState::unknown(&error))
    }
}
