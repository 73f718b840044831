//! Every receiver, with `self` in the lock name and in the body.

#![deny(warnings)]

use std::pin::Pin;
use std::sync::Arc;

use mongolock::{LockContext, LockError, LockProvider, distributed_lock};

#[derive(Debug, Default, Clone)]
struct Shop {
    id: String,
    parts: Vec<String>,
    r#type: (u8, u8),
}

fn locked() -> String {
    LockContext::current()
        .expect("the body runs under the lock")
        .name()
        .to_owned()
}

impl Shop {
    fn tenant(&self) -> &str {
        &self.id
    }

    #[distributed_lock(name = "a:<self.id>")]
    async fn by_ref(&self) -> Result<String, LockError> {
        println!("{self:?}");
        Ok(locked())
    }

    #[distributed_lock(name = "b:<self.id>:<part>")]
    async fn by_mut(&mut self, part: String) -> Result<&str, LockError> {
        self.parts.push(part);
        Ok(self.parts.last().map_or("", String::as_str))
    }

    #[distributed_lock(name = "c:<self.tenant()>:<self.type.1>")]
    async fn by_value(self) -> Result<String, LockError> {
        let Self { id, parts, .. } = self;
        drop(parts);
        Ok(format!("{id} {}", locked()))
    }

    #[distributed_lock(name = "d:<self.id>")]
    async fn by_mut_value(mut self) -> Result<Self, LockError> {
        self.id.push('!');
        Ok(self)
    }

    #[distributed_lock(name = "e:<self.id>")]
    async fn boxed(self: Box<Self>) -> Result<String, LockError> {
        Ok(self.id)
    }

    #[distributed_lock(name = "f:<self.id>")]
    async fn shared(self: Arc<Self>) -> Result<String, LockError> {
        let same = Arc::clone(&self);
        let task = tokio::spawn(async move { same.id.clone() });
        Ok(task.await.unwrap_or_default())
    }

    #[distributed_lock(name = "g:<self.id>")]
    async fn pinned(self: Pin<&mut Self>) -> Result<usize, LockError> {
        Ok(self.id.len())
    }

    #[distributed_lock(name = "h")]
    async fn associated(id: &str) -> Result<Self, LockError> {
        Ok(Self {
            id: id.to_owned(),
            ..Self::default()
        })
    }
}

struct Wrapper<T>(T);

impl<T: Clone + std::fmt::Display> Wrapper<T> {
    #[distributed_lock(name = "i:<self.0>")]
    async fn generic(&self) -> Result<Self, LockError> {
        Ok(Self(self.0.clone()))
    }
}

trait Job {
    fn key(&self) -> u8;

    fn run(&self) -> impl Future<Output = Result<u8, LockError>> + Send;
}

trait WithDefault: Sync {
    fn number(&self) -> u8 {
        7
    }

    #[allow(async_fn_in_trait)]
    #[distributed_lock(name = "j:<self.number()>")]
    async fn run_default(&self) -> Result<u8, LockError> {
        Ok(self.number())
    }
}

impl WithDefault for Shop {}

impl Job for Shop {
    fn key(&self) -> u8 {
        self.r#type.0
    }

    #[distributed_lock(name = "k:<self.key()>")]
    async fn run(&self) -> Result<u8, LockError> {
        Ok(self.key())
    }
}

#[tokio::test]
async fn every_receiver() -> Result<(), LockError> {
    LockProvider::in_memory()
        .scope(async {
            let mut shop = Shop::associated("x").await?;
            shop.r#type = (1, 2);
            assert_eq!(shop.by_ref().await?, "a:x");
            assert_eq!(shop.by_mut("wheel".to_owned()).await?, "wheel");
            assert_eq!(shop.clone().by_value().await?, "x c:x:2");
            assert_eq!(shop.clone().by_mut_value().await?.id, "x!");
            assert_eq!(Box::new(shop.clone()).boxed().await?, "x");
            assert_eq!(Arc::new(shop.clone()).shared().await?, "x");
            assert_eq!(Pin::new(&mut shop).pinned().await?, 1);
            assert_eq!(Wrapper(3).generic().await?.0, 3);
            assert_eq!(shop.run_default().await?, 7);
            assert_eq!(shop.run().await?, 1);
            Ok(())
        })
        .await
}
