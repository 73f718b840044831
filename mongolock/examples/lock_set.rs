//! Two accounts are locked together, all or nothing: transfers in opposite directions do not block each other.
//!
//! ```text
//! cargo run -p mongolock --example lock_set
//! MONGODB_URI=mongodb://localhost cargo run -p mongolock --example lock_set
//! ```
//!
//! Without `MONGODB_URI` the locks are kept in memory. With it they are kept in the database that it names (`mongolock` if
//! it names none).

use std::env;
use std::sync::Mutex;
use std::time::Duration;

use mongolock::{LockError, LockName, LockProvider, distributed_lock};

/// The lock of an account. Two functions use it, so its name is declared once.
#[derive(LockName)]
#[lock("account:<0>")]
struct Account(usize);

/// The balances of the accounts 1 and 2. A service would keep them in a database.
static BALANCES: Mutex<[i64; 2]> = Mutex::new([100, 100]);

fn balance(account: usize) -> i64 {
    BALANCES.lock().expect("no thread has panicked")[account - 1]
}

fn set_balance(account: usize, balance: i64) {
    BALANCES.lock().expect("no thread has panicked")[account - 1] = balance;
}

/// Moves money from one account to another. The order of the names does not matter.
async fn transfer(locks: &LockProvider, from: usize, to: usize, amount: i64) -> Result<(), LockError> {
    let accounts = locks.lock_all([Account(from), Account(to)]);
    accounts
        .run(async |lock| {
            let (paying, receiving) = (balance(from), balance(to));
            // The work takes its time. Without the locks another transfer would change the balances meanwhile.
            tokio::time::sleep(Duration::from_millis(10)).await;
            set_balance(from, paying - amount);
            set_balance(to, receiving + amount);
            let names: Vec<_> = lock.names().collect();
            println!("{amount} from {from} to {to}, under {}", names.join(" and "));
            Ok(())
        })
        .await
}

/// Waits for a transfer from or to this account.
#[distributed_lock(name = Account(account), provider = locks)]
async fn statement(locks: &LockProvider, account: usize) -> Result<String, LockError> {
    Ok(format!("account {account} has {}", balance(account)))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let locks = match env::var("MONGODB_URI") {
        Ok(uri) => LockProvider::connect(uri).await?,
        Err(_) => LockProvider::in_memory(),
    };
    for _ in 0..5 {
        // Both need both accounts, and name them in opposite orders.
        tokio::try_join!(transfer(&locks, 1, 2, 30), transfer(&locks, 2, 1, 10))?;
    }
    println!("{}, {}", statement(&locks, 1).await?, statement(&locks, 2).await?);
    locks.shutdown().await;
    Ok(())
}
