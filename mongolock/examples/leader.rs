//! Leader election: each process waits until it is the leader, leads until it loses the lock, and waits again. Meanwhile it
//! follows who leads, to send requests there for instance.
//!
//! ```text
//! MONGODB_URI=mongodb://localhost cargo run -p mongolock --example leader
//! ```
//!
//! Start it in two terminals. End the leader with Ctrl-C: the other process leads at once. Kill it with `kill -9`: the
//! other process leads after the expiry of 10 s. Without `MONGODB_URI` the lock is kept in memory, so this process leads.

use std::env;
use std::time::Duration;

use mongolock::{LockContext, LockError, LockFilter, LockProvider, distributed_lock};

/// Leads as long as the lock is held. When it is lost, the attribute cancels this function at its next await point.
///
/// A short expiry replaces a crashed leader soon, but the leader also loses the lock in every longer outage of MongoDB.
#[distributed_lock(name = "leader:billing", expiry = "10s", acquire_timeout = "none")]
async fn lead(#[lock] lock: LockContext) -> Result<(), LockError> {
    // Pass the token to all data that the leader writes: a leader that was paused does not know that it was replaced.
    println!(
        "{} is the leader, with fencing token {}",
        lock.owner(),
        lock.fencing_token()
    );
    loop {
        tokio::time::sleep(Duration::from_secs(2)).await;
        println!(
            "{} leads; the lease runs for another {:?}",
            lock.owner(),
            lock.remaining()
        );
    }
}

/// Takes part in the election until the provider is shut down.
async fn campaign() -> Result<(), LockError> {
    loop {
        match lead().await {
            Ok(()) | Err(LockError::ShutDown { .. }) => return Ok(()),
            Err(LockError::Lost { .. }) => println!("no longer the leader: waiting to be the next one"),
            // A wait without a limit ends with this error after a minute without a usable reply.
            Err(error @ LockError::Mongo(_)) => {
                eprintln!("no election without MongoDB: {error}");
                tokio::time::sleep(Duration::from_secs(5)).await;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Says who leads, as soon as the server tells it: the holder first, and then each change.
async fn follow(locks: LockProvider) -> Result<(), LockError> {
    let mut events = locks.admin().events(LockFilter::new().name("leader:billing"));
    while let Some(event) = events.next().await {
        let event = event?;
        match event.owner {
            Some(leader) if event.kind.is_held() => println!("follower: {leader} leads"),
            _ => println!("follower: nobody leads ({})", event.kind.as_str()),
        }
    }
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let locks = match env::var("MONGODB_URI") {
        Ok(uri) => LockProvider::connect(uri).await?,
        Err(_) => LockProvider::in_memory(),
    };
    locks.clone().set_global()?;
    let following = tokio::spawn(follow(locks.clone()));
    println!("waiting to be the leader; Ctrl-C ends the program");
    tokio::select! {
        // The signal handler is installed before the campaign begins.
        biased;
        _ = tokio::signal::ctrl_c() => println!("stepping down"),
        outcome = campaign() => outcome?,
    }
    // Releases the lock at the server, so that the next leader does not wait for the expiry, and ends the follower.
    locks.shutdown().await;
    following.await??;
    Ok(())
}
