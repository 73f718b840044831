use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use tokio::runtime::Handle;

use crate::LockProvider;
use crate::home::is_home;

/// A provider that is shut down when the last clone of its blocking face and the last guard are dropped.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) provider: LockProvider,
}

impl Worker {
    pub(super) fn start(provider: LockProvider) -> Arc<Self> {
        let worker = Arc::new(Self { provider });
        let keeper = Arc::downgrade(&worker);
        // An error says that there is one.
        let _ = worker.provider.engine().keeper.set(keeper);
        worker
    }

    /// Polls a future on the calling thread until it is ready. Its timers, its connections and the tasks that it spawns run
    /// on the thread of the provider.
    pub(super) fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        let runtime = self.provider.engine().runtime();
        let _entered = runtime.as_ref().map(Handle::enter);
        wait(future)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let provider = self.provider.clone();
        // A mark must not keep the thread that drops the last provider for as long as its lease lasts.
        let shutdown = async move { provider.shutdown_after(Duration::ZERO).await };
        match self.provider.engine().runtime() {
            // A task of the provider's thread may drop the last guard: that thread cannot wait for itself.
            Some(runtime) if is_home() => drop(runtime.spawn(shutdown)),
            _ => self.wait(shutdown),
        }
    }
}

/// Polls a future on the calling thread until it is ready.
pub(super) fn wait<T>(future: impl Future<Output = T>) -> T {
    let signal = Arc::new(Signal(AtomicBool::new(false), thread::current()));
    let waker = Waker::from(Arc::clone(&signal));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        while !signal.0.swap(false, Ordering::Acquire) {
            thread::park();
        }
    }
}

/// Wakes one waiting call of a thread. Each call has its own: a call inside a body must not use up the signal of the call around it.
struct Signal(AtomicBool, Thread);

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
        self.1.unpark();
    }
}
