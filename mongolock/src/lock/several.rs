mod parts;

use std::fmt::DebugStruct;
use std::sync::Arc;

use parts::Parts;

use super::kind::Kind;
use super::{Lock, LockKind};
use crate::engine::{Hold, Lease, Wish};
use crate::name::RenderedName;
use crate::options::{MOST_NAMES, OnBusy, Options};
use crate::run::{self, OnLost, RunningHold};
use crate::timing::NESTED_SET_LIMIT;
use crate::{LockError, LockGuard};

/// Several distributed locks that are acquired together, all or nothing; made by
/// [`LockProvider::lock_all`](crate::LockProvider::lock_all).
///
/// Two calls that need the same locks cannot block each other, in whatever order they list them: the names are sorted,
/// and each call acquires the locks in the order of their names. While a call waits for one lock, it keeps the locks
/// before that one, and does not hold those behind it. A name that is given twice counts once.
///
/// The locks are ordinary ones: a set and a [`DistributedLock`](crate::DistributedLock) of one of its names exclude
/// each other, also in other programs. All locks of a hold have one lease. It is renewed and released as a whole, and
/// lost as a whole when one of them is lost.
///
/// If all locks are free, acquiring them costs two commands, however many there are, and releasing them one. Its methods are
/// those of [`Lock`].
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
pub type LockSet = Lock<Several>;

/// The kind of a [`LockSet`]: several locks, all or nothing.
#[derive(Debug, Clone)]
pub struct Several {
    /// The names in their order, each once.
    names: Arc<[RenderedName]>,
    /// The index of the name that represents the set in errors and events: the one that the caller has written first.
    title: usize,
}

impl Several {
    pub(crate) fn new(mut names: Vec<RenderedName>) -> Self {
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
            names: names.into(),
            title: title.unwrap_or(0),
        }
    }
}

impl LockKind for Several {
    type Guard = LockGuard;
}

impl Kind for Several {
    const NAME: &'static str = "LockSet";

    fn names(&self) -> &[RenderedName] {
        &self.names
    }

    fn debug(&self, debug: &mut DebugStruct<'_, '_>) {
        let names: Vec<_> = self.names.iter().map(RenderedName::text).collect();
        debug.field("names", &names);
    }

    fn check(&self) -> Result<(), LockError> {
        let reason = match self.names.len() {
            0 => "a set of locks needs at least one name".to_owned(),
            1..=MOST_NAMES => return Ok(()),
            count => format!("a set of locks has {count} names, more than {MOST_NAMES}"),
        };
        Err(LockError::InvalidName {
            name: String::new(),
            reason,
        })
    }

    /// The template of the name that the caller has written first.
    fn title(&self) -> usize {
        self.title
    }

    /// Acquires the locks for a body, and joins those that the caller already runs under.
    async fn hold(lock: &LockSet, on_busy: OnBusy, on_lost: OnLost) -> Result<RunningHold, LockError> {
        let parts = Parts::of(&lock.engine, &lock.kind.names);
        if parts.outer.is_empty() {
            return lock.own_hold(on_busy, on_lost).await;
        }
        let turns = run::inner_turns(&parts.outer, parts.leases(), on_busy).await?;
        let mut own = None;
        if !parts.rest.is_empty() {
            let hold = tokio::select! {
                biased;
                hold = lock.acquire_rest(&parts.rest, on_busy) => Some(hold?),
                () = Lease::until_one_over(parts.leases()) => None,
            };
            own = hold.map(LockGuard::new);
            parts.ensure_held()?;
        }
        let context = parts.context(lock, own.as_ref().map(LockGuard::lease));
        let await_release = lock.options.await_release;
        Ok(RunningHold::joined(context, own, await_release, turns, on_lost))
    }
}

impl Lock<Several> {
    /// The names of the locks in their order, each once.
    pub fn names(&self) -> impl Iterator<Item = &str> + Send {
        self.kind.names.iter().map(|name| &**name.text())
    }

    /// Acquires the names that are not joined. The wait has a limit, because the caller holds other locks meanwhile.
    async fn acquire_rest(&self, rest: &[RenderedName], on_busy: OnBusy) -> Result<Hold, LockError> {
        let mut options = Options::clone(&self.options);
        let limit = options.acquire_timeout.unwrap_or(NESTED_SET_LIMIT);
        options.acquire_timeout = Some(limit.min(NESTED_SET_LIMIT));
        let options = Arc::new(options);
        let wish = Wish {
            names: rest,
            title: 0,
            permits: None,
            options: &options,
            is_inside_hold: true,
            on_busy,
        };
        wish.begin(&self.engine)?.await?
    }
}
