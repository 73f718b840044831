//! What an actor does with a lock, a set of locks or a permit: one turn, whose steps it tells for a history.

use std::time::Duration;

use mongolock::{LockContext, LockError, LockGuard, LockProvider, Permit};
use mongolock_tests::{Event, Outcome, Step, monotonic_now, tell};
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

/// In histories a turn with the permit of number `n` has the number of its task and `n + 1` times this.
pub(crate) const TASKS_OF_PERMIT: usize = 1000;

/// What is acquired.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Act {
    Lock,
    /// Three locks, named in either order.
    Set,
    /// A permit of a semaphore with so many.
    Permit(u32),
}

/// What was acquired.
pub(crate) enum Held {
    Lock(LockGuard),
    Permit(Permit),
}

impl Act {
    /// The names of the locks of a set.
    pub(crate) fn set(name: &str) -> [String; 3] {
        [name.to_owned(), format!("{name}:2"), format!("{name}:3")]
    }

    /// Acquires what has this name, with the options of the provider.
    pub(crate) async fn acquire(self, provider: &LockProvider, name: &str) -> Result<Held, LockError> {
        Ok(match self {
            Self::Lock => Held::Lock(provider.lock(name).await?),
            Self::Set => {
                let mut names = Self::set(name);
                if fastrand::bool() {
                    names.reverse();
                }
                Held::Lock(provider.lock_all(names).await?)
            }
            Self::Permit(permits) => Held::Permit(provider.semaphore(name, permits).await?),
        })
    }
}

impl Held {
    pub(crate) fn context(&self) -> LockContext {
        match self {
            Self::Lock(guard) => guard.context(),
            Self::Permit(permit) => permit.context(),
        }
    }

    pub(crate) async fn release(self) -> Result<(), LockError> {
        match self {
            Self::Lock(guard) => guard.release().await,
            Self::Permit(permit) => permit.release().await,
        }
    }

    fn first_task(&self) -> usize {
        match self {
            Self::Lock(_) => 0,
            Self::Permit(permit) => (permit.number() as usize + 1) * TASKS_OF_PERMIT,
        }
    }
}

/// One turn of a task with a section of a few milliseconds. It returns the context of the hold.
pub(crate) async fn take_turn(
    act: Act,
    provider: &LockProvider,
    name: &str,
    task: usize,
) -> Result<LockContext, LockError> {
    tell(&Event::now(task, Step::Invoke));
    let acquiring = async {
        let held = act.acquire(provider, name).await?;
        let begun = acquired(&held.context())?;
        Ok((held, begun))
    };
    let (held, begun) = acquiring
        .await
        .inspect_err(|_: &LockError| tell(&Event::now(task, Step::NotAcquired)))?;
    let (context, task) = (held.context(), task + held.first_task());
    tell(&Event { task, ..begun });
    tokio::select! {
        () = sleep(Duration::from_millis(fastrand::u64(1..=5))) => {}
        () = context.lost() => {}
    }
    tell(&Event {
        task,
        ..ended(&context)
    });
    context.ensure_held()?;
    let released = held.release().await;
    let outcome = match &released {
        Ok(()) => Outcome::Ok,
        Err(LockError::Lost { .. }) => Outcome::Failed,
        Err(_) => Outcome::Unknown,
    };
    tell(&Event::now(task, Step::Released(outcome)));
    released.map(|()| context)
}

/// The tokens of a hold in the order of the names; a permit has none.
pub(crate) fn tokens(context: &LockContext) -> impl Iterator<Item = i64> {
    let tokens = context.names().filter_map(|name| context.fencing_token_of(name));
    tokens.map(mongolock::FencingToken::get)
}

/// The step of a holder that has just begun; an error if it has lost the lock since. The clock is read first: the lock is
/// held at this time if it is held after it.
pub(crate) fn acquired(context: &LockContext) -> Result<Event, LockError> {
    let step = Step::Acquired {
        token: tokens(context).next(),
        lease: context.remaining(),
    };
    let event = Event::now(0, step);
    context.ensure_held()?;
    Ok(event)
}

/// The step of a holder whose section ends.
pub(crate) fn ended(context: &LockContext) -> Event {
    let at = monotonic_now();
    let is_lost = context.is_lost();
    Event::at(0, at, Step::Ended { is_lost })
}
