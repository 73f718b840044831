//! The user's own names, however unfortunate, and lints that nothing may soften.

#![deny(warnings)]
#![forbid(unreachable_code, unused, unused_qualifications, clippy::all, clippy::pedantic, unsafe_code)]

mod shadowed {
    #![allow(dead_code, non_camel_case_types)]

    pub struct Result;
    pub struct Option;
    pub struct String;
    pub struct Box;
    pub struct Some;
    pub struct Ok;
    pub mod core {}
    pub mod std {}

    macro_rules! panic {
        () => {};
    }
    macro_rules! write {
        () => {};
    }
    pub(crate) use {panic, write};
}

mod user {
    use super::shadowed::*;

    #[mongolock::distributed_lock(name = "a:<id>", on_busy = "skip", provider = provider)]
    pub async fn job(
        provider: &::mongolock::LockProvider,
        id: u8,
    ) -> ::std::result::Result<(), ::mongolock::LockError> {
        ::std::println!("{id}");
        ::std::result::Result::Ok(())
    }
}

#[allow(unused)]
const _: () = {
    use shadowed::*;
    let _ = (Result, Option, String, Box, Some, Ok);
};

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

    #[mongolock::distributed_lock(name = "d", crate = crate::renamed::deeper::locks)]
    pub async fn absolute() -> Result<(), mongolock::LockError> {
        Ok(())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), mongolock::LockError> {
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
