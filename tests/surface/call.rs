//! The program behind `call.py`: it acquires this number of free locks, each in a call of an annotated function, and keeps them.

use std::env;
use std::error::Error;
use std::future::pending;

use mongolock::{LockError, LockProvider, distributed_lock};
use mongolock_tests::test_db;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

#[distributed_lock(name = "call:<number>")]
async fn call(number: u32, begun: UnboundedSender<u32>) -> Result<(), LockError> {
    begun.send(number).ok();
    pending().await
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let Some(calls) = env::args().nth(1).and_then(|calls| calls.parse().ok()) else {
        println!("nothing is counted: run tests/surface/call.py");
        return Ok(());
    };
    let db = test_db().await;
    LockProvider::builder(db.database()).build()?.set_global()?;
    let (begun, mut begins) = unbounded_channel();
    for number in 0..calls {
        let mut calling = Box::pin(call(number, begun.clone()));
        tokio::select! {
            ended = &mut calling => ended?,
            _ = begins.recv() => {}
        }
        // Nothing releases it, so that only acquisitions are counted.
        std::mem::forget(calling);
    }
    Ok(())
}
