use std::fmt;
use std::sync::Mutex;

use crate::sync::lock;
use crate::{FencingToken, LockError};

/// A value of this process that remembers the greatest fencing token that has changed it, and refuses a smaller one.
///
/// For the other side of a lock: a service that keeps something for clients who hold locks elsewhere, and who send
/// their tokens along. It compares and changes in one step, so that nothing comes between. Where the value outlives
/// the process, store the token with it and begin with [`restored`](Self::restored).
///
/// ```
/// use mongolock::{Fenced, FencingToken, LockError};
///
/// let title = Fenced::new(String::new());
/// let (earlier, later) = (FencingToken::from(33), FencingToken::from(34));
/// title.write(later, |title| title.push_str("by the later holder"))?;
/// let late = title.write(earlier, |title| title.clear());
/// assert!(matches!(late, Err(LockError::Stale { seen, .. }) if seen == later));
/// # Ok::<_, LockError>(())
/// ```
#[derive(Default)]
pub struct Fenced<T> {
    state: Mutex<State<T>>,
}

#[derive(Default)]
struct State<T> {
    seen: Option<FencingToken>,
    value: T,
}

impl<T> Fenced<T> {
    /// A value that no holder has changed: it accepts every token.
    #[must_use]
    pub const fn new(value: T) -> Self {
        Self::with(value, None)
    }

    /// A value that was stored with the greatest token that had changed it.
    #[must_use]
    pub const fn restored(value: T, seen: FencingToken) -> Self {
        Self::with(value, Some(seen))
    }

    const fn with(value: T, seen: Option<FencingToken>) -> Self {
        Self {
            state: Mutex::new(State { seen, value }),
        }
    }

    /// Lets the holder of this token change the value. Others wait meanwhile, on their threads: do nothing slow in it.
    ///
    /// # Errors
    ///
    /// [`LockError::Stale`] if a greater token was here; `change` is not called then.
    ///
    /// # Panics
    ///
    /// When `change` does. The value stays as that has left it, and can be used further.
    pub fn write<R>(&self, token: FencingToken, change: impl FnOnce(&mut T) -> R) -> Result<R, LockError> {
        let mut state = lock(&self.state);
        if let Some(seen) = state.seen.filter(|seen| *seen > token) {
            return Err(LockError::Stale { token, seen });
        }
        state.seen = Some(token);
        Ok(change(&mut state.value))
    }

    /// Shows the value and the greatest token so far; `None` when no holder has changed it.
    pub fn read<R>(&self, look: impl FnOnce(&T, Option<FencingToken>) -> R) -> R {
        let state = lock(&self.state);
        look(&state.value, state.seen)
    }
}

impl<T: fmt::Debug> fmt::Debug for Fenced<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.read(|value, seen| {
            f.debug_struct("Fenced")
                .field("value", value)
                .field("seen", &seen)
                .finish()
        })
    }
}
