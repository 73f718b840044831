//! The syntax of lock names, and their rendered values.

#![deny(warnings)]

use std::sync::Arc;

use mongolock::{LockContext, LockError, LockProvider, distributed_lock};

struct Order {
    region: Arc<Region>,
    lines: (u8, (u8, String)),
}

struct Region {
    id: u16,
}

impl Order {
    fn region(&self) -> &Region {
        &self.region
    }
}

impl Region {
    fn code(&self) -> String {
        format!("R{}", self.id)
    }
}

fn locked() -> Result<String, LockError> {
    Ok(LockContext::current()
        .expect("the body runs under the lock")
        .name()
        .to_owned())
}

#[distributed_lock(name = "plain text, 100 %, größer: [x]/(y)\\\"")]
async fn fixed() -> Result<String, LockError> {
    locked()
}

#[distributed_lock(name = r#"a "raw" one:<id>"#)]
async fn raw_string(id: u8) -> Result<String, LockError> {
    locked()
}

#[distributed_lock(name = "\u{61}:<id>\u{3a}\x62")]
async fn escapes(id: u8) -> Result<String, LockError> {
    locked()
}

#[distributed_lock(name = "<<<id>>>:<<id>>:<id>")]
async fn brackets(id: u8) -> Result<String, LockError> {
    locked()
}

#[distributed_lock(
    name = "<order.region.id>:<order.lines.1.0>:<order.lines.1.1>:<order.region().code()>:<order.lines.0>"
)]
async fn paths(order: &Order) -> Result<String, LockError> {
    locked()
}

#[distributed_lock(name = "<größe>")]
async fn unicode(größe: char) -> Result<String, LockError> {
    locked()
}

#[distributed_lock(name = "<text>:<boxed>:<number>:<truth>")]
async fn kinds(text: &&str, boxed: Box<str>, number: f64, truth: bool) -> Result<String, LockError> {
    locked()
}

#[tokio::test]
async fn names_are_rendered() -> Result<(), LockError> {
    LockProvider::in_memory()
        .scope(async {
            assert_eq!(fixed().await?, "plain text, 100 %, größer: [x]/(y)\\\"");
            assert_eq!(raw_string(1).await?, "a \"raw\" one:1");
            assert_eq!(escapes(1).await?, "a:1:b");
            assert_eq!(brackets(1).await?, "<1>:<id>:1");
            let order = Order {
                region: Arc::new(Region { id: 5 }),
                lines: (1, (2, "x".to_owned())),
            };
            assert_eq!(paths(&order).await?, "5:2:x:R5:1");
            assert_eq!(unicode('x').await?, "x");
            assert_eq!(kinds(&"a", "b".into(), 1.5, true).await?, "a:b:1.5:true");
            assert!(matches!(
                kinds(&"", "b".into(), 1.5, true).await,
                Err(LockError::InvalidName { .. })
            ));
            Ok(())
        })
        .await
}

#[distributed_lock(name = ["account:<from>", "account:<to>"])]
async fn transfer(from: u64, to: u64) -> Result<(String, Vec<String>), LockError> {
    let lock = LockContext::current().expect("the body runs under the locks");
    assert_eq!(Some(lock.fencing_token()), lock.fencing_token_of(lock.name()));
    Ok((lock.name().to_owned(), lock.names().map(str::to_owned).collect()))
}

#[distributed_lock(name = ["account:<from>", "account:<to>"], on_busy = "skip")]
async fn transfer_unless_busy(from: u64, to: u64) -> Result<Option<u64>, LockError> {
    Ok(Some(from + to))
}

#[distributed_lock(name = ["account:<from>", "total"], on_busy = "fail", on_lost = "continue", expiry = "20s")]
async fn withdraw(from: u64) -> Result<u64, LockError> {
    Ok(from)
}

#[tokio::test]
async fn a_list_of_names_is_acquired_together() {
    let locks = LockProvider::in_memory();
    let names = ["account:3", "account:7"].map(str::to_owned).to_vec();
    let outcome = locks.scope(transfer(7, 3)).await.unwrap();
    assert_eq!(outcome, ("account:7".to_owned(), names));
    // Two values that give one name are one lock.
    assert_eq!(locks.scope(transfer(7, 7)).await.unwrap().1, ["account:7"]);

    let other = locks.to_builder().build().unwrap();
    let held = other.lock("account:3").await.unwrap();
    assert_eq!(locks.scope(transfer_unless_busy(7, 3)).await.unwrap(), None);
    assert_eq!(locks.scope(transfer_unless_busy(7, 4)).await.unwrap(), Some(11));
    let busy = locks.scope(withdraw(3)).await;
    assert!(
        matches!(&busy, Err(LockError::Busy { name, .. }) if name == "account:3"),
        "{busy:?}"
    );
    assert_eq!(locks.scope(withdraw(4)).await.unwrap(), 4);
    held.release().await.unwrap();
    assert_eq!(locks.scope(transfer_unless_busy(7, 3)).await.unwrap(), Some(10));
}
