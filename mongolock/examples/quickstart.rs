//! One call at a time for each report, across all processes that share a MongoDB.
//!
//! ```text
//! cargo run -p mongolock --example quickstart
//! MONGODB_URI=mongodb://localhost cargo run -p mongolock --example quickstart
//! ```
//!
//! Without `MONGODB_URI` the locks are kept in memory. With it they are kept in the database that it names (`mongolock` if
//! it names none): start the program in two terminals, and the calls of both processes take turns.
//! A copy in `src/main.rs` needs `cargo add mongolock anyhow tokio --features tokio/full`.

use std::env;
use std::time::Duration;

use mongolock::{LockContext, LockError, LockProvider, distributed_lock};

/// `<id>` is the argument, so calls for different reports do not wait for each other. A call waits for up to 10 s. The
/// attribute fills in the argument `lock`; callers do not pass it.
#[distributed_lock(name = "report:<id>")]
async fn rebuild_report(id: u32, caller: &str, #[lock] lock: LockContext) -> Result<(), LockError> {
    println!(
        "{caller} begins report {id} with fencing token {}",
        lock.fencing_token()
    );
    // The work.
    tokio::time::sleep(Duration::from_millis(200)).await;
    println!("{caller} ends report {id}");
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let locks = match env::var("MONGODB_URI") {
        Ok(uri) => LockProvider::connect(uri).await?,
        Err(_) => LockProvider::in_memory(),
    };
    // Every function with the attribute uses the global provider, unless it names another one.
    locks.clone().set_global()?;

    let calls = tokio::try_join!(
        rebuild_report(42, "caller 1"),
        rebuild_report(42, "caller 2"),
        rebuild_report(7, "caller 3"),
    );
    match calls {
        Ok(_) => println!("all reports are rebuilt"),
        Err(LockError::Timeout { name, .. }) => println!("another process still holds {name}"),
        Err(error) => return Err(error.into()),
    }
    // Waits until the server has confirmed the releases.
    locks.shutdown().await;
    Ok(())
}
