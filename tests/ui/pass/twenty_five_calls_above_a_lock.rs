//! A locked function below twenty-five plain ones compiles on a task with the default recursion limit,
//! where each function stands after the one that it calls.

use mongolock::{LockError, LockProvider, distributed_lock};

async fn innermost(id: u64) -> Result<u64, LockError> {
    tokio::task::yield_now().await;
    Ok(id)
}

macro_rules! plain {
    ($outer:ident $inner:ident $($rest:ident)*) => {
        plain!($inner $($rest)*);

        async fn $outer(id: u64) -> Result<u64, LockError> {
            $inner(id).await
        }
    };
    ($innermost:ident) => {};
}

macro_rules! locked {
    ($outer:ident $inner:ident $($rest:ident)*) => {
        locked!($inner $($rest)*);

        #[distributed_lock(name = "all of them")]
        async fn $outer(id: u64) -> Result<u64, LockError> {
            $inner(id).await
        }
    };
    ($innermost:ident) => {};
}

locked!(f1 innermost);
plain!(
    p1 p2 p3 p4 p5 p6 p7 p8 p9 p10 p11 p12 p13 p14 p15 p16 p17 p18 p19 p20 p21 p22 p23 p24 p25 f1
);

#[tokio::main(flavor = "current_thread")]
async fn main() {
    LockProvider::in_memory().set_global().unwrap();
    let task = tokio::spawn(p1(1));
    assert_eq!(task.await.unwrap().unwrap(), 1);
}
