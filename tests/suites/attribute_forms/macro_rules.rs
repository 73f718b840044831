//! Functions that `macro_rules!` generates: names, arguments and bodies come from the macro or from its caller.

#![deny(warnings)]

use mongolock::{LockError, LockProvider, distributed_lock};

use super::locked;

macro_rules! whole {
    ($function:ident) => {
        #[distributed_lock(name = "a:<id>")]
        async fn $function(id: u8) -> Result<String, LockError> {
            locked()
        }
    };
}

macro_rules! name_from_caller {
    ($function:ident, $name:literal) => {
        #[distributed_lock(name = $name)]
        async fn $function(id: u8) -> Result<String, LockError> {
            locked()
        }
    };
}

macro_rules! name_as_expression {
    ($function:ident, $name:expr) => {
        #[distributed_lock(name = $name, expiry = "1s")]
        async fn $function(id: u8) -> Result<String, LockError> {
            locked()
        }
    };
}

macro_rules! argument_from_caller {
    ($function:ident, $argument:ident) => {
        #[distributed_lock(name = "d:<id>")]
        async fn $function($argument: u8) -> Result<String, LockError> {
            println!("{}", $argument);
            locked()
        }
    };
}

macro_rules! all_from_caller {
    ($visibility:vis $function:ident, $pattern:pat, $argument:ty, $returned:ty, $body:block) => {
        #[distributed_lock(name = "e:<a>:<b>")]
        $visibility async fn $function($pattern: $argument) -> $returned $body
    };
}

macro_rules! item {
    ($item:item) => {
        #[distributed_lock(name = "f:<id>")]
        $item
    };
}

macro_rules! method {
    ($this:ident, $field:ident, $body:expr) => {
        #[distributed_lock(name = "g:<self.0>")]
        async fn $field(&$this) -> Result<String, LockError> {
            $body
        }
    };
}

macro_rules! provider {
    ($provider:expr, $krate:path) => {
        #[distributed_lock(name = "h", provider = $provider, crate = $krate)]
        async fn with_provider() -> Result<String, LockError> {
            locked()
        }
    };
}

/// A const generic and a template of which one comes from the macro and the other from its caller.
macro_rules! constant {
    ($function:ident, $n:ident, $name:literal) => {
        #[distributed_lock(name = $name)]
        async fn $function<const $n: u8, const M: u8>() -> Result<String, LockError> {
            locked()
        }
    };
}

constant!(constant_of_caller, N, "n:<N>");
constant!(constant_of_macro, N, "m:<M>");
whole!(first);
name_from_caller!(second, "b:<id>");
name_as_expression!(third, "c:<id>");
argument_from_caller!(fourth, id);
all_from_caller!(pub fifth, (a, b), (u8, u8), Result<String, LockError>, { locked() });
item! {
    async fn sixth(id: u8) -> Result<String, LockError> {
        locked()
    }
}
provider!(LockProvider::in_memory(), mongolock);

struct Service(u8);

impl Service {
    method!(self, seventh, Ok(format!("{} {}", locked()?, self.0)));
}

#[tokio::test]
async fn names_and_arguments_from_the_macro_or_its_caller() -> Result<(), LockError> {
    LockProvider::in_memory()
        .scope(async {
            assert_eq!(constant_of_caller::<1, 2>().await?, "n:1");
            assert_eq!(constant_of_macro::<1, 2>().await?, "m:2");
            assert_eq!(first(1).await?, "a:1");
            assert_eq!(second(1).await?, "b:1");
            assert_eq!(third(1).await?, "c:1");
            assert_eq!(fourth(1).await?, "d:1");
            assert_eq!(fifth((1, 2)).await?, "e:1:2");
            assert_eq!(sixth(1).await?, "f:1");
            assert_eq!(Service(7).seventh().await?, "g:7 7");
            assert_eq!(with_provider().await?, "h");
            Ok(())
        })
        .await
}
