//! Patterns, moves, shadowing, and names that the expansion itself uses.

#![deny(warnings)]

use mongolock::{LockContext, LockError, LockProvider, distributed_lock};

struct Point {
    x: u8,
    y: u8,
}

struct Pair(u8, String);

fn locked() -> String {
    LockContext::current()
        .expect("the body runs under the lock")
        .name()
        .to_owned()
}

#[distributed_lock(name = "<x>:<z>:<a>:<b>:<first>:<last>:<q>:<r>:<inner>")]
async fn patterns(
    Point { x, y: z }: Point,
    (a, b): (u8, u8),
    [first, .., last]: [u8; 3],
    &(q, ref r): &(u8, u8),
    pair @ Pair(inner, _): Pair,
    _: u8,
) -> Result<String, LockError> {
    println!("{z} {b} {}", pair.1);
    Ok(locked())
}

/// Both are bound by a pattern, as the state of a web framework often is.
struct State<T>(T);

#[distributed_lock(name = "state:<id>", provider = locks)]
async fn provider_from_a_pattern(
    State(locks): State<LockProvider>,
    (id, _): (u8, u8),
) -> Result<String, LockError> {
    Ok(locked())
}

#[distributed_lock(name = "a:<id>")]
async fn moved(id: String) -> Result<usize, LockError> {
    let task = tokio::spawn(async move { id.len() });
    Ok(task.await.unwrap_or_default())
}

#[distributed_lock(name = "b:<id>")]
async fn changed(mut id: u8) -> Result<(u8, String), LockError> {
    id += 1;
    Ok((id, locked()))
}

#[distributed_lock(name = "c:<id>")]
async fn shadowed(id: u8) -> Result<String, LockError> {
    let id = format!("{id}!");
    Ok(id)
}

#[distributed_lock(name = "d:<id>")]
async fn only_in_the_name(id: u8) -> Result<String, LockError> {
    Ok(locked())
}

#[distributed_lock(name = "e:<_id>")]
async fn underscored(_id: u8) -> Result<String, LockError> {
    Ok(locked())
}

#[distributed_lock(name = "f:<type>:<match>")]
async fn raw(r#type: u8, r#match: &str) -> Result<String, LockError> {
    Ok(format!("{} {type} {match}", locked(), type = r#type, match = r#match))
}

#[distributed_lock(name = "g:<call>:<name>:<held>:<error>:<returned>")]
async fn names_of_the_expansion(
    call: u8,
    name: u8,
    held: u8,
    error: u8,
    returned: u8,
) -> Result<u8, LockError> {
    Ok(call + name + held + error + returned)
}

#[distributed_lock(name = "h:<id>")]
async fn configured(#[cfg(any())] id: u8, #[cfg(not(any()))] id: &str) -> Result<&str, LockError> {
    Ok(id)
}

#[distributed_lock(name = "i")]
async fn attributes(#[allow(unused)] unused: u8, #[allow(unused_mut)] mut same: u8) -> Result<u8, LockError> {
    Ok(same)
}

#[repr(C, packed)]
#[derive(Clone, Copy)]
struct Packed(u8, u32);

#[distributed_lock(name = "j")]
async fn packed(packed: Packed) -> Result<u32, LockError> {
    Ok(u32::from(packed.0) + { packed.1 })
}

#[distributed_lock(name = "l:<id>")]
async fn cell(id: u8, cell: std::cell::Cell<u8>) -> Result<u8, LockError> {
    cell.set(id);
    tokio::task::yield_now().await;
    Ok(cell.get())
}

fn send<T: Send>(value: T) -> T {
    value
}

#[tokio::test]
async fn every_pattern_and_name() -> Result<(), LockError> {
    LockProvider::in_memory()
        .scope(async {
            let point = Point { x: 1, y: 2 };
            let pair = Pair(9, String::new());
            let locks = State(LockProvider::in_memory());
            assert_eq!(provider_from_a_pattern(locks, (1, 2)).await?, "state:1");
            let name = patterns(point, (3, 4), [5, 0, 6], &(7, 8), pair, 0).await?;
            assert_eq!(name, "1:2:3:4:5:6:7:8:9");
            assert_eq!(moved("abc".to_owned()).await?, 3);
            assert_eq!(changed(1).await?, (2, "b:1".to_owned()));
            assert_eq!(shadowed(1).await?, "1!");
            assert_eq!(only_in_the_name(1).await?, "d:1");
            assert_eq!(underscored(1).await?, "e:1");
            assert_eq!(raw(1, "x").await?, "f:1:x 1 x");
            assert_eq!(names_of_the_expansion(1, 2, 3, 4, 5).await?, 15);
            assert_eq!(configured("x").await?, "x");
            assert_eq!(attributes(1, 2).await?, 2);
            assert_eq!(packed(Packed(1, 2)).await?, 3);
            assert_eq!(send(cell(4, std::cell::Cell::new(0))).await?, 4);
            Ok(())
        })
        .await
}
