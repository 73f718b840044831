//! Two accounts are locked together, all or nothing: transfers in opposite directions do not block each other.
//!
//! ```text
//! cargo run -p mongolock --example lock_set
//! MONGODB_URI=mongodb://localhost cargo run -p mongolock --example lock_set
//! ```
//!
//! Without `MONGODB_URI` the locks are kept in memory.
//! A copy in `src/main.rs` needs `cargo add mongolock anyhow tokio --features tokio/full`.

use std::env;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use std::time::Duration;

use mongolock::{LockError, LockName, LockProvider, distributed_lock};

/// The lock of an account. Two functions use it, so its name is declared once.
#[derive(LockName)]
#[lock("account:<0>")]
struct Account(usize);

/// The balances of the accounts 0 and 1. A service would keep them in a database.
static BALANCES: [AtomicI64; 2] = [AtomicI64::new(100), AtomicI64::new(100)];

/// Moves money from one account to another. The order of the names does not matter.
async fn transfer(locks: &LockProvider, from: usize, to: usize, amount: i64) -> Result<(), LockError> {
    let accounts = locks.lock_all([Account(from), Account(to)]);
    let moving = accounts.run(async |_| {
        let (paying, receiving) = (BALANCES[from].load(SeqCst), BALANCES[to].load(SeqCst));
        // The work takes its time. Without the locks another transfer would change the balances meanwhile.
        tokio::time::sleep(Duration::from_millis(10)).await;
        BALANCES[from].store(paying - amount, SeqCst);
        BALANCES[to].store(receiving + amount, SeqCst);
        println!("{amount} from account {from} to account {to}");
        Ok(())
    });
    moving.await
}

/// Waits for a transfer from or to this account.
#[distributed_lock(name = Account(account), provider = locks)]
async fn statement(locks: &LockProvider, account: usize) -> Result<String, LockError> {
    let balance = BALANCES[account].load(SeqCst);
    Ok(format!("account {account} has {balance}"))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let locks = match env::var("MONGODB_URI") {
        Ok(uri) => LockProvider::connect(uri).await?,
        Err(_) => LockProvider::in_memory(),
    };
    for _ in 0..5 {
        // Both need both accounts, and name them in opposite orders.
        tokio::try_join!(transfer(&locks, 0, 1, 30), transfer(&locks, 1, 0, 10))?;
    }
    println!("{}, {}", statement(&locks, 0).await?, statement(&locks, 1).await?);
    locks.shutdown().await;
    Ok(())
}
