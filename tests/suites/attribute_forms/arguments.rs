//! Patterns, attributes of arguments, and names that the expansion itself uses.

#![deny(warnings)]

use mongolock::{LockError, LockProvider, distributed_lock};

use super::{locked, send};

struct Point {
    x: u8,
    y: u8,
}

struct Pair(u8, String);

#[distributed_lock(name = "<x>:<z>:<a>:<b>:<first>:<last>:<q>:<r>:<inner>:<either>:<_id>")]
async fn patterns(
    Point { x, y: z }: Point,
    (a, b): (u8, u8),
    [first, .., last]: [u8; 3],
    &(q, ref r): &(u8, u8),
    pair @ Pair(inner, _): Pair,
    (Ok(either) | Err(either)): Result<u8, u8>,
    _: u8,
    _id: u8,
) -> Result<String, LockError> {
    println!("{z} {b} {}", pair.1);
    locked()
}

/// Both are bound by a pattern, as the state of a web framework often is.
struct State<T>(T);

#[distributed_lock(name = "state:<id>", provider = locks)]
async fn provider_from_a_pattern(
    State(locks): State<LockProvider>,
    (id, _): (u8, u8),
) -> Result<String, LockError> {
    locked()
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

#[tokio::test]
async fn every_pattern_and_name() -> Result<(), LockError> {
    LockProvider::in_memory()
        .scope(async {
            let point = Point { x: 1, y: 2 };
            let pair = Pair(9, String::new());
            let locks = State(LockProvider::in_memory());
            assert_eq!(provider_from_a_pattern(locks, (1, 2)).await?, "state:1");
            let name = patterns(point, (3, 4), [5, 0, 6], &(7, 8), pair, Err(10), 0, 11).await?;
            assert_eq!(name, "1:2:3:4:5:6:7:8:9:10:11");
            assert_eq!(names_of_the_expansion(1, 2, 3, 4, 5).await?, 15);
            assert_eq!(configured("x").await?, "x");
            assert_eq!(attributes(1, 2).await?, 2);
            assert_eq!(packed(Packed(1, 2)).await?, 3);
            assert_eq!(send(cell(4, std::cell::Cell::new(0))).await?, 4);
            Ok(())
        })
        .await
}
