//! Unit tests of code with locks, without a server: `cargo test -p mongolock --example unit_tests`.
//!
//! The locks of `in_memory` behave as those on MongoDB do, within one process. `scope` sets them for one task, so that
//! tests run in parallel.
//! A copy in `src/main.rs` needs `cargo add mongolock tokio --features tokio/full,tokio/test-util`.

use mongolock::{Busy, LockError, LockProvider, distributed_lock};

struct Invoice(u32);

/// The code under test. It uses the global provider, or the one of the enclosing `scope`.
#[distributed_lock(name = "invoice:<invoice.0>", on_busy = in_progress)]
async fn send(invoice: Invoice) -> Result<String, LockError> {
    Ok(format!("invoice {} is sent", invoice.0))
}

/// Makes the result if the lock is held. It gets a reference to each argument.
fn in_progress(invoice: &Invoice, busy: &Busy) -> Result<String, LockError> {
    let holder = busy.holder.as_ref();
    let holder = holder.ok_or_else(|| LockError::busy(busy.clone()))?;
    Ok(format!("{holder} is sending invoice {}", invoice.0))
}

#[tokio::main]
async fn main() -> Result<(), LockError> {
    let sending = LockProvider::in_memory().scope(send(Invoice(7)));
    println!("{}", sending.await?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_invoice_that_another_process_sends_is_busy() {
        let locks = LockProvider::in_memory();
        // A second provider on the same locks stands for another process.
        let others = locks.to_builder().owner("billing-2").build().unwrap();
        let held = others.lock("invoice:7").await.unwrap();
        let busy = locks.scope(send(Invoice(7))).await.unwrap();
        assert_eq!(busy, "billing-2 is sending invoice 7");
        held.release().await.unwrap();
        let sent = locks.scope(send(Invoice(7))).await.unwrap();
        assert_eq!(sent, "invoice 7 is sent");
    }

    /// With the paused clock of tokio the expiry passes at once.
    #[tokio::test(start_paused = true)]
    async fn an_invoice_can_be_sent_after_the_other_process_died() {
        let locks = LockProvider::in_memory();
        // With `max_hold` the lease is never renewed, as after a crash.
        let others = locks.to_builder().max_hold(std::time::Duration::ZERO);
        let held = others.build().unwrap().lock("invoice:7").await.unwrap();
        tokio::time::sleep(std::time::Duration::from_secs(300)).await;
        assert!(held.is_lost());
        assert!(locks.scope(send(Invoice(7))).await.is_ok());
    }
}
