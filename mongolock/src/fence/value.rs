use std::sync::Mutex;

use crate::sync::lock;
use crate::{FencingToken, LockError};

/// A value in memory that stores the greatest fencing token that has changed it, and refuses changes with a smaller
/// token.
///
/// It is meant for a service whose clients hold locks and send their fencing tokens with each request. Comparing the
/// tokens and changing the value is one step under a mutex. If the value is persisted, store the token with it, and
/// start with [`restored`](Self::restored).
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
#[derive(Debug, Default)]
pub struct Fenced<T> {
    /// With the greatest token that has changed it.
    value: Mutex<(T, Option<FencingToken>)>,
}

impl<T> Fenced<T> {
    /// Makes a value without a token, which accepts every token.
    pub const fn new(value: T) -> Self {
        Self {
            value: Mutex::new((value, None)),
        }
    }

    /// Makes a value that was stored together with the greatest token that had changed it.
    pub const fn restored(value: T, seen: FencingToken) -> Self {
        Self {
            value: Mutex::new((value, Some(seen))),
        }
    }

    /// Changes the value for the holder of this token.
    ///
    /// Other callers block their threads while `change` runs, so it should be short.
    ///
    /// # Errors
    ///
    /// [`LockError::Stale`] if the value has a greater token, and [`LockError::NoFencingToken`] for the token of a permit.
    /// `change` is then not called.
    ///
    /// # Panics
    ///
    /// If `change` panics. The value keeps the changes made before the panic, and can still be used.
    pub fn write<R>(&self, token: FencingToken, change: impl FnOnce(&mut T) -> R) -> Result<R, LockError> {
        if token == FencingToken::NONE {
            return Err(LockError::NoFencingToken);
        }
        let (value, last) = &mut *lock(&self.value);
        if let Some(seen) = last.filter(|seen| *seen > token) {
            return Err(LockError::Stale { token, seen });
        }
        *last = Some(token);
        Ok(change(value))
    }

    /// Reads the value and the greatest token that has changed it, which is `None` if no holder has changed it.
    ///
    /// Other callers block their threads while `look` runs, so it should be short.
    pub fn read<R>(&self, look: impl FnOnce(&T, Option<FencingToken>) -> R) -> R {
        let (value, seen) = &*lock(&self.value);
        look(value, *seen)
    }
}
