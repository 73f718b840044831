use std::sync::Arc;

use super::{Kind, Lock, LockKind};
use crate::core::Wanted;
use crate::name::RenderedName;
use crate::options::MOST_NAMES;
use crate::{LockError, LockGuard};

/// Several distributed locks that are acquired together, all or nothing; made by
/// [`LockProvider::lock_all`](crate::LockProvider::lock_all).
///
/// Two calls that need the same locks cannot block each other, in whatever order they list them: the names are sorted,
/// and each call acquires the locks in the order of their names. While a call waits for one lock, it keeps the locks
/// whose names sort before that one, and holds none of the later ones. A name that is given twice counts once.
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
        let title = names.first().map(|title| Arc::clone(&title.text));
        // The sort is stable: of equal names the first one as written stays. One that could not be rendered comes before
        // them, so that it is refused.
        names.sort_by_cached_key(|name| (Arc::clone(&name.text), name.check().is_ok()));
        names.dedup_by(|later, kept| later.text == kept.text);
        let title = title.and_then(|title| names.iter().position(|name| name.text == title));
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
    fn names(&self) -> &[RenderedName] {
        &self.names
    }

    fn wanted(&self) -> Wanted {
        let text = |name: &RenderedName| Arc::clone(&name.text);
        match &*self.names {
            [name] => Wanted::Lock(text(name)),
            names => Wanted::All(names.iter().map(text).collect()),
        }
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
}

impl Lock<Several> {
    /// The names of the locks in their order, each once.
    pub fn names(&self) -> impl Iterator<Item = &str> + Send {
        self.kind.names.iter().map(|name| &*name.text)
    }
}
