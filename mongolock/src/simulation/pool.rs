use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::sleep;

use crate::sync::lock;

/// The time between two checks of the pool by itself.
const MAINTENANCE: Duration = Duration::from_millis(500);

/// The pool of connections of one client, by the rules of the driver: first come, first served. The pool serves one entry
/// of its queue at each event, which is a request, the end of a command or a check by itself. An entry whose command was
/// dropped stays in the queue and uses up such an event.
pub(super) struct Pool(Mutex<PoolState>);

struct PoolState {
    free: usize,
    waiting: VecDeque<oneshot::Sender<Connection>>,
}

/// A connection that is in use; one that is silent is so until its command is dropped.
pub(super) struct Connection(Option<Arc<Pool>>);

impl Pool {
    /// A pool of this number of connections; 0 for any number.
    pub(super) fn new(connections: usize) -> Arc<Self> {
        let pool = Arc::new(Self(Mutex::new(PoolState {
            free: if connections == 0 { usize::MAX } else { connections },
            waiting: VecDeque::new(),
        })));
        let checked = Arc::downgrade(&pool);
        tokio::spawn(async move {
            while let Some(pool) = checked.upgrade() {
                pool.serve_next();
                drop(pool);
                sleep(MAINTENANCE).await;
            }
        });
        pool
    }

    /// Waits for a connection.
    pub(super) async fn check_out(self: &Arc<Self>) -> Connection {
        let (sender, connection) = oneshot::channel();
        lock(&self.0).waiting.push_back(sender);
        self.serve_next();
        let connection = connection.await;
        // The driver's pool is a task of its own, which wakes the command.
        yield_now().await;
        match connection {
            Ok(connection) => connection,
            Err(_) => unreachable!("the queue drops no entry of a command that waits"),
        }
    }

    /// Gives a free connection to the first entry, even if its command was dropped.
    fn serve_next(self: &Arc<Self>) {
        let waiting = {
            let mut state = lock(&self.0);
            if state.free == 0 {
                return;
            }
            let Some(waiting) = state.waiting.pop_front() else {
                return;
            };
            state.free -= 1;
            waiting
        };
        if let Err(mut unused) = waiting.send(Connection(Some(Arc::clone(self)))) {
            // It goes back without an event.
            unused.0 = None;
            lock(&self.0).free += 1;
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(pool) = self.0.take() {
            lock(&pool.0).free += 1;
            pool.serve_next();
        }
    }
}
