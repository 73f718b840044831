//! Leader election: of all processes one leads, and another one takes its place when it ends or fails.
//!
//! ```text
//! MONGODB_URI=mongodb://localhost cargo run -p mongolock --example leader
//! ```
//!
//! Start it in two terminals. End the leader with Ctrl-C: the other process leads at once. Kill it with `kill -9`: the
//! other process leads after the expiry of 10 s. Without `MONGODB_URI` the lock is kept in memory, so this process leads.
//! A copy in `src/main.rs` needs `cargo add mongolock anyhow tokio --features tokio/full`.

use std::env;
use std::time::Duration;

use mongolock::{LockContext, LockError, LockProvider};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let locks = match env::var("MONGODB_URI") {
        Ok(uri) => LockProvider::connect(uri).await?,
        Err(_) => LockProvider::in_memory(),
    };
    let billing = locks.leader("billing").expiry(Duration::from_secs(10));
    let mut changes = billing.watch();
    tokio::spawn(async move {
        while let Some(Ok(change)) = changes.next().await {
            println!(
                "follower: {} {}",
                change.kind.as_str(),
                change.owner.unwrap_or_default()
            );
        }
    });
    println!("waiting to be the leader; Ctrl-C ends the program");
    let leading = billing.run(async |lead: LockContext| {
        // Pass the token to all data that the leader writes: a paused leader does not know that it was replaced.
        println!("{} leads, with token {}", lead.owner(), lead.fencing_token());
        tokio::time::sleep(Duration::from_secs(3600)).await;
        Ok::<_, LockError>(())
    });
    tokio::select! {
        biased;
        _ = tokio::signal::ctrl_c() => println!("stepping down"),
        done = leading => done?,
    }
    locks.shutdown().await;
    Ok(())
}
