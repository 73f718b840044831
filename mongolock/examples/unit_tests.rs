//! Unit tests of code with locks, without a server: `LockProvider::in_memory` and `scope`.
//!
//! ```text
//! cargo test -p mongolock --example unit_tests
//! ```
//!
//! The locks of `in_memory` behave as those on MongoDB do, within one process. `scope` sets them for one task, so that
//! tests run in parallel.

use mongolock::{Busy, LockError, LockProvider, distributed_lock};

/// An invoice with its number.
struct Invoice(u32);

/// The code under test. It uses the global provider, or the one of the enclosing `scope`.
#[distributed_lock(name = "invoice:<invoice.0>", on_busy = in_progress)]
async fn send_invoice(invoice: Invoice) -> Result<String, LockError> {
    Ok(format!("invoice {} is sent", invoice.0))
}

/// Makes the result if the lock is held. It gets a reference to each argument.
fn in_progress(invoice: &Invoice, busy: &Busy) -> Result<String, LockError> {
    match &busy.holder {
        Some(holder) => Ok(format!("{holder} is sending invoice {}", invoice.0)),
        None => Err(LockError::busy(busy.clone())),
    }
}

#[tokio::main]
async fn main() -> Result<(), LockError> {
    LockProvider::in_memory().set_global()?;
    println!("{}", send_invoice(Invoice(7)).await?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn an_invoice_is_sent() {
        let locks = LockProvider::in_memory();
        let sent = locks.scope(send_invoice(Invoice(7))).await;
        assert_eq!(sent.unwrap(), "invoice 7 is sent");
    }

    #[tokio::test]
    async fn an_invoice_that_another_process_sends_is_busy() {
        let locks = LockProvider::in_memory();
        // A second provider on the same locks stands for another process.
        let others = locks.to_builder().owner("another process").build().unwrap();
        let held = others.lock("invoice:7").await.unwrap();

        let busy = locks.scope(send_invoice(Invoice(7))).await;
        assert_eq!(busy.unwrap(), "another process is sending invoice 7");
        // The name contains the number, so other invoices are not affected.
        assert_eq!(
            locks.scope(send_invoice(Invoice(8))).await.unwrap(),
            "invoice 8 is sent"
        );

        held.release().await.unwrap();
        assert_eq!(
            locks.scope(send_invoice(Invoice(7))).await.unwrap(),
            "invoice 7 is sent"
        );
    }

    /// No lock is needed for the cases that are hard to bring about.
    #[test]
    fn a_holder_without_a_name_is_an_error() {
        let busy = in_progress(&Invoice(7), &Busy::new("invoice:7"));
        assert!(matches!(busy, Err(LockError::Busy { .. })), "{busy:?}");
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
        assert_eq!(
            locks.scope(send_invoice(Invoice(7))).await.unwrap(),
            "invoice 7 is sent"
        );
    }
}
