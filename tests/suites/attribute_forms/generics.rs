//! Lifetimes, closures, bounds, trait objects, generic associated types and parameters that no value has.

#![deny(warnings)]

use std::fmt::Display;

use mongolock::{LockError, LockProvider, distributed_lock};

#[distributed_lock(name = "d:<a>:<b>")]
async fn named<'a, 'b: 'a>(a: &'a str, b: &'b str) -> Result<&'a str, LockError> {
    Ok(if a.is_empty() { b } else { a })
}

struct Reader<'r>(&'r str);

impl<'r> Reader<'r> {
    #[distributed_lock(name = "e:<self.0>")]
    async fn read(&self) -> Result<&'r str, LockError> {
        Ok(self.0)
    }

    #[distributed_lock(name = "f:<self.0>")]
    async fn again(&self) -> Result<Reader<'_>, LockError> {
        Ok(Reader(self.0))
    }
}

#[distributed_lock(name = "g")]
async fn higher_ranked<F>(call: F) -> Result<usize, LockError>
where
    F: for<'x> Fn(&'x str) -> &'x str,
{
    Ok(call("abc").len())
}

#[distributed_lock(name = "k")]
async fn trait_object(print: &(dyn Display + Sync)) -> Result<Box<dyn Display + '_>, LockError> {
    Ok(Box::new(print))
}

trait Lender {
    type Lent<'l>
    where
        Self: 'l;

    fn lend(&mut self) -> Self::Lent<'_>;
}

impl Lender for Vec<u8> {
    type Lent<'l> = &'l mut [u8];

    fn lend(&mut self) -> &mut [u8] {
        self
    }
}

#[distributed_lock(name = "l")]
async fn generic_associated<L: Lender>(lender: &mut L) -> Result<L::Lent<'_>, LockError> {
    Ok(lender.lend())
}

#[distributed_lock(name = "m:<x.0>")]
async fn unused_parameter<T>(x: (u8, Option<T>)) -> Result<Option<T>, LockError> {
    Ok(x.1)
}

#[distributed_lock(name = "n")]
async fn async_closure(call: impl AsyncFn(u8) -> u8) -> Result<u8, LockError> {
    Ok(call(1).await + call(2).await)
}

#[distributed_lock(name = "o:<text>")]
async fn precise<'t>(text: &'t str, other: &str) -> Result<impl Iterator<Item = char> + use<'t>, LockError> {
    println!("{}", other);
    Ok(text.chars())
}

#[distributed_lock(name = "p:<id>:<gen>")]
async fn bounds<T, F>(id: T, r#gen: u8, make: F) -> Result<T, LockError>
where
    T: Display,
    F: FnOnce(T) -> T,
{
    Ok(make(id))
}

#[tokio::test]
async fn every_kind_of_parameter() -> Result<(), LockError> {
    LockProvider::in_memory()
        .scope(async {
            assert_eq!(named("a", "b").await?, "a");
            assert_eq!(Reader("r").read().await?, "r");
            assert_eq!(Reader("r").again().await?.0, "r");
            assert_eq!(async_closure(async |x| x + 1).await?, 5);
            assert_eq!(precise("abc", "d").await?.count(), 3);
            assert_eq!(bounds(1, 2, |x| x + 1).await?, 2);
            assert_eq!(higher_ranked(|text| &text[1..]).await?, 2);
            assert_eq!(trait_object(&5).await?.to_string(), "5");
            assert_eq!(generic_associated(&mut vec![1]).await?, [1]);
            assert_eq!(unused_parameter((1, None::<u8>)).await?, None);
            Ok(())
        })
        .await
}
