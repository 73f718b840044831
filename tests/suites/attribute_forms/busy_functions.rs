//! `on_busy = path`: a function of the user's makes the return value of a call whose lock is busy.

#![deny(warnings)]

use std::sync::Arc;

use async_trait::async_trait;
use mongolock::{Busy, LockContext, LockError, LockProvider, distributed_lock};

use super::returns::Response;
use super::send;

mod answers {
    use super::{Busy, LockError};

    pub(super) fn somebody(text: &str, busy: &Busy) -> Result<String, LockError> {
        let holder = busy.holder.as_deref().unwrap_or("?");
        Ok(format!("{holder} has {} for {text}", busy.name))
    }
}

#[distributed_lock(name = "busy", on_busy = answers::somebody)]
async fn borrows(text: &str) -> Result<String, LockError> {
    Ok(text.to_owned())
}

#[distributed_lock(name = "busy", on_busy = owned_answer, acquire_timeout = "1ms")]
async fn owns(id: u16, names: Vec<String>, #[lock] lock: LockContext) -> Response {
    drop((id, names, lock));
    Response(200)
}

fn owned_answer(id: &u16, names: &[String], busy: &Busy) -> Response {
    assert_eq!((names.len(), &*busy.name), (2, "busy"));
    Response(*id)
}

#[distributed_lock(name = "<value>", on_busy = generic_answer)]
async fn generic<T: std::fmt::Display + Clone>(value: T) -> anyhow::Result<T> {
    Ok(value)
}

fn generic_answer<T: Clone>(value: &T, _: &Busy) -> anyhow::Result<T> {
    Ok(value.clone())
}

#[distributed_lock(name = "busy", on_busy = <T as Answers>::answer)]
async fn of_a_trait<T: Answers>(id: u64) -> Result<String, LockError> {
    Ok(id.to_string())
}

trait Answers {
    fn answer(id: &u64, busy: &Busy) -> Result<String, LockError>;
}

impl Answers for Service {
    fn answer(id: &u64, busy: &Busy) -> Result<String, LockError> {
        Ok(format!("{} is busy for {id}", busy.name))
    }
}

macro_rules! busy {
    ($function:ident, $answer:path) => {
        #[distributed_lock(name = "busy", on_busy = $answer, expiry = "30s")]
        async fn $function(id: u64) -> Result<String, LockError> {
            Ok(id.to_string())
        }
    };
}

busy!(with_turbofish, answer_as::<String, u64>);

fn answer_as<T: From<&'static str>, U>(_: &U, _: &Busy) -> Result<T, LockError> {
    Ok("busy".into())
}

struct Service {
    name: String,
}

impl Service {
    #[distributed_lock(name = "busy", on_busy = Self::busy)]
    async fn by_mutable_reference(&mut self, id: u64) -> Result<String, LockError> {
        self.name.push('!');
        Ok(format!("{} {id}", self.name))
    }

    #[distributed_lock(name = "busy", on_busy = Service::busy)]
    async fn by_value(self, id: u64) -> Result<String, LockError> {
        Ok(format!("{} {id}", self.name))
    }

    #[distributed_lock(name = "busy", on_busy = Self::busy)]
    async fn by_arc(self: Arc<Self>, id: u64) -> Result<String, LockError> {
        Ok(format!("{} {id}", self.name))
    }

    fn busy(&self, id: &u64, busy: &Busy) -> Result<String, LockError> {
        Ok(format!("{} is busy for {} {id}", busy.name, self.name))
    }
}

#[async_trait]
trait Boxed {
    async fn run(&self, id: u64) -> Result<String, LockError>;
}

#[async_trait]
impl Boxed for Service {
    #[distributed_lock(name = "busy", on_busy = Service::busy)]
    async fn run(&self, id: u64) -> Result<String, LockError> {
        Ok(format!("{} {id}", self.name))
    }
}

#[tokio::test]
async fn the_function_makes_the_return_value() -> anyhow::Result<()> {
    let service = || Service { name: "s".to_owned() };
    let provider = LockProvider::in_memory().to_builder().owner("o").build()?;
    let held = [provider.lock("busy").await?, provider.lock("3").await?];
    let inside = async {
        assert_eq!(send(borrows("x")).await?, "o has busy for x");
        assert_eq!(owns(409, vec![String::new(); 2]).await, Response(409));
        assert_eq!(generic(3).await?, 3);
        assert_eq!(of_a_trait::<Service>(3).await?, "busy is busy for 3");
        assert_eq!(with_turbofish(3).await?, "busy");
        let mut mutable = service();
        assert_eq!(mutable.by_mutable_reference(2).await?, "busy is busy for s 2");
        assert_eq!(Boxed::run(&mutable, 5).await?, "busy is busy for s 5");
        assert_eq!(service().by_value(3).await?, "busy is busy for s 3");
        assert_eq!(Arc::new(service()).by_arc(4).await?, "busy is busy for s 4");
        anyhow::Ok(())
    };
    provider.scope(inside).await?;
    drop(held);
    let inside = async {
        assert_eq!(borrows("x").await?, "x");
        assert_eq!(owns(409, Vec::new()).await, Response(200));
        assert_eq!(generic(3).await?, 3);
        assert_eq!(Arc::new(service()).by_arc(4).await?, "s 4");
        anyhow::Ok(())
    };
    provider.scope(inside).await
}

#[tokio::test]
async fn other_errors_do_not_reach_the_function() -> anyhow::Result<()> {
    let provider = LockProvider::in_memory();
    let outcome = provider.scope(generic("")).await;
    let error = outcome.expect_err("an empty name").downcast::<LockError>()?;
    assert!(matches!(error, LockError::InvalidName { .. }), "{}", error);
    provider.shutdown().await;
    assert_eq!(provider.scope(owns(1, Vec::new())).await, Response(503));
    Ok(())
}
