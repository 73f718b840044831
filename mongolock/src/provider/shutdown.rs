use std::time::Duration;

use super::LockProvider;

impl LockProvider {
    /// Shuts down this provider and all its clones at once: releases all locks, and returns when the server has
    /// confirmed the releases. [`shutdown_after`](Self::shutdown_after) first lets running work end.
    ///
    /// New and waiting acquisitions return [`LockError::ShutDown`](crate::LockError::ShutDown), and held locks are lost
    /// with [`LossReason::ShutDown`](crate::LossReason::ShutDown): the bodies of annotated functions are cancelled. If
    /// the server does not confirm the releases, the call waits for 15 s; the remaining leases then expire. It waits for a
    /// mark of finished work while the lease lasts, because otherwise the work would run again. That lease is renewed for
    /// one `expiry` after the work, and for 60 s at least. `shutdown_after` limits this wait as well.
    ///
    /// After that, the provider ends its change stream and its requests without a reply, within a second, and sends
    /// nothing by itself any more. The client of a [`connect`](Self::connect) provider is shut down, within 6 s, unless
    /// another provider from [`to_builder`](Self::to_builder) uses it. You must shut down a client of your own: call
    /// the driver's `Client::shutdown` after this. Otherwise one of the driver's tasks may panic when the runtime ends, and
    /// print a message; this is harmless.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let locks = mongolock::LockProvider::in_memory();
    /// locks.shutdown().await;
    /// // client.shutdown().await;
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Once polled, the provider is shut down, even if the future is dropped; the future only waits for the server.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time enabled.
    pub async fn shutdown(&self) {
        self.engine.shut_down(None).await;
    }

    /// Shuts down this provider and all its clones gracefully, as the last step of a program: running work ends first,
    /// for at most the grace period.
    ///
    /// At once, new and waiting acquisitions return [`LockError::ShutDown`](crate::LockError::ShutDown). The only
    /// exception are those inside the body of a hold of this provider (the attribute,
    /// [`run`](crate::DistributedLock::run), or a [`LockContext::scope`](crate::LockContext::scope)): they continue
    /// until the grace period ends, because the body could not end without them. When all locks are released, or when
    /// the grace period ends, the rest is as for [`shutdown`](Self::shutdown): work that still runs is cancelled, and
    /// its locks are lost with [`LossReason::ShutDown`](crate::LossReason::ShutDown).
    ///
    /// With the grace period `grace`, the call takes at most `grace` and 16 s, and 6 s more for a
    /// [`connect`](Self::connect) provider. It returns sooner if MongoDB confirms the releases.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use mongolock::{LockError, LockProvider};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let locks = LockProvider::in_memory();
    /// let running = tokio::spawn(locks.lock("report:1").run(async |_| {
    ///     tokio::time::sleep(Duration::from_millis(50)).await;
    ///     Ok::<_, LockError>("done")
    /// }));
    /// # tokio::task::yield_now().await;
    /// locks.shutdown_after(Duration::from_secs(20)).await;
    /// assert_eq!(running.await.unwrap().unwrap(), "done");
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the grace period: the provider is then shut down as by a dropped
    /// [`shutdown`](Self::shutdown). A call of `shutdown` meanwhile ends it as well.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time enabled.
    pub async fn shutdown_after(&self, grace: Duration) {
        self.engine.shut_down(Some(grace)).await;
    }
}
