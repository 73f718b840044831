//! The syntax of lock names, and their rendered values.

#![deny(warnings)]

use std::fmt::{self, Display, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use mongolock::{Busy, LockContext, LockError, LockName, LockProvider, distributed_lock};

use super::locked;

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

#[distributed_lock(name = "plain text, 100 %, größer: [x]/(y)\\\"")]
async fn fixed() -> Result<String, LockError> {
    locked()
}

#[distributed_lock(name = "\u{61}:<id>\u{3a}\x62")]
async fn escapes(id: u8) -> Result<String, LockError> {
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
            assert_eq!(escapes(1).await?, "a:1:b");
            let order = Order {
                region: Arc::new(Region { id: 5 }),
                lines: (1, (2, "x".to_owned())),
            };
            assert_eq!(paths(&order).await?, "5:2:x:R5:1");
            assert_eq!(unicode('x').await?, "x");
            assert_eq!(kinds(&"a", "b".into(), 1.5, true).await?, "a:b:1.5:true");
            let empty = kinds(&"", "b".into(), 1.5, true).await;
            assert!(matches!(empty, Err(LockError::InvalidName { .. })));
            Ok(())
        })
        .await
}

#[distributed_lock(name = "limits:<first>:<second>")]
async fn limits(first: impl Display, second: impl Display) -> Result<String, LockError> {
    locked()
}

/// Writes this many kilobytes, and counts those that were accepted.
struct Kilobytes(usize, AtomicUsize);

impl Display for Kilobytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for _ in 0..self.0 {
            f.write_str(&"k".repeat(1024))?;
            self.1.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Writes a text whether it is accepted or not.
struct Careless(String);

impl Display for Careless {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let _ = f.write_str(&self.0);
        let _ = f.write_char('z');
        Ok(())
    }
}

/// Writes a part of its text, and then fails.
struct Broken(&'static str);

impl Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)?;
        Err(fmt::Error)
    }
}

/// The reason why the name is refused, by the attribute and by `lock`.
async fn reasons(first: impl Display, second: impl Display) -> [String; 2] {
    let provider = LockProvider::in_memory();
    let by_hand = provider.lock(format_args!("limits:{first}:{second}")).acquire();
    let by_hand = by_hand.await.map(|guard| guard.name().to_owned());
    let attribute = provider.scope(limits(first, second)).await;
    [attribute, by_hand].map(|outcome| match outcome {
        Err(error @ LockError::InvalidName { .. }) => {
            assert!(error.to_string().len() < 400, "{} bytes", error.to_string().len());
            error.to_string()
        }
        other => panic!("{:?}", other),
    })
}

#[tokio::test]
async fn a_long_value_is_not_rendered_to_its_end() {
    let huge = Kilobytes(16 * 1024, AtomicUsize::new(0));
    for reason in reasons(&huge, "").await {
        assert!(reason.contains("longer than 1024 bytes"), "{}", reason);
    }
    let written = huge.1.load(Ordering::Relaxed);
    assert!(written < 4, "{} KiB were accepted", written);
    let after = reasons("", &Kilobytes(1, AtomicUsize::new(0))).await;
    let said = &after[0];
    assert!(said.contains("`<first>` rendered to an empty string"), "{}", said);
}

/// The limit can lie inside a character: what is kept then has fewer bytes than a valid name may have.
#[tokio::test]
async fn a_name_that_was_cut_is_never_valid() {
    let fits = "n".repeat(1024 - "limits::".len() - 3);
    for end in ["😀", "😀1", "éé", "é\u{301}", "1234"] {
        for value in [
            Careless(format!("{fits}{end}")),
            Careless(format!("{fits}x{end}")),
        ] {
            for reason in reasons(&value, "a").await {
                assert!(reason.contains("longer than 1024 bytes"), "{}", reason);
            }
        }
    }
}

#[tokio::test]
async fn a_value_that_cannot_be_rendered_is_refused() {
    for value in [Broken(""), Broken("part")] {
        let [attribute, by_hand] = reasons(&value, 1).await;
        assert!(attribute.contains("`<first>`"), "{}", attribute);
        for reason in [attribute, by_hand] {
            assert!(reason.contains("its `Display` returned an error"), "{}", reason);
        }
        let admin = LockProvider::in_memory().admin();
        for refused in [
            admin.get(&value).await.map(|_| ()),
            admin.force_release(&value).await.map(|_| ()),
        ] {
            let is_refused = matches!(refused, Err(LockError::InvalidName { .. }));
            assert!(is_refused, "{:?}", refused);
        }
    }
}

#[distributed_lock(name = ["account:<from>", "account:<to>"])]
async fn transfer(from: u64, to: u64, #[lock] lock: LockContext) -> Result<(String, Vec<String>), LockError> {
    assert_eq!(lock.template(), Some("account:<from>"));
    assert_eq!(Some(lock.fencing_token()), lock.fencing_token_of(lock.name()));
    Ok((lock.name().to_owned(), lock.names().map(str::to_owned).collect()))
}

#[derive(LockName)]
enum Ledger {
    #[lock("ledger:<year>")]
    Year { year: u16 },
}

fn busy_with(from: &u64, year: &u16, busy: &Busy) -> Result<(String, Option<&'static str>), LockError> {
    assert_eq!((*from, *year), (3, 2026));
    Ok((busy.name.clone(), None))
}

#[distributed_lock(name = [Ledger::Year { year }, "account:<from>"], on_busy = busy_with)]
async fn book(
    from: u64,
    year: u16,
    #[lock] lock: LockContext,
) -> Result<(String, Option<&'static str>), LockError> {
    let names = [format!("account:{from}"), format!("ledger:{year}")];
    assert!(lock.names().eq(names));
    Ok((lock.name().to_owned(), lock.template()))
}

#[tokio::test]
async fn a_list_has_declared_names_and_templates() {
    let locks = LockProvider::in_memory();
    let booked = locks.scope(book(3, 2026)).await.unwrap();
    assert_eq!(booked, ("ledger:2026".to_owned(), Some("ledger:<year>")));

    let other = locks.to_builder().build().unwrap();
    let _held = other.lock("account:3").await.unwrap();
    let busy = locks.scope(book(3, 2026)).await.unwrap();
    assert_eq!(busy, ("account:3".to_owned(), None));
}

#[distributed_lock(name = ["account:<from>", "account:<to>"], on_busy = "skip", on_lost = "continue", expiry = "20s")]
async fn transfer_unless_busy(from: u64, to: u64) -> Result<Option<u64>, LockError> {
    Ok(Some(from + to))
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
    held.release().await.unwrap();
    assert_eq!(locks.scope(transfer_unless_busy(7, 3)).await.unwrap(), Some(10));
}
