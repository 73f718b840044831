//! Bodies: returns, loops, local items, inner attributes, and the order in which values are dropped.

#![deny(warnings)]

use std::future::Future;
use std::sync::Mutex;
use std::time::Duration;

use mongolock::{LockContext, LockError, LockProvider, distributed_lock};
use tokio::time::timeout;

static EVENTS: Mutex<Vec<&str>> = Mutex::new(Vec::new());

fn event(what: &'static str) {
    EVENTS.lock().unwrap().push(what);
}

fn events() -> Vec<&'static str> {
    std::mem::take(&mut EVENTS.lock().unwrap())
}

struct Noisy(&'static str);

impl Drop for Noisy {
    fn drop(&mut self) {
        let held = LockContext::current().is_some();
        event(self.0);
        event(if held { "held" } else { "free" });
    }
}

#[distributed_lock(name = "a:<id>")]
async fn returns(id: u8) -> Result<u8, LockError> {
    if id == 0 {
        return Ok(0);
    }
    let found = 'search: {
        for x in 0..id {
            if x == 3 {
                break 'search x;
            }
        }
        loop {
            break id;
        }
    };
    Ok(found)
}

#[distributed_lock(name = "b")]
async fn question_marks(fail: bool) -> anyhow::Result<u8> {
    async fn inner(fail: bool) -> Result<u8, LockError> {
        if fail {
            return Err(LockError::NoProvider);
        }
        Ok(2)
    }
    let closure = |x: u8| -> Option<u8> { Some(x.checked_add(1)?) };
    let block = async { Ok::<_, LockError>(inner(fail).await? + 1) };
    let value = block.await?;
    closure(value).ok_or_else(|| anyhow::anyhow!("too large"))
}

macro_rules! give {
    ($value:expr) => {
        return $value
    };
}

#[distributed_lock(name = "c")]
async fn returns_in_a_macro() -> Result<u8, LockError> {
    give!(Ok(4))
}

// The function is on one line on purpose: the compiler must not report its braces as unnecessary.
#[rustfmt::skip]
#[distributed_lock(name = "d")]
async fn one_line() -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = "g")]
async fn inner_attributes() -> Result<u8, LockError> {
    #![allow(unused_variables)]
    #![allow(unused_mut)]
    let mut x = 1;
    Ok(1)
}

#[distributed_lock(name = "h")]
async fn local_items() -> Result<u8, LockError> {
    #[allow(dead_code)]
    enum Result {
        Ok,
        Err,
    }
    #[allow(dead_code)]
    struct LockError;
    use std::result::Result::Ok;
    let _ = Result::Err;
    Ok(1)
}

#[distributed_lock(name = "i:<depth>")]
async fn recursive(depth: u8) -> Result<u8, LockError> {
    if depth == 0 {
        return Ok(0);
    }
    Ok(Box::pin(recursive(depth - 1)).await? + 1)
}

#[distributed_lock(name = "j")]
async fn temporaries(mutex: &Mutex<u8>) -> Result<u8, LockError> {
    let copy = mutex.lock().unwrap().clone();
    Ok(copy)
}

#[distributed_lock(name = "k")]
async fn drops(argument: Noisy) -> Result<(), LockError> {
    let _captured = &argument;
    let _local = Noisy("local");
    tokio::task::yield_now().await;
    event("end");
    Ok(())
}

#[distributed_lock(name = "l")]
async fn panics(argument: Noisy) -> Result<(), LockError> {
    let _captured = &argument;
    let _local = Noisy("local");
    panic!("panic of the test")
}

#[distributed_lock(name = "m")]
async fn waits(argument: Noisy) -> Result<(), LockError> {
    let _captured = &argument;
    let _local = Noisy("local");
    std::future::pending().await
}

fn in_a_task<T: Send + 'static>(
    future: impl Future<Output = T> + Send + 'static,
) -> tokio::task::JoinHandle<T> {
    let provider = LockProvider::global().expect("the caller sets a provider");
    tokio::spawn(async move { provider.scope(future).await })
}

async fn is_free(name: &str) -> bool {
    let provider = LockProvider::global().expect("the caller sets a provider");
    let lock = provider.lock(name).acquire_timeout(Duration::from_secs(15));
    lock.acquire().await.is_ok()
}

#[tokio::test]
async fn every_kind_of_body() -> anyhow::Result<()> {
    LockProvider::in_memory()
        .scope(async {
            let returned = (returns(0).await?, returns(2).await?, returns(9).await?);
            assert_eq!(returned, (0, 2, 3));
            assert_eq!(question_marks(false).await?, 4);
            assert!(question_marks(true).await.is_err());
            assert_eq!(returns_in_a_macro().await?, 4);
            one_line().await?;
            assert_eq!(inner_attributes().await? + local_items().await?, 2);
            assert_eq!(recursive(3).await?, 3);
            assert_eq!(temporaries(&Mutex::new(5)).await?, 5);

            drops(Noisy("argument")).await?;
            assert_eq!(events(), ["end", "local", "held", "argument", "held"]);

            assert!(in_a_task(panics(Noisy("argument"))).await.unwrap_err().is_panic());
            assert_eq!(events(), ["local", "held", "argument", "held"]);
            assert!(is_free("l").await);

            let waiting = timeout(Duration::from_millis(20), waits(Noisy("argument")));
            assert!(waiting.await.is_err());
            assert_eq!(events()[..1], ["local"]);
            assert!(is_free("m").await);

            // A future that is never polled acquires nothing, and drops its arguments.
            drop(waits(Noisy("argument")));
            assert_eq!(events(), ["argument", "free"]);
            assert!(is_free("m").await);
            Ok(())
        })
        .await
}
