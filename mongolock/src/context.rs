use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use mongodb::ClientSession;
use tokio::sync::Semaphore;
use tracing::Span;

use crate::commit;
use crate::engine::Engine;
use crate::lease::{CancelShield, Lease};
use crate::sync::lock;
use crate::trace::{self, HoldFields};
use crate::{Busy, FencingToken, LockError, task};

tokio::task_local! {
    pub(crate) static CURRENT: LockContext;
}

/// A view of a hold for the code that runs under the lock: its name, its fencing token, and whether it is still held.
///
/// Inside a function with `#[distributed_lock]`, and inside [`DistributedLock::run`](crate::DistributedLock::run),
/// [`current`](Self::current) returns it. A context does not keep the lock held: after the end of the hold, it reports
/// the lock as lost.
#[derive(Clone)]
pub struct LockContext {
    level: Arc<Level>,
}

/// One nesting level of holds in a task.
struct Level {
    lease: Arc<Lease>,
    /// The template of the name that the call of this level has used, or the label of its lock.
    template: Option<&'static str>,
    /// The leases of the other names, if the call has several names and has joined holds of them.
    others: Box<[Arc<Lease>]>,
    /// The names of the call, if they are not those of its lease.
    view: Option<Box<View>>,
    /// The engine, whose drop would stop the background task that renews the lease.
    engine: Arc<Engine>,
    /// The context of the enclosing call, of the same lock or of another one. A link to a call that has ended is
    /// replaced by the link to the next enclosing call, so that a chain of tasks, each started by the one before it,
    /// does not keep all their leases.
    outer: Mutex<Option<LockContext>>,
    /// Whether the call of this level is over: its guard is released or dropped, or the joined call has returned.
    has_ended: AtomicBool,
    /// The slot for the joined calls directly under this level, which run one at a time.
    inner_calls: OnceLock<Arc<Semaphore>>,
}

/// The names of a call that has joined holds of them.
pub(crate) struct View {
    /// The names in their order, and their tokens.
    pub(crate) tokens: Vec<(Arc<str>, FencingToken)>,
    /// The place of the name that the caller has written first.
    pub(crate) first: usize,
}

impl Drop for Level {
    /// Frees a chain of levels one after the other: each of them freeing the next would overflow the stack.
    fn drop(&mut self) {
        let mut next = lock(&self.outer).take();
        while let Some(level) = next.and_then(|context| Arc::into_inner(context.level)) {
            next = lock(&level.outer).take();
        }
    }
}

impl LockContext {
    pub(crate) fn new(lease: Arc<Lease>, engine: &Arc<Engine>, template: Option<&'static str>) -> Self {
        if let Some(semaphore) = lease.semaphore() {
            let view = View {
                tokens: vec![(Arc::clone(semaphore), FencingToken::NONE)],
                first: 0,
            };
            return Self::of_view(lease, Vec::new(), view, engine, template);
        }
        let context = Self::within(lease, engine, template, Self::current());
        context.cut_ended_calls();
        context
    }

    /// The context of a call that has joined holds: its names, and the leases that it depends on.
    pub(crate) fn of_view(
        lease: Arc<Lease>,
        others: Vec<Arc<Lease>>,
        view: View,
        engine: &Arc<Engine>,
        template: Option<&'static str>,
    ) -> Self {
        let mut level = Self::level(lease, engine, template, Self::current());
        level.others = others.into_boxed_slice();
        level.view = Some(Box::new(view));
        let context = Self {
            level: Arc::new(level),
        };
        context.cut_ended_calls();
        context
    }

    fn within(
        lease: Arc<Lease>,
        engine: &Arc<Engine>,
        template: Option<&'static str>,
        outer: Option<Self>,
    ) -> Self {
        Self {
            level: Arc::new(Self::level(lease, engine, template, outer)),
        }
    }

    fn level(
        lease: Arc<Lease>,
        engine: &Arc<Engine>,
        template: Option<&'static str>,
        outer: Option<Self>,
    ) -> Level {
        Level {
            lease,
            template,
            others: Box::default(),
            view: None,
            engine: Arc::clone(engine),
            outer: Mutex::new(outer),
            has_ended: AtomicBool::new(false),
            inner_calls: OnceLock::new(),
        }
    }

    /// Marks the call of this context as ended. It then encloses no further calls; only tasks that run directly in its
    /// scope still see it.
    pub(crate) fn close(&self) {
        self.level.has_ended.store(true, Ordering::Release);
    }

    fn has_ended(&self) -> bool {
        self.level.has_ended.load(Ordering::Acquire)
    }

    /// The context of the innermost hold around the caller in its task; `None` if it runs under no lock.
    ///
    /// A spawned task has no context of its own; [`scope`](Self::scope) passes one on.
    ///
    /// ```
    /// use mongolock::{LockContext, LockError, LockProvider};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), LockError> {
    /// fn token() -> Option<i64> {
    ///     LockContext::current().map(|context| context.fencing_token().get())
    /// }
    ///
    /// let lock = LockProvider::in_memory().lock("report:1");
    /// assert!(lock.run(async |_| Ok::<_, LockError>(token())).await?.is_some());
    /// assert!(token().is_none());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn current() -> Option<Self> {
        CURRENT.try_with(Clone::clone).ok()
    }

    /// The lock's name; of a [set](crate::LockSet) the name that the caller has written first.
    #[must_use]
    pub fn name(&self) -> &str {
        match &self.level.view {
            Some(view) => &view.tokens[view.first].0,
            None => &self.lease().key.name,
        }
    }

    /// The template of the lock's name, as the attribute or the [`LockName`](crate::LockName) value has it, or the
    /// [`label`](crate::DistributedLock::label) of the lock. `None` if the lock has neither. Of a
    /// [set](crate::LockSet) it is that of [`name`](Self::name).
    ///
    /// It has few values, where the name has one for each report or order, so it can label a metric. The spans have it
    /// in the field `lock.template`.
    ///
    /// ```
    /// use mongolock::{LockContext, LockError, LockProvider, distributed_lock};
    ///
    /// #[distributed_lock(name = "report:<id>")]
    /// async fn rebuild(id: u64, #[lock] lock: LockContext) -> Result<Option<&'static str>, LockError> {
    ///     Ok(lock.template())
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), LockError> {
    /// assert_eq!(LockProvider::in_memory().scope(rebuild(42)).await?, Some("report:<id>"));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn template(&self) -> Option<&'static str> {
        self.level.template
    }

    /// The names of the call: one, or those of a [set](crate::LockSet) in their order, each once.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), mongolock::LockError> {
    /// # let provider = mongolock::LockProvider::in_memory();
    /// let transfer = provider.lock_all(["account:2", "account:1"]);
    /// let body = transfer.run(async |lock| {
    ///     assert_eq!(lock.name(), "account:2");
    ///     assert!(lock.names().eq(["account:1", "account:2"]));
    ///     Ok::<_, mongolock::LockError>(lock.fencing_token_of("account:1"))
    /// });
    /// assert!(body.await?.is_some());
    /// # Ok(())
    /// # }
    /// ```
    pub fn names(&self) -> impl Iterator<Item = &str> + Send {
        self.tokens().map(|(name, _)| &**name)
    }

    /// The fencing token of this hold; see [`FencingToken`]. Of a [set](crate::LockSet) it is that of
    /// [`name`](Self::name): tokens of different names are not ordered among each other.
    ///
    /// A permit of a [`Semaphore`](crate::Semaphore) has no fencing token. Under one this is `i64::MIN`, which no lock ever
    /// has, and a [fenced](crate::FencedExt::fenced) write with it returns
    /// [`LockError::NoFencingToken`]. [`fencing_token_of`](Self::fencing_token_of) is `None`.
    #[must_use]
    pub fn fencing_token(&self) -> FencingToken {
        match &self.level.view {
            Some(view) => view.tokens[view.first].1,
            None => self.lease().token,
        }
    }

    /// The fencing token of this hold for one of its [names](Self::names); `None` for another name, and under a permit of a
    /// [`Semaphore`](crate::Semaphore), which has none.
    #[must_use]
    pub fn fencing_token_of(&self, name: &str) -> Option<FencingToken> {
        let mut tokens = self.tokens();
        let token = tokens.find(|(own, _)| ***own == *name).map(|(_, token)| token);
        token.filter(|token| *token != FencingToken::NONE)
    }

    /// The names of the call and their tokens.
    fn tokens(&self) -> impl Iterator<Item = (&Arc<str>, FencingToken)> + Send {
        let view = self.level.view.as_deref();
        let viewed = view.into_iter().flat_map(|view| &view.tokens);
        let own = view.is_none().then(|| self.lease().tokens());
        let viewed = viewed.map(|(name, token)| (name, *token));
        viewed.chain(own.into_iter().flatten())
    }

    /// The owner in the lock's document: that of the provider, see
    /// [`LockProviderBuilder::owner`](crate::LockProviderBuilder::owner).
    #[must_use]
    pub fn owner(&self) -> &str {
        &self.level.engine.owner
    }

    /// Whether the lock is no longer held; of a set, whether one of its locks is no longer held.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.leases().any(|lease| lease.is_over())
    }

    /// Waits until the lock is no longer held. It ends at the latest when the lease ends by this process's own clock.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is changed.
    pub async fn lost(&self) {
        if self.level.others.is_empty() {
            return self.lease().until_over().await;
        }
        // It is on the heap, because most calls depend on one lease.
        Box::pin(task::any(self.leases().map(|lease| Box::pin(lease.until_over())))).await;
    }

    /// The time until the lease ends if it is not renewed again; zero once the lock is no longer held.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        let others = self.level.others.iter().map(|lease| lease.remaining());
        others.fold(self.lease().remaining(), Duration::min)
    }

    /// Checks that the lock is still held. Call it before a step that must not be taken without the lock.
    ///
    /// The check reads this process's own clock and sends no command. It does not protect data against a pause right
    /// after it; the [fencing token](Self::fencing_token) does.
    ///
    /// # Errors
    ///
    /// [`LockError::Lost`] if the lock is no longer held.
    pub fn ensure_held(&self) -> Result<(), LockError> {
        self.leases().try_for_each(|lease| lease.ensure_held())
    }

    /// Commits the session's transaction only if this holder still has the lock.
    ///
    /// The method adds a last statement to the transaction, which renews the lock's document. The statement conflicts
    /// with every acquisition by another client: the commit succeeds only if no other client has acquired the lock
    /// since the transaction began, and no other client can acquire it before the commit. The document is blocked only
    /// for the duration of the commit.
    ///
    /// Of a [set](crate::LockSet) it guards all locks, with one statement for each.
    ///
    /// Begin the transaction under the lock, on a client of the same deployment, and with majority write concern. When
    /// the method returns, the transaction has ended: committed, aborted, or with an unknown outcome (see Errors). Make
    /// the commit the last step of a body. While it is in flight, the loss of the lock does not cancel the body; after
    /// it, a successful body stays successful, even if the lock is lost then.
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
    ///   two minutes, under the lock). Keep transactions short, or set a longer `renew_interval`.
    /// - [`LockError::Mongo`] with the label `UnknownTransactionCommitResult`: MongoDB has not confirmed the outcome of
    ///   the commit for 30 s; a silent connection is given up after 10 s meanwhile. The session's `commit_transaction`
    ///   can be called again, because the guarding statement is part of the transaction; this method cannot.
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
        let shields = || self.shield_bodies();
        let leases: Vec<&Arc<Lease>> = self.leases().collect();
        let store = &self.level.engine.store;
        commit::guarded(&leases, store, commit::keeping, shields, session).await
    }

    /// Commits the session's transaction as [`commit`](Self::commit) does, and marks the work as done in the same
    /// transaction: either both happen or none, so that the work takes effect exactly once.
    ///
    /// The lock must have [`once_per`](crate::DistributedLock::once_per) or [`once`](crate::DistributedLock::once). If
    /// its period is over, the transaction is committed, and the lock is released instead of marked. After it the hold has
    /// ended well: the lease is no longer renewed, the body is not cancelled, and a call that ends successfully writes no
    /// second mark. Make it the last step of the body.
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
    /// As that of [`commit`](Self::commit).
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time enabled.
    pub async fn commit_done(&self, session: &mut ClientSession) -> Result<(), LockError> {
        let shields = || self.shield_bodies();
        commit::guarded_done(self.lease(), &self.level.engine.renewer, shields, session).await
    }

    /// Runs a future under this context, which passes the context on to a spawned task.
    ///
    /// The context does not keep the lock held: the hold ends with the call that acquired it. In a task that outlives
    /// that call, a nested call of the same name returns [`LockError::Lost`]; inside another lock, it acquires the lock
    /// anew.
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

    /// The context of the innermost enclosing hold of this name, on the same provider.
    pub(crate) fn enclosing(engine: &Arc<Engine>, name: &str) -> Option<Self> {
        // A call that has joined one name of a set encloses calls of its other names as well: it has the inner-call slot
        // of the set itself.
        let is_it = |context: &Self| {
            Arc::ptr_eq(&context.level.engine, engine)
                && context.leases().any(|lease| lease.token_of(name).is_some())
        };
        std::iter::successors(Self::current(), Self::outer).find(is_it)
    }

    /// The context of the innermost enclosing permit of this semaphore, on the same provider, and its lease.
    pub(crate) fn enclosing_permit(engine: &Arc<Engine>, semaphore: &str) -> Option<(Self, Arc<Lease>)> {
        let permit = |context: Self| {
            let is_own = Arc::ptr_eq(&context.level.engine, engine);
            let mut leases = context.leases().filter(|_| is_own);
            let is_it = |lease: &&Arc<Lease>| lease.semaphore().is_some_and(|name| **name == *semaphore);
            let lease = leases.find(is_it).map(Arc::clone);
            drop(leases);
            Some((context, lease?))
        };
        std::iter::successors(Self::current(), Self::outer).find_map(permit)
    }

    /// Whether the caller runs under a lock of this provider that is still held.
    pub(crate) fn is_inside_hold(engine: &Arc<Engine>) -> bool {
        let is_one = |context: Self| Arc::ptr_eq(&context.level.engine, engine) && !context.is_lost();
        std::iter::successors(Self::current(), Self::outer).any(is_one)
    }

    /// The lease that the call depends on; of several the first one.
    pub(crate) fn lease(&self) -> &Arc<Lease> {
        &self.level.lease
    }

    /// All leases that the call depends on: one, unless it has several names and has joined holds of them.
    pub(crate) fn leases(&self) -> impl Iterator<Item = &Arc<Lease>> + Send {
        std::iter::once(&self.level.lease).chain(&self.level.others)
    }

    /// The lease of one of the call's names.
    pub(crate) fn lease_of(&self, name: &str) -> &Arc<Lease> {
        let mut leases = self.leases();
        leases
            .find(|lease| lease.token_of(name).is_some())
            .unwrap_or_else(|| self.lease())
    }

    /// The span of a body that runs under this context.
    pub(crate) fn hold_span(&self) -> Span {
        let fields = HoldFields {
            name: self.name(),
            token: Some(self.fencing_token()).filter(|token| *token != FencingToken::NONE),
            ..self.lease().fields()
        };
        if self.names().nth(1).is_none() {
            return trace::hold_span(&fields, self.template());
        }
        trace::hold_set_span(&fields, self.template(), &self.names().collect::<Vec<_>>())
    }

    /// What tells the level of this context from all others that exist at the same time.
    pub(crate) fn level_id(&self) -> usize {
        Arc::as_ptr(&self.level).addr()
    }

    /// Whether the call depends on several leases.
    pub(crate) fn has_several_leases(&self) -> bool {
        !self.level.others.is_empty()
    }

    /// Resolves when the body of a call that depends on several leases has to be cancelled.
    pub(crate) async fn any_cancelled(&self) {
        task::any(self.leases().map(|lease| Box::pin(lease.cancelled()))).await;
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.level.engine
    }

    /// Prevents the cancellation of all bodies around a commit: those around this hold, and those around the caller.
    pub(crate) fn shield_bodies(&self) -> Vec<CancelShield> {
        let own = std::iter::successors(Some(self.clone()), Self::outer);
        let callers = std::iter::successors(Self::current(), Self::outer);
        own.chain(callers)
            .flat_map(|context| context.leases().map(Arc::clone).collect::<Vec<_>>())
            .map(|lease| lease.shield())
            .collect()
    }

    /// The context of the innermost enclosing call that has not ended. Links to ended calls before it are removed.
    fn outer(&self) -> Option<Self> {
        let mut link = lock(&self.level.outer);
        while let Some(ended) = link.take_if(|outer| outer.has_ended()) {
            link.clone_from(&lock(&ended.level.outer));
        }
        link.clone()
    }

    /// Removes all ended calls from the chain.
    fn cut_ended_calls(&self) {
        std::iter::successors(Some(self.clone()), Self::outer).for_each(drop);
    }

    /// The error of a call that is not to wait for another one under this hold.
    pub(crate) fn busy_error(&self) -> LockError {
        let mut busy = Busy::new(self.name());
        busy.holder = Some(self.owner().to_owned());
        busy.in_this_process = true;
        busy.held_for = Some(self.lease().acquired.elapsed());
        busy.remaining = Some(self.remaining());
        LockError::busy(busy)
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

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Weak;

    use tokio::sync::oneshot;

    use super::*;
    use crate::LockProvider;
    use crate::lock::DistributedLock;

    const TASKS: usize = 1000;

    /// A provider whose locks are lost after a second.
    fn short() -> LockProvider {
        let builder = LockProvider::in_memory().to_builder();
        let short = builder.expiry(Duration::from_secs(1)).max_hold(Duration::ZERO);
        short.build().unwrap()
    }

    async fn token_within(lock: &DistributedLock) -> Result<FencingToken, LockError> {
        lock.run(async |context| Ok(context.fencing_token())).await
    }

    #[tokio::test]
    async fn a_long_chain_does_not_overflow_the_stack() {
        let guard = LockProvider::in_memory().lock("long").await.unwrap();
        let chain = || {
            let links = std::iter::repeat_n(guard.lease(), 300_000);
            links.fold(guard.context(), |outer, lease| {
                LockContext::within(Arc::clone(lease), outer.engine(), None, Some(outer.clone()))
            })
        };
        drop(chain());

        let innermost = chain();
        std::iter::successors(Some(innermost.clone()), LockContext::outer)
            .take(300_000)
            .for_each(|context| context.close());
        innermost.cut_ended_calls();
        let outermost = innermost.outer().expect("the guard is held");
        assert!(Arc::ptr_eq(&outermost.level, &guard.context().level));
    }

    /// Runs one task after the other, each of which acquires a lock in the scope of the call before it, while `overlap`
    /// earlier calls still run. Returns the largest number of levels and of leases that existed at the same time.
    async fn chain_of_tasks(
        first: &LockContext,
        lock_of: impl Fn(usize) -> DistributedLock,
        overlap: usize,
    ) -> (usize, usize) {
        let mut outer = first.clone();
        let (mut levels, mut leases) = (Vec::<Weak<Level>>::new(), Vec::<Weak<Lease>>::new());
        let (mut most, mut running) = ((0, 0), VecDeque::new());
        for number in 0..TASKS {
            let (sender, context) = oneshot::channel();
            let (end, ending) = oneshot::channel::<()>();
            let lock = lock_of(number);
            let task = tokio::spawn(outer.scope(async move {
                let body = async move |context| {
                    let _ = sender.send(context);
                    let _ = ending.await;
                    Ok::<_, LockError>(())
                };
                lock.run(body).await
            }));
            outer = context.await.unwrap();
            levels.push(Arc::downgrade(&outer.level));
            leases.push(Arc::downgrade(outer.lease()));
            running.push_back((task, end));
            if running.len() > overlap
                && let Some((task, end)) = running.pop_front()
            {
                // Dropping the sender ends the call.
                drop(end);
                task.await.unwrap().unwrap();
            }
            let alive = (count_alive(&levels), count_alive(&leases));
            most = (alive.0.max(most.0), alive.1.max(most.1));
        }
        most
    }

    fn count_alive<T>(all: &[Weak<T>]) -> usize {
        all.iter().filter(|weak| weak.strong_count() > 0).count()
    }

    #[tokio::test]
    async fn ended_calls_are_not_kept() {
        let provider = LockProvider::in_memory();
        let first = provider.lock("first").await.unwrap();
        for overlap in [0, 1, 3] {
            let own = chain_of_tasks(&first.context(), |number| provider.lock(number), overlap).await;
            let joined = chain_of_tasks(&first.context(), |_| provider.lock("first"), overlap).await;
            assert!(own.0 <= 10 && own.1 <= 10, "levels and leases: {own:?}");
            assert!(joined.0 <= 10, "levels: {}", joined.0);
        }
    }

    /// Joining the hold from inside another lock fails as well.
    #[tokio::test(start_paused = true)]
    async fn a_lost_hold_whose_call_still_runs_cannot_be_joined() {
        let (provider, other) = (short(), LockProvider::in_memory());
        let (lost, inner) = (provider.lock("lost"), other.lock("inner"));
        let guard = lost.acquire().await.unwrap();
        let nested = guard.context().scope(async {
            inner
                .run(async |_| {
                    guard.lost().await;
                    token_within(&inner).await?;
                    token_within(&lost).await
                })
                .await
        });
        assert!(matches!(nested.await, Err(LockError::Lost { name, .. }) if name == "lost"));
    }

    /// A task that outlives the call that started it runs under no lock of that call.
    #[tokio::test]
    async fn an_ended_call_is_seen_in_its_own_scope_only() {
        let provider = LockProvider::in_memory();
        let (ended, inner) = (provider.lock("ended"), provider.lock("inner"));
        let guard = ended.acquire().await.unwrap();
        let (context, token) = (guard.context(), guard.fencing_token());
        guard.release().await.unwrap();

        let direct = context.clone().scope(token_within(&ended)).await;
        assert!(matches!(direct, Err(LockError::Lost { .. })));
        let deeper = inner.run(async |_| token_within(&ended).await);
        assert!(context.scope(deeper).await.unwrap() > token);
    }
}
