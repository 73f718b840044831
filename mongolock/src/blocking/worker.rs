use std::future::Future;
use std::sync::mpsc;
use std::thread::JoinHandle;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use crate::error::failure::Failure;
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
    /// Starts the thread, and makes its provider there.
    pub(super) fn start<F>(make: F) -> Result<Self, LockError>
    where
        F: Future<Output = Result<LockProvider, LockError>> + Send + 'static,
    {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| LockError::Mongo(error.into()))?;
        let handle = runtime.handle().clone();
        let (running, ended) = oneshot::channel::<LockProvider>();
        let run = move || {
            runtime.block_on(async {
                if let Ok(provider) = ended.await {
                    provider.shutdown().await;
                }
            });
        };
        let thread = std::thread::Builder::new()
            .name("mongolock".to_owned())
            .spawn(run);
        let thread = thread.map_err(|error| LockError::Mongo(error.into()))?;
        // Without a provider, dropping `running` ends the thread.
        let provider = wait_on(&handle, make)??;
        Ok(Self {
            handle,
            running: Some(running),
            thread: Some(thread),
            provider,
        })
    }

    pub(super) fn provider(&self) -> &LockProvider {
        &self.provider
    }

    /// Runs a future on the thread of the provider, and waits for its output.
    pub(super) fn wait<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, LockError> {
        wait_on(&self.handle, future)
    }
}

fn wait_on<T: Send + 'static>(
    handle: &Handle,
    future: impl Future<Output = T> + Send + 'static,
) -> Result<T, LockError> {
    let (sender, receiver) = mpsc::sync_channel(1);
    handle.spawn(async move {
        // It fails only if the waiting thread is gone, and that waits without a limit.
        let _ = sender.send(future.await);
    });
    receiver.recv().map_err(|_| Failure::RuntimeEnded.into_error())
}

impl Drop for Worker {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            // An error gives the provider back: the thread has ended.
            let _ = running.send(self.provider.clone());
        }
        if let Some(thread) = self.thread.take() {
            // An error is a panic of the thread, which was printed.
            let _ = thread.join();
        }
    }
}
