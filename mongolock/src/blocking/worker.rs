use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use crate::sync::lock;
use crate::{LockError, LockProvider};

/// The thread that runs a provider, with a runtime of its own. It ends when the worker is dropped, which shuts the
/// provider down.
pub(super) struct Worker {
    handle: Handle,
    /// Ends the thread when it is dropped.
    running: Option<oneshot::Sender<LockProvider>>,
    thread: Option<JoinHandle<()>>,
    provider: LockProvider,
}

impl Worker {
    /// Starts the thread, and makes its provider.
    pub(super) fn start(
        make: impl Future<Output = Result<LockProvider, LockError>>,
    ) -> Result<Arc<Self>, LockError> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| LockError::Mongo(error.into()))?;
        let handle = runtime.handle().clone();
        let (running, ended) = oneshot::channel::<LockProvider>();
        let run = move || {
            runtime.block_on(async {
                if let Ok(provider) = ended.await {
                    // The thread that drops the last provider must not wait for a mark as long as its lease lasts.
                    provider.shutdown_after(Duration::ZERO).await;
                }
            });
        };
        let thread = thread::Builder::new().name("mongolock".to_owned()).spawn(run);
        let thread = thread.map_err(|error| LockError::Mongo(error.into()))?;
        // Without a provider, dropping `running` ends the thread.
        let provider = wait_on(&handle, make)?;
        let worker = Arc::new(Self {
            handle,
            running: Some(running),
            thread: Some(thread),
            provider,
        });
        let keeper = Arc::downgrade(&worker);
        worker.provider.keep_while_held(keeper);
        Ok(worker)
    }

    pub(super) fn provider(&self) -> &LockProvider {
        &self.provider
    }

    /// Polls a future on the calling thread until it is ready. Its timers, its connections and the tasks that it spawns run
    /// on the thread of the provider.
    pub(super) fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        wait_on(&self.handle, future)
    }
}

fn wait_on<T>(handle: &Handle, future: impl Future<Output = T>) -> T {
    let _entered = handle.enter();
    let signal = Arc::new(Signal::default());
    let waker = Waker::from(Arc::clone(&signal));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        signal.wait();
    }
}

/// Wakes one waiting call. Each call has its own signal: a call inside a body must not use up the signal of the call
/// around it.
#[derive(Default)]
struct Signal {
    is_set: Mutex<bool>,
    set: Condvar,
}

impl Signal {
    fn wait(&self) {
        let is_set = lock(&self.is_set);
        let waited = self.set.wait_while(is_set, |is_set| !*is_set);
        *waited.unwrap_or_else(PoisonError::into_inner) = false;
    }
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        *lock(&self.is_set) = true;
        self.set.notify_one();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            // An error returns the provider: the thread has ended.
            let _ = running.send(self.provider.clone());
        }
        // A task of this runtime may drop the last guard, and its thread cannot wait for itself.
        let thread = self.thread.take();
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != thread::current().id()) {
            // An error is a panic of the thread, which was printed.
            let _ = thread.join();
        }
    }
}
