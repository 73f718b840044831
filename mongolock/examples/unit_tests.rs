//! Unit tests of code with locks, without a server: `LockProvider::in_memory` and `scope`.
//!
//! ```text
//! cargo test -p mongolock --example unit_tests
//! ```
//!
//! The locks of `in_memory` behave as those on MongoDB do, within one process. `scope` sets them for one task, so that
//! tests run in parallel.

use mongolock::{LockError, LockProvider, distributed_lock};

/// The code under test. It uses the global provider, or the one of the enclosing `scope`.
#[distributed_lock(name = "invoice:<number>", on_busy = "fail")]
async fn send_invoice(number: u32) -> Result<String, LockError> {
    Ok(format!("invoice {number} is sent"))
}

#[tokio::main]
async fn main() -> Result<(), LockError> {
    LockProvider::in_memory().set_global()?;
    println!("{}", send_invoice(7).await?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn an_invoice_is_sent() {
        let locks = LockProvider::in_memory();
        let sent = locks.scope(send_invoice(7)).await;
        assert_eq!(sent.unwrap(), "invoice 7 is sent");
    }

    #[tokio::test]
    async fn an_invoice_that_another_process_sends_is_busy() {
        let locks = LockProvider::in_memory();
        // A second provider on the same locks stands for another process.
        let others = locks.to_builder().owner("another process").build().unwrap();
        let held = others.lock("invoice:7").await.unwrap();

        let busy = locks.scope(send_invoice(7)).await;
        assert!(matches!(busy, Err(LockError::Busy { .. })), "{busy:?}");
        // The name contains the number, so other invoices are not affected.
        assert!(locks.scope(send_invoice(8)).await.is_ok());

        held.release().await.unwrap();
        assert!(locks.scope(send_invoice(7)).await.is_ok());
    }

    /// With the paused clock of tokio (feature `test-util`) an expiry of minutes passes at once.
    #[tokio::test(start_paused = true)]
    async fn an_invoice_can_be_sent_after_the_other_process_died() {
        let locks = LockProvider::in_memory();
        let others = locks.to_builder().build().unwrap();
        // With this cap the lease is never renewed, as after a crash.
        let lock = others
            .lock("invoice:7")
            .expiry(Duration::from_secs(300))
            .max_hold(Duration::ZERO);
        let held = lock.await.unwrap();

        tokio::time::sleep(Duration::from_secs(301)).await;
        assert!(held.is_lost());
        assert!(locks.scope(send_invoice(7)).await.is_ok());
    }
}
