//! Values of a name that contain its separators do not give the name of other values.

#![deny(warnings)]

use fastrand::Rng;
use mongolock::{LockError, LockProvider, distributed_lock, escape};

use super::locked;

/// What the proof of the macro crate takes for the escape of a character.
#[allow(dead_code, non_fmt_panics)]
#[path = "../../../mongolock-macros/src/lock_name/language.rs"]
mod language;

#[distributed_lock(name = "doc:<tenant>:<id>")]
async fn edit(tenant: &str, id: &str) -> Result<String, LockError> {
    locked()
}

#[distributed_lock(name = "<first>, <second>>><third>é<fourth>!")]
async fn separators(first: &str, second: &str, third: &str, fourth: &str) -> Result<String, LockError> {
    locked()
}

#[distributed_lock(name = "<id>-<number>")]
async fn numbers(id: mongodb::bson::Uuid, number: i8) -> Result<String, LockError> {
    locked()
}

trait Kind {
    const KIND: &'static str;
}

struct Repository<T, const SHARD: u8>(T);

impl<T: Kind, const SHARD: u8> Repository<T, SHARD> {
    const REGION: &'static str = "e:u";

    #[distributed_lock(name = "<T::KIND>/<Self::REGION>:<SHARD>:<id>")]
    async fn save(&self, id: u64) -> Result<String, LockError> {
        locked()
    }

    #[distributed_lock(name = "<N>:<T::KIND.len()>:<id>")]
    async fn load<const N: i8>(id: u64) -> Result<String, LockError> {
        locked()
    }
}

struct User;

impl Kind for User {
    const KIND: &'static str = "a/b:c";
}

#[tokio::test]
async fn values_are_escaped_before_their_separator() -> Result<(), LockError> {
    let all = async {
        assert_eq!(edit("a", "1:2").await?, "doc:a:1:2");
        assert_eq!(edit("a:1", "2").await?, "doc:a%3A1:2");
        assert_eq!(edit("a%3A1", "2").await?, "doc:a%253A1:2");
        assert_eq!(edit("tenant-1/x", "50 %").await?, "doc:tenant-1/x:50 %");
        let escaped = separators("a,", "> ,", "éè", "é!").await?;
        assert_eq!(escaped, "a%2C, %3E ,>%C3%A9èéé!!");
        let id = mongodb::bson::Uuid::from_bytes([0x11; 16]);
        let escaped = numbers(id, -1).await?;
        assert_eq!(escaped, "11111111%2D1111%2D1111%2D1111%2D111111111111--1");
        Ok(())
    };
    LockProvider::in_memory().scope(all).await
}

#[tokio::test]
async fn constants_are_values_as_well() -> Result<(), LockError> {
    let all = async {
        let users = Repository::<User, 3>(User);
        assert_eq!(users.save(1).await?, "a%2Fb:c/e%3Au:3:1");
        assert_eq!(Repository::<User, 3>::load::<-1>(1).await?, "-1:5:1");
        Ok(())
    };
    LockProvider::in_memory().scope(all).await
}

#[tokio::test]
async fn white_space_at_the_ends_of_a_rendered_name_is_refused() {
    let provider = LockProvider::in_memory();
    let refused = provider.scope(edit("a", "1 ")).await;
    let is_refused = matches!(&refused, Err(LockError::InvalidName { .. }));
    assert!(is_refused, "{:?}", refused);
    assert!(provider.scope(edit(" a", "1")).await.is_ok(), "not at an end");
    for name in [" a", "a\u{2003}"] {
        let refused = provider.lock(name).acquire().await;
        let is_refused = matches!(&refused, Err(LockError::InvalidName { .. }));
        assert!(is_refused, "{:?}", refused);
        // Operators can use any name.
        assert!(provider.admin().get(name).await.unwrap().is_none());
    }
}

/// Calls a property with many sources of random values, each with a seed of its own, under a provider in memory.
async fn each_seed(property: impl AsyncFn(&mut Rng)) {
    for seed in 0..256 {
        let mut random = Rng::with_seed(seed);
        LockProvider::in_memory().scope(property(&mut random)).await;
    }
}

fn text(random: &mut Rng, characters: &str, least: usize, most: usize) -> String {
    let characters: Vec<char> = characters.chars().collect();
    let length = random.usize(least..=most);
    (0..length).filter_map(|_| random.choice(&characters)).collect()
}

#[tokio::test]
async fn two_calls_share_a_name_only_if_their_values_are_equal() {
    each_seed(async |random| {
        let [one, other] = [(); 2].map(|()| [(); 4].map(|()| text(random, "[%:,>é25A3C9]", 1, 6)));
        let [name, other_name] = [&one, &other].map(|[a, b, c, d]| separators(a, b, c, d));
        let name = name.await.unwrap();
        let is_same = name == other_name.await.unwrap();
        assert_eq!(is_same, one == other, "{one:?} {other:?}");
        let [first, second, third] = [(0, ','), (1, '>'), (2, 'é')].map(|(at, end)| escape(&one[at], end));
        assert_eq!(name, format!("{first}, {second}>{third}é{}!", one[3]));
    })
    .await;
}

#[tokio::test]
async fn the_proof_escapes_as_the_runtime_does() {
    each_seed(async |random| {
        let text = text(random, "[%:,>-äé😀a]", 1, 9);
        let separator = random.choice(text.chars().collect::<Vec<_>>()).unwrap();
        let escaped = |one| language::escaped(one, Some(separator));
        let of_proof: String = text.chars().map(escaped).collect();
        assert_eq!(of_proof, escape(&text, separator));
    })
    .await;
}
