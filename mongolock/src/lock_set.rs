mod parts;

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use parts::Parts;

use crate::acquire::{Acquire, AcquireSeveral, Enclosing, Search};
use crate::context::LockContext;
use crate::engine::Engine;
use crate::lease::{Hold, Lease};
use crate::name::RenderedName;
use crate::options::{self, MOST_NAMES, OnBusy, Options};
use crate::run::{self, Acquiring, OnLost, RunningHold};
use crate::timing::NESTED_SET_LIMIT;
use crate::{LockError, LockGuard, LockOutput};

/// Several distributed locks that are acquired together, all or nothing; made by
/// [`LockProvider::lock_all`](crate::LockProvider::lock_all).
///
/// Two calls that need the same locks cannot block each other, in whatever order they name them: a call that does not get
/// all locks holds none of them while it waits. (After three attempts a call acquires them one by one in the order of their
/// names, which every call does in the same order.) The names are sorted, and a name that is given twice counts once.
///
/// The locks are ordinary ones: a [`DistributedLock`](crate::DistributedLock) of one of the names, and other programs,
/// exclude a set, and a set excludes them. All locks of a hold have one lease. It is renewed and released as a whole, and
/// lost as a whole when one of them is lost.
///
/// If all locks are free, acquiring them costs two commands, however many there are, and releasing them one.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), mongolock::LockError> {
/// # let provider = mongolock::LockProvider::in_memory();
/// let guard = provider.lock_all(["account:7", "account:4"]).acquire().await?;
/// assert!(guard.names().eq(["account:4", "account:7"]));
/// assert!(provider.lock("account:4").try_acquire().await?.is_none(), "it is held");
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "the locks are not held before the set is awaited, acquired or run; then bind the guard to a named variable such as `_guard`, because `let _ = …` drops it and releases the locks at once"]
pub struct LockSet {
    engine: Arc<Engine>,
    /// The names in their order, each once.
    names: Arc<[RenderedName]>,
    /// The place of the name that stands for the set in errors and events: the one that the caller has written first.
    title: usize,
    options: Arc<Options>,
}

impl LockSet {
    pub(crate) fn new(engine: &Arc<Engine>, mut names: Vec<RenderedName>) -> Self {
        let title = names.first().map(|title| Arc::clone(title.text()));
        // The sort is stable: of equal names the first one as written stays. One that could not be rendered comes before
        // them, so that it is refused.
        names.sort_by(|a, b| {
            let by_text = a.text().cmp(b.text());
            by_text.then_with(|| a.check().is_ok().cmp(&b.check().is_ok()))
        });
        names.dedup_by(|later, kept| later.text() == kept.text());
        let title = title.and_then(|title| names.iter().position(|name| *name.text() == title));
        Self {
            engine: Arc::clone(engine),
            names: names.into(),
            title: title.unwrap_or(0),
            options: Arc::clone(&engine.config.options),
        }
    }

    pub(crate) fn with(self, options: Arc<Options>) -> Self {
        Self { options, ..self }
    }

    /// The names of the locks in their order, each once.
    pub fn names(&self) -> impl Iterator<Item = &str> + Send {
        self.names.iter().map(|name| &**name.text())
    }

    options::lease_setters!();

    /// Waits for all locks and acquires them. Awaiting the set itself does the same.
    ///
    /// # Errors
    ///
    /// - [`LockError::Timeout`] if one of the locks is still held at the acquire timeout; it names that lock.
    /// - [`LockError::InvalidName`] if there is no name, or there are more than 500, or one of them breaks a rule.
    /// - [`LockError::Reentrant`] inside a body that runs under one of these locks.
    /// - The others of [`DistributedLock::acquire`](crate::DistributedLock::acquire).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a request in flight runs to its end on a task of its own, and the locks that it acquires are released.
    /// Drop the future or keep polling it: a future that is kept without being polled may have acquired the locks, which
    /// are then renewed.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time enabled.
    #[must_use = "the locks are held only while their guard lives: bind the guard to a named variable such as `_guard`, because `let _ = …` drops it and releases the locks at once"]
    pub fn acquire(&self) -> impl Future<Output = Result<LockGuard, LockError>> + Send + use<> {
        let set = self.clone();
        async move {
            set.check()?;
            set.refuse_own()?;
            let hold = set.acquiring(OnBusy::Wait).acquire().await?;
            Ok(set.guard(hold))
        }
    }

    /// Acquires all locks if they are free, without waiting for their holders; `None` if one of them is held.
    ///
    /// The call makes one attempt, which ends after the acquire timeout, or after 10 s if that is 0 or `None`. Locks that
    /// it gets although it does not get all of them are released again.
    ///
    /// # Errors
    ///
    /// Those of [`acquire`](Self::acquire) except [`LockError::Timeout`]: a held lock is `None`.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe, as [`acquire`](Self::acquire) is.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time enabled.
    #[must_use = "the locks are held only while their guard lives: bind the guard to a named variable such as `_guard`, because `let _ = …` drops it and releases the locks at once"]
    pub async fn try_acquire(&self) -> Result<Option<LockGuard>, LockError> {
        self.check()?;
        self.refuse_own()?;
        let hold = self.acquiring(OnBusy::TryOnce).make().await?.ok();
        Ok(hold.map(|hold| self.guard(hold)))
    }

    /// Runs a body under all locks and then releases them.
    ///
    /// The body gets the [`LockContext`], which is also [`LockContext::current`] for the code that it calls. When one of
    /// the locks is lost, the body is cancelled at its next await point, and the call returns [`LockError::Lost`].
    ///
    /// Inside a body that already runs under some of the locks, on the same provider, the call joins those holds and
    /// acquires the others. It then holds some locks while it waits for others, which can be a **deadlock**: such a wait
    /// ends at the `acquire_timeout`, and after 10 s at the latest. Acquire all locks at the outermost call instead.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), mongolock::LockError> {
    /// # let provider = mongolock::LockProvider::in_memory();
    /// let tokens = provider
    ///     .lock_all(["account:7", "account:4"])
    ///     .run(async |lock| {
    ///         Ok::<_, mongolock::LockError>((lock.fencing_token(), lock.fencing_token_of("account:4")))
    ///     })
    ///     .await?;
    /// # let _ = tokens;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The error of the body, or else a [`LockError`] in the body's own error type: those of [`acquire`](Self::acquire)
    /// except [`LockError::Reentrant`], and [`LockError::Lost`] if one of the locks was lost before the body ended.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the body first, and then releases the locks in the background.
    ///
    /// # Panics
    ///
    /// If the body panics: the panic continues after the release. Outside a tokio runtime with time enabled.
    pub fn run<F, B>(&self, body: F) -> impl Future<Output = B::Output> + use<F, B>
    where
        F: FnOnce(LockContext) -> B,
        B: Future,
        B::Output: LockOutput,
    {
        let set = self.clone();
        let acquiring = Acquiring::new(async move { set.hold(OnBusy::Wait, OnLost::Cancel).await });
        run::run(acquiring, body)
    }

    /// Acquires the locks for a body, and joins those that the caller already runs under.
    pub(crate) async fn hold(&self, on_busy: OnBusy, on_lost: OnLost) -> Result<RunningHold, LockError> {
        self.check()?;
        let parts = Parts::of(&self.engine, &self.names);
        if parts.outer.is_empty() {
            let hold = self.acquiring(on_busy).acquire().await?;
            return Ok(RunningHold::own(
                self.guard(hold),
                self.options.await_release,
                on_lost,
            ));
        }
        let turns = run::inner_turns(&parts.outer, parts.leases(), on_busy).await?;
        let mut own = None;
        if !parts.rest.is_empty() {
            let hold = tokio::select! {
                biased;
                hold = self.acquire_rest(&parts.rest, on_busy) => Some(hold?),
                () = Lease::until_one_over(parts.leases()) => None,
            };
            own = hold.map(|hold| self.guard(hold));
            parts.ensure_held()?;
        }
        let context = parts.context(self, own.as_ref().map(LockGuard::lease));
        let await_release = self.options.await_release;
        Ok(RunningHold::joined(context, own, await_release, turns, on_lost))
    }

    /// Acquires the names that are not joined. The caller holds others meanwhile, so that the wait has a limit.
    async fn acquire_rest(&self, rest: &[RenderedName], on_busy: OnBusy) -> Result<Hold, LockError> {
        let mut options = Options::clone(&self.options);
        let limit = options.acquire_timeout.unwrap_or(NESTED_SET_LIMIT);
        options.acquire_timeout = Some(limit.min(NESTED_SET_LIMIT));
        let options = Arc::new(options);
        let enclosing = Enclosing {
            is_inside_hold: true,
            ..LockContext::enclosing_holds(&self.engine)
        };
        if let [name] = rest {
            let acquire = Acquire::new(&self.engine, name, &options, enclosing, on_busy);
            return acquire.acquire().await;
        }
        let acquire = AcquireSeveral::new(&self.engine, rest, 0, &options, enclosing, on_busy);
        acquire.acquire().await
    }

    fn acquiring(&self, on_busy: OnBusy) -> AcquireSeveral<'_> {
        let enclosing = LockContext::enclosing_holds(&self.engine);
        AcquireSeveral::new(
            &self.engine,
            &self.names,
            self.title,
            &self.options,
            enclosing,
            on_busy,
        )
    }

    fn guard(&self, hold: Hold) -> LockGuard {
        LockGuard::new(hold, &self.engine, self.template())
    }

    /// The template of the name that the caller has written first.
    fn template(&self) -> Option<&'static str> {
        self.names.get(self.title)?.template()
    }

    fn check(&self) -> Result<(), LockError> {
        let refused = |reason: String| LockError::InvalidName {
            name: String::new(),
            reason,
        };
        if self.names.is_empty() {
            return Err(refused("a set of locks needs at least one name".to_owned()));
        }
        if self.names.len() > MOST_NAMES {
            let count = self.names.len();
            return Err(refused(format!(
                "a set of locks has {count} names, more than {MOST_NAMES}"
            )));
        }
        self.names.iter().try_for_each(RenderedName::check)?;
        self.options.check()
    }

    fn refuse_own(&self) -> Result<(), LockError> {
        let own = |name: &RenderedName| {
            run::refuse_own(LockContext::enclosing(&self.engine, name.text()), name.text())
        };
        self.names.iter().try_for_each(own)
    }
}

impl IntoFuture for LockSet {
    type Output = Result<LockGuard, LockError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.acquire())
    }
}

impl fmt::Debug for LockSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockSet")
            .field("names", &self.names().collect::<Vec<_>>())
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
