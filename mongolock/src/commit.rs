//! Commits that take effect only if the lock is still held.

mod session;

use std::sync::Arc;

use mongodb::ClientSession;

use self::session::{OpenCommit, abort, commit, ensure_transaction, guard};
use crate::engine::Lease;
use crate::options::not_once;
use crate::protocol::Until;
use crate::{LockContext, LockError};

impl LockContext {
    /// Commits the session's transaction only if this holder still has the lock.
    ///
    /// The method adds a last statement to the transaction, which renews the lock's document. The statement conflicts
    /// with every acquisition by another client: the commit succeeds only if no other client has acquired the lock
    /// since the transaction began, and no other client can acquire it before the commit. The document is blocked only
    /// for the duration of the commit.
    ///
    /// Of a [set](crate::LockSet) it guards all locks, with one statement.
    ///
    /// Begin the transaction under the lock, on a client of the same deployment, and with majority write concern. When
    /// the method returns, the transaction has ended: committed, aborted, or with an unknown outcome (see Errors). Make
    /// the commit the last step of a body. While it is in flight, the loss of the lock does not cancel the body; after
    /// it, a successful body stays successful, even if the lock is lost then.
    ///
    /// While MongoDB rejects commands for overload, the statement and the commit are each repeated for 30 s. The driver
    /// sends each statement of the application three times at most. While half of the commands are rejected, one statement in eight
    /// therefore fails, with an error for which `and_run2` does not repeat the transaction.
    ///
    /// ```no_run
    /// use mongodb::bson::{Document, doc};
    /// use mongodb::{Client, Collection};
    /// use mongolock::{LockContext, LockError, distributed_lock};
    ///
    /// #[distributed_lock(name = "account:<from>")]
    /// async fn withdraw(
    ///     from: i64,
    ///     client: &Client,
    ///     accounts: Collection<Document>,
    ///     #[lock] lock: LockContext,
    /// ) -> Result<(), LockError> {
    ///     let mut session = client.start_session().await?;
    ///     let transaction = session.start_transaction();
    ///     // The driver repeats the whole transaction after transient errors.
    ///     transaction
    ///         .and_run2(async move |session| {
    ///             let take = doc! { "$inc": { "balance": -10 } };
    ///             accounts.update_one(doc! { "_id": from }, take).session(&mut *session).await?;
    ///             Ok(lock.commit(session).await?)
    ///         })
    ///         .await?;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// - [`LockError::Lost`]: the lock is no longer held, and the transaction was aborted.
    /// - [`LockError::Mongo`] with the label `TransientTransactionError`: nothing was committed, and the whole
    ///   transaction can be repeated. A transaction that takes longer than the `renew_interval` conflicts with the
    ///   renewal of its own lock. That is such an error, and it occurs again in each repetition (`and_run2` repeats for
    ///   two minutes, under the lock). Keep transactions short, or set a longer
    ///   [`renew_interval`](crate::LockProviderBuilder::renew_interval).
    /// - [`LockError::Mongo`] with the label `UnknownTransactionCommitResult`: MongoDB has not confirmed the outcome of
    ///   the commit within 30 s. In this time a connection without a reply is closed after 10 s, and the commit is sent on
    ///   another one. The session's `commit_transaction` can be called again, because the guarding statement is part of the
    ///   transaction; this method cannot.
    /// - [`LockError::Mongo`] with a write concern error of the driver and neither label: the primary has committed the
    ///   transaction, but its write concern can never be met, such as `w: 3` with two members.
    /// - [`LockError::NoTransaction`]: the session has no transaction, as always on a standalone server; or the
    ///   transaction began before the lock was acquired (this is not detected after a hand-over within the process); or
    ///   the lock is kept in memory.
    ///
    /// Converted to errors of the driver (`?` in a callback of `and_run2`), the errors keep their labels. Where the
    /// caller's error type is not made from `LockError` alone, convert them back: `.await.map_err(LockError::from)?`.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: if the future is dropped, the transaction may be committed, aborted or still open. Drop or
    /// abort the session then. An open transaction whose last statement was sent blocks the lock for all clients until
    /// MongoDB ends it after `transactionLifetimeLimitSeconds` (60 s by default). The same happens if the process
    /// crashes in that moment. The attribute and `run` never drop the future because of a lost lock.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time enabled.
    pub async fn commit(&self, session: &mut ClientSession) -> Result<(), LockError> {
        let leases: Vec<&Arc<Lease>> = self.leases().collect();
        self.guarded(&leases, None, session).await
    }

    /// Commits the session's transaction as [`commit`](Self::commit) does, and marks the work as done in the same
    /// transaction: either both happen or none, so that the work takes effect exactly once.
    ///
    /// The lock must have [`once_per`](crate::DistributedLock::once_per) or [`once`](crate::DistributedLock::once). If
    /// its period is over, the transaction is committed, and the lock is released instead of marked. The commit ends the
    /// hold without a loss: the lease is no longer renewed, the body is not cancelled, and a call that ends successfully
    /// writes no second mark. Make the commit the last step of the body.
    ///
    /// ```no_run
    /// use mongodb::bson::{Document, doc};
    /// use mongodb::{Client, Collection};
    /// use mongolock::{LockContext, LockError, LockProvider};
    ///
    /// async fn pay_interest(tick: &str, client: Client, accounts: Collection<Document>) -> Result<(), LockError> {
    ///     let lock = LockProvider::global()?.lock(format!("interest:{tick}")).once();
    ///     lock.run(|lock| async move {
    ///         let mut session = client.start_session().await?;
    ///         let transaction = session.start_transaction();
    ///         transaction
    ///             .and_run2(async move |session| {
    ///                 let add = doc! { "$mul": { "balance": 1.01 } };
    ///                 accounts.update_many(doc! {}, add).session(&mut *session).await?;
    ///                 Ok(lock.commit_done(session).await?)
    ///             })
    ///             .await?;
    ///         Ok(())
    ///     })
    ///     .await
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`commit`](Self::commit), and [`LockError::InvalidOption`] if the lock has neither `once_per` nor `once`:
    /// the transaction was aborted.
    ///
    /// # Cancel safety
    ///
    /// As that of [`commit`](Self::commit). If the outcome is unknown, or the future is dropped, the work may be marked as
    /// done. Other callers can then acquire the lock when the mark ends, even if the lease ends later. End the body, and do
    /// nothing more under the lock.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time enabled.
    // From before the guarding statement on, a renewal that does not find the claim says nothing: the transaction may have ended it. If
    // the outcome of the commit is not known, that stays so until the hold ends: by its release, at its deadline or by a shutdown.
    pub async fn commit_done(&self, session: &mut ClientSession) -> Result<(), LockError> {
        let (lease, store) = (self.lease(), &self.lease().engine.store);
        let Some(end) = lease.granted().mark else {
            abort(store, session).await;
            return Err(not_once("commit_done"));
        };
        ensure_transaction(lease, store, session).await?;
        if lease.is_over() {
            abort(store, session).await;
            return Err(lease.lost_error());
        }
        let committed = self.guarded(&[lease], Some(end), session).await;
        // Whether a transaction whose outcome is unknown was made is found out while the hold lasts.
        if committed.is_err() && lease.is_outcome_unknown() && lease.was_committed().await {
            return Ok(());
        }
        committed
    }

    /// Commits the session's transaction if the claims of these leases still have their locks, and ends the transaction in any case.
    /// With the end of a mark, it also marks their work as done. The bodies around the commit are not cancelled while it is in flight.
    async fn guarded(
        &self,
        leases: &[&Arc<Lease>],
        mark: Option<Until>,
        session: &mut ClientSession,
    ) -> Result<(), LockError> {
        let mut open = OpenCommit::begin(leases, mark.is_some());
        for lease in leases {
            if let Err(error) = guard(lease, mark, session).await {
                abort(&self.lease().engine.store, session).await;
                open.was_made = Some(false);
                return Err(error);
            }
        }
        let _shields = self.shield_bodies();
        commit(leases[0], open, session).await
    }
}
