//! Chains of functions that call each other, for the programs beside this file. Each program is a crate of its own: what
//! one proof of the compiler has found is not looked for again in the same crate.

/// Defines functions of which each calls the next one. With `callee first` each stands after the one that it calls in the
/// source, and with `caller first` before it.
macro_rules! chain {
    (callee first: $kind:ident $outer:ident $inner:ident $($rest:ident)*) => {
        chain!(callee first: $kind $inner $($rest)*);
        function!($kind $outer $inner);
    };
    (caller first: $kind:ident $outer:ident $inner:ident $($rest:ident)*) => {
        function!($kind $outer $inner);
        chain!(caller first: $kind $inner $($rest)*);
    };
    ($order:ident first: $kind:ident innermost) => {
        async fn innermost(id: u64) -> Result<u64, mongolock::LockError> {
            tokio::task::yield_now().await;
            Ok(id)
        }
    };
    ($order:ident first: $kind:ident $defined:ident) => {};
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
