//! The future of a function is `Send` and `Sync` with the attribute if it is so without it, and borrows the same values.

#![deny(warnings)]

use std::future::Future;

use mongolock::{LockError, LockProvider, distributed_lock};

use super::send;

#[distributed_lock(name = "a:<id>")]
async fn generic<T: Send + std::fmt::Display>(id: u8, value: T) -> Result<T, LockError> {
    tokio::task::yield_now().await;
    Ok(value)
}

#[distributed_lock(name = "b", on_busy = "skip", on_lost = "continue")]
async fn borrowed(values: &[String]) -> Result<Option<usize>, LockError> {
    tokio::task::yield_now().await;
    Ok(Some(values.len()))
}

#[distributed_lock(name = "d")]
async fn local(values: std::rc::Rc<u8>) -> Result<u8, LockError> {
    tokio::task::yield_now().await;
    Ok(*values)
}

#[distributed_lock(name = "e:<id>")]
async fn nested(id: u8) -> Result<String, LockError> {
    generic(id, "x".to_owned()).await
}

fn sync<F: Future + Send + Sync>(future: F) -> F {
    future
}

#[tokio::test(flavor = "multi_thread")]
async fn futures_are_send_and_sync_if_the_plain_ones_are() -> Result<(), LockError> {
    let provider = LockProvider::in_memory();
    let spawned = provider.clone();
    let task = tokio::spawn(async move { spawned.scope(send(generic(1, 2_u8))).await });
    assert_eq!(task.await.expect("the task does not panic")?, 2);
    let values = vec![String::new()];
    assert_eq!(provider.scope(sync(borrowed(&values))).await?, Some(1));
    assert_eq!(provider.scope(sync(nested(1))).await?, "x");
    assert_eq!(provider.scope(local(std::rc::Rc::new(3))).await?, 3);
    let selected = provider.scope(async {
        tokio::select! {
            biased;
            first = nested(2) => first,
            second = nested(3) => second,
        }
    });
    assert_eq!(selected.await?, "x");
    Ok(())
}
