//! A program without async code: threads under a lock, one at a time, also beside async programs that use the same lock.
//!
//! ```text
//! cargo run -p mongolock --example blocking
//! MONGODB_URI=mongodb://localhost cargo run -p mongolock --example blocking
//! ```
//!
//! With `MONGODB_URI`, start it in two terminals: the threads of both processes take turns. Without it the locks are kept in
//! memory.
//! A copy in `src/main.rs` needs `cargo add mongolock anyhow`.

use std::env;
use std::thread;
use std::time::Duration;

use mongolock::LockError;
use mongolock::blocking::LockProvider;

/// The body may block for as long as it likes: a thread of the provider renews the lease.
fn import(locks: &LockProvider, file: &str) -> Result<usize, LockError> {
    let import = locks.lock("import").acquire_timeout(Duration::from_secs(60));
    locks.run(&import, |lock| {
        println!("{file} begins");
        let mut rows = 0;
        for _ in 0..3 {
            // The work. A lost lock cannot cancel code that does not await, so the code asks between its steps.
            thread::sleep(Duration::from_millis(20));
            lock.ensure_held()?;
            rows += 100;
        }
        println!("{file} ends with {rows} rows");
        Ok(rows)
    })
}

fn main() -> anyhow::Result<()> {
    let locks = match env::var("MONGODB_URI") {
        Ok(uri) => LockProvider::connect(uri)?,
        Err(_) => LockProvider::in_memory()?,
    };
    let rows = thread::scope(|scope| {
        let imports = ["a.csv", "b.csv", "c.csv"].map(|file| scope.spawn(|| import(&locks, file)));
        let ended = imports.into_iter().map(|import| import.join().expect("no panic"));
        ended.sum::<Result<usize, LockError>>()
    })?;
    // What has no method of its own is a future of the async interface.
    let free = locks.wait(locks.lock("import").try_acquire())?.is_some();
    println!("{rows} rows are imported, the lock is free: {free}");
    Ok(())
} // The provider is dropped: all locks are released, and its thread ends.
