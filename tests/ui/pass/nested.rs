//! Chains of functions that call each other, for the programs beside this file. Each program is a crate of its own: what
//! one proof of the compiler has found is not looked for again in the same crate.

/// Defines functions of which each calls the next one. Each stands before the one that it calls in the source, which needs more
/// depth than the other order; `tests/nesting.py` measures both.
macro_rules! chain {
    ($kind:ident $outer:ident $inner:ident $($rest:ident)*) => {
        function!($kind $outer $inner);
        chain!($kind $inner $($rest)*);
    };
    ($kind:ident innermost) => {
        async fn innermost(id: u64) -> Result<u64, mongolock::LockError> {
            tokio::task::yield_now().await;
            Ok(id)
        }
    };
    ($kind:ident $defined:ident) => {};
}

/// A function that calls another one, under a lock or without one.
macro_rules! function {
    (locked $outer:ident $inner:ident) => {
        #[mongolock::distributed_lock(name = "all of them")]
        async fn $outer(id: u64) -> Result<u64, mongolock::LockError> {
            $inner(id).await
        }
    };
    (plain $outer:ident $inner:ident) => {
        async fn $outer(id: u64) -> Result<u64, mongolock::LockError> {
            $inner(id).await
        }
    };
}

/// A program that calls the outermost function on a task.
macro_rules! spawn {
    ($outermost:ident) => {
        #[tokio::main(flavor = "current_thread")]
        async fn main() {
            mongolock::LockProvider::in_memory().set_global().unwrap();
            let task = tokio::spawn($outermost(1));
            assert_eq!(task.await.unwrap().unwrap(), 1);
        }
    };
}
