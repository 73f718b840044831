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
