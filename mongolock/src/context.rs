use std::fmt;
use std::future::Future;
use std::slice;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tokio::sync::Semaphore;
use tracing::Span;

use crate::engine::{CancelShield, Engine, Lease};
use crate::few::Few;
use crate::sync::lock;
use crate::{FencingToken, LockError, permit_id, trace};

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

/// One nesting level of holds in a task. The levels around a task are a chain: each refers to the next enclosing one.
struct Level {
    /// One lease, or those of all names if the call has several and has joined holds of them.
    leases: Few<Arc<Lease>>,
    view: View,
    /// The context of the enclosing call, of the same lock or of another one. A link to a call that has ended is
    /// replaced by the link to the next enclosing call, so that a chain of tasks, each started by the one before it,
    /// does not keep all their leases.
    outer: Mutex<Option<LockContext>>,
    /// Whether the call of this level is over: its guard is released or dropped, or the joined call has returned.
    has_ended: AtomicBool,
    /// The semaphore of the joined calls directly under this level, which run one at a time.
    inner_calls: OnceLock<Arc<Semaphore>>,
}

/// The locks of a call, which may be a part of those that it depends on.
pub(crate) struct View {
    /// The ids of the locks in their order, and their tokens.
    pub(crate) tokens: Few<(Arc<str>, FencingToken)>,
    /// The index of the name that represents all in errors and events: the one that the caller has written first.
    pub(crate) title: usize,
    /// The template of that name, as the call has used it.
    pub(crate) template: Option<&'static str>,
}

impl View {
    /// The locks of a call that has acquired all of them itself. A permit has no token.
    fn of(lease: &Lease) -> Self {
        let token = |(id, token): (&Arc<str>, _)| match permit_id::number(id) {
            Some(_) => (Arc::clone(id), FencingToken::NONE),
            None => (Arc::clone(id), token),
        };
        Self {
            tokens: lease.tokens().map(token).collect(),
            title: lease.about.title,
            template: lease.about.template,
        }
    }
}

impl Drop for Level {
    /// Drops the levels of a chain one after the other: nested drops would overflow the stack.
    fn drop(&mut self) {
        let mut next = lock(&self.outer).take();
        while let Some(level) = next.and_then(|context| Arc::into_inner(context.level)) {
            next = lock(&level.outer).take();
        }
    }
}

impl LockContext {
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
    pub fn current() -> Option<Self> {
        CURRENT.try_with(Clone::clone).ok()
    }

    /// The lock's name; of a [set](crate::LockSet) the name that the caller has written first.
    pub fn name(&self) -> &str {
        permit_id::shown(self.title().0)
    }

    /// The template of the lock's name, from the attribute or the [`LockName`](crate::LockName) value; `None` for a
    /// name without one. For a [set](crate::LockSet) it is that of [`name`](Self::name).
    ///
    /// It can label a metric, because it has few values, whereas the name has one for each report or order. The spans
    /// have it in the field `lock.template`.
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
    pub fn template(&self) -> Option<&'static str> {
        self.level.view.template
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
        self.tokens().map(|(name, _)| permit_id::shown(name))
    }

    /// The fencing token of this hold; see [`FencingToken`]. For a [set](crate::LockSet) it is that of
    /// [`name`](Self::name): tokens of different names cannot be compared.
    ///
    /// A permit of a [`Semaphore`](crate::Semaphore) has no fencing token. Under a permit this method returns `i64::MIN`,
    /// which is never the token of a lock. A [fenced](crate::FencedExt::fenced) write with it returns
    /// [`LockError::NoFencingToken`]. [`fencing_token_of`](Self::fencing_token_of) is `None`.
    pub fn fencing_token(&self) -> FencingToken {
        self.title().1
    }

    /// The fencing token of this hold for one of its [names](Self::names); `None` for another name, and under a permit of a
    /// [`Semaphore`](crate::Semaphore), which has none.
    pub fn fencing_token_of(&self, name: &str) -> Option<FencingToken> {
        let mut tokens = self.tokens();
        tokens.find(|(own, _)| ***own == *name)?.1.if_any()
    }

    /// The id of the lock that stands for the call, and its token.
    fn title(&self) -> (&str, FencingToken) {
        let view = &self.level.view;
        let (id, token) = &view.tokens[view.title];
        (id, *token)
    }

    /// The ids of the call's locks and their tokens.
    fn tokens(&self) -> impl Iterator<Item = (&Arc<str>, FencingToken)> + Send {
        self.level.view.tokens.iter().map(|(id, token)| (id, *token))
    }

    /// The owner in the lock's document: that of the provider, see
    /// [`LockProviderBuilder::owner`](crate::LockProviderBuilder::owner), or that of the lease which the provider has resumed.
    pub fn owner(&self) -> &str {
        self.lease().owner()
    }

    /// Whether the lock is no longer held; of a set, whether one of its locks is no longer held.
    pub fn is_lost(&self) -> bool {
        self.leases().any(|lease| lease.is_over())
    }

    /// Whether the call has waited for another holder of the lock, in this process or another one. For a set: whether
    /// it has waited for any of its locks. For a call that has joined an enclosing hold: the value of that hold.
    ///
    /// Use it in code that computes a value once: after a wait such code checks again whether another holder has computed
    /// the value. For a semaphore a call behind others of its process may return `true` although a permit was free.
    ///
    /// ```
    /// use mongolock::{LockContext, LockError, LockProvider};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), LockError> {
    /// let lock = LockProvider::in_memory().lock("rates");
    /// assert!(!lock.run(async |lock| Ok::<_, LockError>(lock.waited())).await?, "the lock was free");
    /// # Ok(())
    /// # }
    /// ```
    pub fn waited(&self) -> bool {
        self.leases().any(|lease| lease.granted().has_waited)
    }

    /// Waits until the lock is no longer held. It returns when the lease ends by this process's own clock, at the latest.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is changed.
    pub async fn lost(&self) {
        Lease::until_one_over(self.leases()).await;
    }

    /// The time until the lease ends if it is not renewed again; zero once the lock is no longer held.
    pub fn remaining(&self) -> Duration {
        let remaining = self.leases().map(|lease| lease.remaining());
        remaining.min().unwrap_or_default()
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

    /// Runs a future under this context, which passes the context on to a spawned task.
    ///
    /// The context does not keep the lock held: the hold ends with the call that acquired it. In a task that outlives
    /// that call, a nested call of the same name returns [`LockError::Lost`]. If that nested call is in the body of another
    /// lock, it acquires the lock anew.
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

    /// The lease that the call depends on; of several the first one.
    pub(crate) fn lease(&self) -> &Arc<Lease> {
        &self.level.leases[0]
    }

    /// All leases that the call depends on: one, unless it has several names and has joined holds of them.
    pub(crate) fn leases(&self) -> slice::Iter<'_, Arc<Lease>> {
        self.level.leases.iter()
    }

    /// The span of a body that runs under this context.
    pub(crate) fn hold_span(&self) -> Span {
        let lease = self.lease();
        let mut fields = lease.fields(lease.about.title);
        (fields.id, fields.token) = self.title();
        let several = self.names().nth(1).map(|_| self.names().collect());
        trace::hold_span(&fields, self.template(), several)
    }

    /// The error of a call that is not to wait for another one under this hold.
    pub(crate) fn busy_error(&self) -> LockError {
        let mut busy = self.lease().busy(self.name());
        busy.remaining = Some(self.remaining());
        LockError::busy(busy)
    }
}

impl LockContext {
    /// The context of a call that has acquired all of its locks itself.
    pub(crate) fn of(lease: &Arc<Lease>) -> Self {
        Self::new(Few::One([Arc::clone(lease)]), View::of(lease))
    }

    /// The context of a call that depends on these leases, at least one.
    pub(crate) fn new(leases: Few<Arc<Lease>>, view: View) -> Self {
        let context = Self::within(Self::current(), leases, view);
        // Ended calls are removed from the whole chain.
        std::iter::successors(Some(context.clone()), Self::outer).for_each(drop);
        context
    }

    fn within(outer: Option<Self>, leases: Few<Arc<Lease>>, view: View) -> Self {
        Self {
            level: Arc::new(Level {
                leases,
                view,
                outer: Mutex::new(outer),
                has_ended: AtomicBool::new(false),
                inner_calls: OnceLock::new(),
            }),
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

    /// The context of the innermost enclosing call with such a lease of the same provider, and the lease.
    ///
    /// A call that has joined one name of a set encloses calls of its other names as well: it has the inner turn of the
    /// set itself.
    pub(crate) fn enclosing(
        engine: &Arc<Engine>,
        is_it: impl Fn(&Lease) -> bool,
    ) -> Option<(Self, Arc<Lease>)> {
        let with_lease = |context: Self| {
            let lease = context.leases().find(|lease| is_it(lease)).map(Arc::clone)?;
            Arc::ptr_eq(&lease.engine, engine).then_some((context, lease))
        };
        std::iter::successors(Self::current(), Self::outer).find_map(with_lease)
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

    /// Whether the caller runs under a lock of this provider that is still held: the caller keeps it until its call ends.
    pub(crate) fn is_inside_hold(engine: &Arc<Engine>) -> bool {
        let is_held = |context: Self| Arc::ptr_eq(&context.lease().engine, engine) && !context.is_lost();
        std::iter::successors(Self::current(), Self::outer).any(is_held)
    }

    /// An id of the level of this context, which is unique among the levels that exist at the same time.
    pub(crate) fn level_id(&self) -> usize {
        Arc::as_ptr(&self.level).addr()
    }

    /// The context of the innermost enclosing call that has not ended. Links to ended calls before it are removed.
    fn outer(&self) -> Option<Self> {
        let mut link = lock(&self.level.outer);
        while let Some(ended) = link.take_if(|outer| outer.has_ended()) {
            link.clone_from(&lock(&ended.level.outer));
        }
        link.clone()
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
mod tests;
