use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use crate::lock::Target;
use crate::name::RenderedName;
use crate::timing::FAILED_PAUSE;
use crate::{
    DistributedLock, IntoLockName, Lock, LockAdmin, LockContext, LockError, LockEvents, LockFilter, LockInfo,
    LockOutput, LockProvider, LockState, LossReason, OnLost,
};

/// An election with one leader in all processes; made by [`LockProvider::leader`].
///
/// The leader is the process that holds the lock of this name. [`run`](Self::run) takes part in the election, and
/// [`current`](Self::current) and [`watch`](Self::watch) report the leader, also in a process that is not a candidate.
///
/// ```
/// use std::time::Duration;
///
/// use mongolock::{LockContext, LockError, LockProvider};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), LockError> {
/// # let locks = LockProvider::in_memory();
/// let billing = locks.leader("billing").expiry(Duration::from_secs(10));
/// let token = billing
///     .run(async |lead: LockContext| {
///         // This process leads. What it writes has this token, so that a former leader cannot write after it.
///         Ok::<_, LockError>(lead.fencing_token())
///     })
///     .await?;
/// # let _ = token;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "nobody leads before it is run"]
pub struct Leader {
    lock: DistributedLock,
    admin: LockAdmin,
}

impl LockProvider {
    /// Makes the election of this name: its leader holds the lock of the name. The name is a value as for [`lock`](Self::lock); in
    /// metrics and spans its template is `leader:<name>` if it has none of its own.
    pub fn leader(&self, name: impl IntoLockName) -> Leader {
        let mut name = RenderedName::new(name);
        name.template.get_or_insert("leader:<name>");
        Leader {
            lock: Lock::new(&self.engine, Target::one(name, None)).acquire_timeout(None),
            admin: self.admin(),
        }
    }
}

impl Leader {
    /// How long the leader keeps the lead without a renewal: the time after which a leader that has crashed is replaced. 100 ms to 7
    /// days, as [`expiry`](crate::DistributedLock::expiry) of a lock.
    pub fn expiry(mut self, expiry: Duration) -> Self {
        self.lock = self.lock.expiry(expiry);
        self
    }

    /// What happens to the body when the lead is lost: [`OnLost::Cancel`] unless it is set.
    pub fn on_lost(mut self, on_lost: OnLost) -> Self {
        Arc::make_mut(&mut self.lock.options).on_lost = on_lost;
        self
    }

    /// Takes part in the election: waits until this process leads, however long that takes, and runs the body. When the lead is lost,
    /// the body is cancelled at its next await point, and the wait begins again. The call ends when the body returns, with its value.
    ///
    /// Start-up work of the body may take longer than the expiry, because the lease is renewed meanwhile. To resign,
    /// return from the body. If this process then calls `run` again, a process that already waits leads before it.
    ///
    /// With [`OnLost::Continue`] the body continues after a loss, at the same time as the next leader. It should watch
    /// [`LockContext::lost`] and return.
    ///
    /// # Errors
    ///
    /// The error of the body. Otherwise a [`LockError`], converted into the body's error type: [`LockError::ShutDown`] after
    /// [`LockProvider::shutdown`], and errors that would occur again: [`LockError::Mongo`] if the server refuses the
    /// command, [`LockError::CorruptDocument`], [`LockError::InvalidName`], [`LockError::InvalidOption`]. While no
    /// server replies the call continues, with the event `mongolock.retrying`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the body first, and then releases the lock in the background, so that another process
    /// can lead at once.
    ///
    /// # Panics
    ///
    /// If the body panics: the panic continues after the release. Outside a tokio runtime with time enabled.
    pub async fn run<F, B, T>(&self, mut body: F) -> T
    where
        F: FnMut(LockContext) -> B,
        B: Future<Output = T>,
        T: LockOutput,
    {
        loop {
            let lead = self.lock.run(|lead| led(body(lead)));
            match lead.await {
                Ok(value) => return value,
                Err(LockError::Lost {
                    name,
                    reason: LossReason::ShutDown,
                    ..
                }) => {
                    return T::from_lock_error(LockError::ShutDown { name });
                }
                Err(LockError::Lost { .. }) => {}
                Err(error) if error.meaning().passes() => sleep(FAILED_PAUSE).await,
                Err(error) => return T::from_lock_error(error),
            }
        }
    }

    /// The leader, and since when it leads: `owner` and `acquired_at` of the lock; `None` if there is no leader.
    ///
    /// # Errors
    ///
    /// Those of [`LockAdmin::get`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is changed.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time enabled.
    pub async fn current(&self) -> Result<Option<LockInfo>, LockError> {
        let found = self.admin.get(self.lock.name()).await?;
        Ok(found.filter(|lock| lock.state == LockState::Held))
    }

    /// The leader and each change of the leader, as [events](LockAdmin::events) of the lock. A slow reader does not
    /// delay an election.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), mongolock::LockError> {
    /// # let locks = mongolock::LockProvider::in_memory();
    /// # let _lead = locks.lock("billing").await?;
    /// let mut changes = locks.leader("billing").watch();
    /// while let Some(change) = changes.next().await {
    ///     let change = change?;
    ///     match change.owner {
    ///         Some(leader) if change.kind.is_held() => println!("{leader} leads"),
    ///         _ => println!("nobody leads"),
    ///     }
    /// #   break;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn watch(&self) -> LockEvents {
        self.admin.events(LockFilter::new().name(self.lock.name()))
    }
}

/// The value of a body, apart from the errors of its lock.
async fn led<T>(body: impl Future<Output = T>) -> Result<T, LockError> {
    Ok(body.await)
}
