use std::fmt;
use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use mongodb::ClientSession;
use tokio::sync::Semaphore;

use crate::commit;
use crate::engine::Engine;
use crate::lease::{Lease, Unbroken};
use crate::{FencingToken, LockError};

tokio::task_local! {
    pub(crate) static CURRENT: LockContext;
}

/// What the code under a lock knows of it: its name, its fencing token, and whether it is still held.
///
/// Inside a function with `#[distributed_lock]` (and inside [`DistributedLock::run`](crate::DistributedLock::run))
/// [`current`](Self::current) finds it. It does not keep the lock: once the hold has ended, the context says that it
/// is lost.
#[derive(Clone)]
pub struct LockContext {
    level: Arc<Level>,
}

/// One nesting level of holds in a task.
struct Level {
    lease: Arc<Lease>,
    /// What the hold was taken within, of whatever name.
    outer: Option<LockContext>,
    /// The joined calls directly under this level, one at a time.
    inner_calls: OnceLock<Arc<Semaphore>>,
}

impl LockContext {
    pub(crate) fn new(lease: Arc<Lease>) -> Self {
        let level = Level {
            lease,
            outer: Self::current(),
            inner_calls: OnceLock::new(),
        };
        Self {
            level: Arc::new(level),
        }
    }

    /// The innermost hold that encloses the caller in its task; `None` outside.
    #[must_use]
    pub fn current() -> Option<Self> {
        CURRENT.try_with(Clone::clone).ok()
    }

    /// The lock's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.lease().key.name
    }

    /// The token of this hold; see [`FencingToken`].
    #[must_use]
    pub fn fencing_token(&self) -> FencingToken {
        self.lease().token
    }

    /// Who holds the lock: the provider's `owner`.
    #[must_use]
    pub fn owner(&self) -> &str {
        &self.lease().engine.owner
    }

    /// Whether the lock is not held any more.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.lease().is_over()
    }

    /// Resolves when the lock is not held any more. Cancel safe.
    pub async fn lost(&self) {
        self.lease().until_over().await;
    }

    /// How long the lease lasts if it is not renewed again; zero once it is over.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.lease().remaining()
    }

    /// Asks before a step that must not be taken without the lock. It looks at this process's clock only: a fencing
    /// token is what protects data against a pause right after this call.
    ///
    /// # Errors
    ///
    /// [`LockError::Lost`] if the lock is not held any more.
    pub fn ensure_held(&self) -> Result<(), LockError> {
        self.lease().ensure_held()
    }

    /// Commits the session's transaction if this holder still has the lock, and only then.
    ///
    /// Its last statement, sent from here, renews the lock's document. That is in conflict with every taker: nobody can
    /// have taken the lock since the transaction began, and nobody can before it is committed. The document is blocked
    /// for the length of the commit only.
    ///
    /// Begin the transaction under the lock, on a client of the same deployment, and with majority write concern. It
    /// is over when this returns: committed, or aborted, or (see below) perhaps committed. Make it the last step of a
    /// body: while it is under way, a loss of the lock does not break the body off; and once it is made, the body's
    /// success stays a success, whatever becomes of the lock after that.
    ///
    /// ```no_run
    /// use mongodb::bson::{Document, doc};
    /// use mongodb::{Client, Collection};
    /// use mongolock::{LockContext, LockError, distributed_lock};
    ///
    /// #[distributed_lock(name = "account:<from>")]
    /// async fn withdraw(from: i64, client: &Client, accounts: Collection<Document>) -> Result<(), LockError> {
    ///     let lock = LockContext::current().expect("inside the attribute");
    ///     let mut session = client.start_session().await?;
    ///     let transaction = session.start_transaction();
    ///     // The driver repeats the whole of it after errors that pass.
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
    /// - [`LockError::Lost`]: the lock is not held any more; the transaction is aborted.
    /// - [`LockError::Mongo`] with the label `TransientTransactionError`: nothing is committed, and the whole
    ///   transaction may be made again. A transaction that takes longer than the `renew_interval` meets the renewal of
    ///   its own lock, which is such an error, and meets it again each time (`and_run2` goes on with that for two
    ///   minutes, under the lock): keep it short, or set a longer interval.
    /// - [`LockError::Mongo`] with the label `UnknownTransactionCommitResult`: MongoDB has not said for half a minute or
    ///   more whether it is committed (on a dead connection: for as long as the operating system takes to notice).
    ///   `commit_transaction` of the session may be called again (the guard is part of the transaction), this method
    ///   not.
    /// - [`LockError::NoTransaction`]: the session has none, as always on a standalone server; or it began before the
    ///   lock was acquired (which is not seen after a hand-over within the process); or the lock is kept in memory.
    ///
    /// As errors of the driver (`?` in a callback of `and_run2`) they keep their labels. Where the caller's own error is
    /// not made from a `LockError` alone, unwrap them again: `.await.map_err(LockError::from)?`.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: if it is dropped, the transaction may be committed, or not, or be left open. Drop or abort the
    /// session then: an open transaction that has come to its last statement keeps everybody out of the lock, until
    /// MongoDB ends it after `transactionLifetimeLimitSeconds` (a minute if not set). The same holds if the process dies
    /// just then. The attribute and `run` never drop it because the lock is lost.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time enabled.
    pub async fn commit(&self, session: &mut ClientSession) -> Result<(), LockError> {
        commit::guarded(self, session).await
    }

    /// Runs a future under this context, to carry it into a spawned task.
    ///
    /// The context does not keep the lock: it ends with the call that took it.
    ///
    /// ```
    /// use mongolock::{LockContext, LockError, LockProvider};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), LockError> {
    /// let guard = LockProvider::in_memory().lock("report:1").await?;
    /// let task = tokio::spawn(guard.context().scope(async {
    ///     LockContext::current().map(|context| context.name().to_owned())
    /// }));
    /// assert_eq!(task.await.unwrap().as_deref(), Some("report:1"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn scope<F: Future>(self, future: F) -> impl Future<Output = F::Output> {
        CURRENT.scope(self, future)
    }

    /// The innermost enclosing hold of this name, with the same provider.
    pub(crate) fn enclosing(engine: &Arc<Engine>, name: &str) -> Option<Self> {
        let is_it = |context: &Self| Arc::ptr_eq(&context.lease().engine, engine) && context.name() == name;
        std::iter::successors(Self::current(), Self::outer).find(is_it)
    }

    pub(crate) fn lease(&self) -> &Arc<Lease> {
        &self.level.lease
    }

    /// Keeps all bodies that a commit from here is made in from being broken off: those around this hold, and those
    /// around the caller.
    pub(crate) fn all_unbroken(&self) -> Vec<Unbroken> {
        let own = std::iter::successors(Some(self.clone()), Self::outer);
        let callers = std::iter::successors(Self::current(), Self::outer);
        own.chain(callers)
            .map(|context| context.lease().unbroken())
            .collect()
    }

    fn outer(&self) -> Option<Self> {
        self.level.outer.clone()
    }

    pub(crate) fn inner_calls(&self) -> Arc<Semaphore> {
        Arc::clone(self.level.inner_calls.get_or_init(|| Arc::new(Semaphore::new(1))))
    }
}

impl fmt::Debug for LockContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockContext")
            .field("name", &self.name())
            .field("fencing_token", &self.fencing_token())
            .field("owner", &self.owner())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}
