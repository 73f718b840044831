//! The expansion must compile beside user code that shadows names of the standard library or forbids lints.

#![deny(warnings)]
#![forbid(
    unreachable_code,
    unsafe_code,
    unused_braces,
    unused_imports,
    unused_must_use,
    unused_mut
)]
#![forbid(
    unused_parens,
    unused_qualifications,
    unused_variables,
    clippy::all,
    clippy::pedantic
)]

mod shadowed {
    #[derive(Debug)]
    pub struct Result;
    pub struct Option;
    pub struct String;
    pub struct Box;
    pub struct Some;
    pub struct Ok;
    pub mod core {}
    pub mod std {}
}

mod user {
    use super::shadowed::*;

    #[expect(unused_macros)]
    macro_rules! panic {
        () => {};
    }

    #[mongolock::distributed_lock(name = "a:<id>", on_busy = "skip", provider = provider, on_lost = "continue")]
    pub async fn job(
        provider: &::mongolock::LockProvider,
        id: u8,
    ) -> ::std::result::Result<(), ::mongolock::LockError> {
        let _ = (Result, Option, String, Box, Some, Ok, id);
        ::std::result::Result::Ok(())
    }
}

mod bare {
    #![no_implicit_prelude]

    #[::mongolock::distributed_lock(name = "b:<id>")]
    pub async fn job(id: u8) -> ::std::result::Result<u8, ::mongolock::LockError> {
        if id == 0 {
            return ::std::result::Result::Ok(1);
        }
        ::std::result::Result::Ok(id)
    }
}

mod renamed {
    pub mod deeper {
        pub use mongolock as locks;
    }

    #[deeper::locks::distributed_lock(name = "c", crate = deeper::locks)]
    pub async fn relative() -> Result<(), deeper::locks::LockError> {
        Ok(())
    }

    #[mongolock::distributed_lock(name = "d", crate = crate::hygiene::renamed::deeper::locks)]
    pub async fn absolute() -> Result<(), mongolock::LockError> {
        Ok(())
    }
}

pub(crate) async fn run() -> Result<(), mongolock::LockError> {
    let provider = mongolock::LockProvider::in_memory();
    user::job(&provider, 1).await?;
    provider
        .scope(async {
            assert_eq!(bare::job(0).await? + bare::job(2).await?, 3);
            renamed::relative().await?;
            renamed::absolute().await
        })
        .await
}
