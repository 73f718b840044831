//! Sends each command to the store that there is: MongoDB, memory, or the server of the simulation.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use mongodb::ClientSession;
use mongodb::bson::DateTime;
use tokio::sync::watch;
use tokio::time::Instant;

use super::look::held_permits;
use super::{
    AcquireReply, AcquireRequest, Admission, AdmissionClass, Admissions, Begin, ClaimEnd, ClaimItem, Claimed,
    Detachment, DocumentStream, Extended, GuardChange, GuardOutcome, HeldPermits, HoldsOf, IndexCheck,
    IndexState, Lane, LeaseId, LockFilter, LockInfo, LockStream, Looked, MarkReply, MarkRequest, MongoStore,
    Outcomes, Page, ProviderMark, ReleaseItem, RenewReply, RunningLeases, SeenHold, Store, StreamFilter,
    TakenOrDamaged, WaiterEntry, WaitersByName, driver_error,
};
use crate::error::failure::Failure;
use crate::few::Few;
use crate::meter::CommandKind;
use crate::options::TtlOptions;
#[cfg(test)]
use crate::task::{with_reply_limit, within};
use crate::timing::RELEASE_LIMIT;
use crate::{FencingToken, LockError, permit_id};

/// Sends a command by its kind, with the time for which it waits for the reply. The method of a store has the name and the
/// values of the command; those that wait for a server get the limit as well.
macro_rules! send {
    // The caller gives the reply up, or the connection counts as dead.
    ($store:ident, $kind:ident, $command:ident($($value:expr),*), $limit:ident) => {
        send!(@ $store, run(CommandKind::$kind), $command($($value),*), [$limit],
            |link| with_reply_limit(link.$command($($value,)* $limit)).await)
    };
    // A hint about waiters, which is admitted here.
    ($store:ident, Line within $limit:ident, $command:ident($($value:expr),*)) => {{
        let _admission = $store.admissions().admit(AdmissionClass::Line, None).await;
        send!(@ $store, run_within($limit, CommandKind::Line), $command($($value),*), [$limit],
            |link| link.$command($($value),*).await)
    }};
    // The server ends the command at the limit.
    ($store:ident, $kind:ident within $limit:ident, $command:ident($($value:expr),*)) => {
        send!(@ $store, run_within($limit, CommandKind::$kind), $command($($value),*), [$limit],
            |link| within($limit, link.$command($($value,)* $limit)).await)
    };
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

    /// Takes those of these locks that are free. Several keys have one id in common and different names: one command claims
    /// their locks, and a query finds out which of them the claims have. Repeating it with the same keys is harmless. An
    /// error of the query alone is the inner one. A claim that was admitted together with others goes in one command with
    /// them.
    pub(crate) async fn claim(
        &self,
        keys: &Few<LeaseId>,
        request: AcquireRequest,
        limit: Duration,
        admission: Admission,
    ) -> Result<Claimed, LockError> {
        let _admission = match admission.into_member() {
            Ok(member) => {
                let key = keys[0].clone();
                // It is on the heap, so that the task of a claim alone has no room for it.
                return Box::pin(self.together(member, ClaimItem { key, request }, limit)).await;
            }
            Err(admission) => admission,
        };
        self.claim_alone(keys, request, limit).await
    }

    /// [`Self::claim`] with a command of its own.
    pub(super) async fn claim_alone(
        &self,
        keys: &Few<LeaseId>,
        request: AcquireRequest,
        limit: Duration,
    ) -> Result<Claimed, LockError> {
        let sent = Instant::now();
        self.noted_claim(sent, send!(self, Acquire, claim(keys, request), limit))
    }

    /// Takes those of these locks that are free, for different calls.
    pub(super) async fn claim_each(
        &self,
        items: &[ClaimItem],
        limit: Duration,
    ) -> Result<Outcomes<AcquireReply>, LockError> {
        let sent = Instant::now();
        self.noted_claim(sent, send!(self, Acquire, claim_each(items), limit))
    }

    /// Renews these claims, each for its expiry. If not all of them have their locks, a second command finds out which do.
    pub(crate) async fn renew(
        &self,
        claims: &[(LeaseId, Duration)],
        limit: Duration,
    ) -> Result<RenewReply, LockError> {
        let sent = Instant::now();
        self.noted(sent, send!(self, Renew within limit, renew(claims)))
    }

    /// Releases the claims of one hold; `false` if one of them does not have its lock. The server ends the command at the
    /// limit, also while another transaction blocks a document. With the token of its document, a release can go in one
    /// command with others.
    pub(crate) async fn release(
        &self,
        keys: &[LeaseId],
        min_hold: Duration,
        limit: Duration,
        token: Option<FencingToken>,
    ) -> Result<bool, LockError> {
        let lane = token.and_then(|_| self.lane());
        let admission = self.admissions().admit(AdmissionClass::Release, lane).await;
        let _admission = match (admission.into_member(), token) {
            (Ok(member), Some(token)) => {
                let key = keys[0].clone();
                let item = ReleaseItem { key, token, min_hold };
                return Box::pin(self.together(member, item, limit)).await;
            }
            (admission, _) => admission,
        };
        self.release_alone(keys, min_hold, limit).await
    }

    /// [`Self::release`] with a command of its own.
    pub(super) async fn release_alone(
        &self,
        keys: &[LeaseId],
        min_hold: Duration,
        limit: Duration,
    ) -> Result<bool, LockError> {
        let sent = Instant::now();
        self.noted(sent, send!(self, Release within limit, release(keys, min_hold)))
    }

    /// Releases the claims of different holds, and says of each whether it had its lock.
    pub(super) async fn release_each(
        &self,
        items: &[ReleaseItem],
        limit: Duration,
    ) -> Result<Outcomes<bool>, LockError> {
        let sent = Instant::now();
        self.noted(sent, send!(self, Release, release_each(items), limit))
    }

    /// Replaces a claim by the mark that its work is done, or releases it if the period is over. It ends the hold, as a release
    /// does. Repeating it is harmless. The caller has the admission.
    pub(crate) async fn mark(&self, request: &MarkRequest, limit: Duration) -> Result<MarkReply, LockError> {
        let sent = Instant::now();
        self.noted(sent, send!(self, Release, mark(request), limit))
    }

    /// Ends those of these claims that have their locks, in the background. The caller has the admission.
    pub(crate) async fn end_many(
        &self,
        keys: &[LeaseId],
        end: &ClaimEnd,
        limit: Duration,
    ) -> Result<(), LockError> {
        let sent = Instant::now();
        self.noted(sent, send!(self, Release within limit, end_many(keys, end)))
    }

    /// Ends these claims, which this process has given up, so that a caller does not meet them.
    pub(crate) async fn end_given_up(&self, keys: &[LeaseId], end: &ClaimEnd) -> Result<(), LockError> {
        let admissions = self.admissions();
        let _admission = admissions.admit(AdmissionClass::Release, None).await;
        self.end_many(keys, end, RELEASE_LIMIT).await
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

    /// Gives the leases of these claims the id of a handle; the replies are for the claims with that id. Repeating it is
    /// harmless. For a set a query follows, and the inner error is that of the query. The caller has the admission.
    pub(crate) async fn detach(
        &self,
        keys: &Few<LeaseId>,
        detachment: &Detachment,
        limit: Duration,
    ) -> Result<Claimed, LockError> {
        let sent = Instant::now();
        self.noted_claim(sent, send!(self, Release, detach(keys, detachment), limit))
    }

    /// Gives these claims the lease that has the id of a handle, if it still runs. Repeating it with the same keys is harmless.
    /// For a set a query follows, and the inner error is that of the query.
    pub(crate) async fn resume(
        &self,
        keys: &Few<LeaseId>,
        handle_id: &Arc<str>,
        request: AcquireRequest,
        limit: Duration,
        _admission: Admission,
    ) -> Result<Claimed, LockError> {
        let sent = Instant::now();
        self.noted_claim(
            sent,
            send!(self, Acquire, resume(keys, handle_id, request), limit),
        )
    }

    /// Extends a detached lease that still runs; for a set a query follows. The caller has the admission.
    pub(crate) async fn extend(
        &self,
        keys: &Few<LeaseId>,
        ttl: Duration,
        limit: Duration,
    ) -> Result<Extended, LockError> {
        let sent = Instant::now();
        self.noted(sent, send!(self, Renew, extend(keys, ttl), limit))
    }

    /// Releases a detached lease; `false` if no lock was taken by it. The caller has the admission.
    pub(crate) async fn release_detached(
        &self,
        keys: &Few<LeaseId>,
        min_hold: Duration,
        takeover_margin: Duration,
        limit: Duration,
    ) -> Result<bool, LockError> {
        let sent = Instant::now();
        let released = send!(self, Release within limit, release_detached(keys, min_hold, takeover_margin));
        self.noted(sent, released)
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

    /// A page of the locks that meet the filter: the first ones after this name, in the order of their names.
    pub(crate) async fn page(
        &self,
        filter: &LockFilter,
        after: Option<&str>,
        takeover_margin: Duration,
    ) -> Result<Page, LockError> {
        send!(self, page(filter, after, takeover_margin))
    }

    pub(crate) async fn get(
        &self,
        name: &str,
        takeover_margin: Duration,
    ) -> Result<Option<LockInfo>, LockError> {
        send!(self, get(name, takeover_margin))
    }

    /// The documents that name a holder or have a mark, of those that meet the name and the prefix of a filter; or only those
    /// of them with these `_id`s.
    pub(crate) async fn taken_locks(
        &self,
        filter: &LockFilter,
        ids: Option<&[String]>,
    ) -> Result<Vec<TakenOrDamaged>, LockError> {
        send!(self, taken_locks(filter, ids))
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

    /// Frees a lock, if its document is as it was read, and returns whether it was.
    pub(crate) async fn force_release(&self, hold: &SeenHold) -> Result<bool, LockError> {
        send!(self, force_release(hold))
    }

    /// Reads the documents of locks that are taken, or damaged.
    pub(crate) async fn seen_holds(
        &self,
        of: HoldsOf<'_>,
        takeover_margin: Duration,
    ) -> Result<Vec<SeenHold>, LockError> {
        send!(self, seen_holds(of, takeover_margin))
    }

    /// Looks which of these locks are held, with one query that changes nothing. The caller has the admission, and may drop
    /// the future: nothing depends on the reply.
    pub(crate) async fn look(
        &self,
        looked: Looked<'_>,
        takeover_margin: Duration,
        limit: Duration,
    ) -> Result<RunningLeases, LockError> {
        let sent = Instant::now();
        let looked = send!(self, Look within limit, look(looked, takeover_margin));
        if looked.as_ref().is_err_and(LockError::is_rejection) {
            self.admissions().begin_pause();
        }
        self.noted(sent, looked)
    }

    /// Looks at all permits of a semaphore, also at those beyond this number. The reply is only a hint, as that to a look. The
    /// caller has the admission.
    pub(crate) async fn held_permits(
        &self,
        semaphore: &str,
        permits: u32,
        takeover_margin: Duration,
        limit: Duration,
    ) -> Result<HeldPermits, LockError> {
        let looked = Looked::Permits { semaphore, permits };
        Ok(held_permits(
            self.look(looked, takeover_margin, limit).await?,
            semaphore,
        ))
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
