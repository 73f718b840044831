//! Values of a name that contain its separators do not give the name of other values.

#![deny(warnings)]

use mongolock::{LockError, LockProvider, distributed_lock, escape};
use proptest::prelude::*;

use super::locked;

/// What the proof of the macro crate takes for the escape of a character.
#[allow(dead_code)]
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
        assert_eq!(
            separators("a,", "> ,", "éè", "é!").await?,
            "a%2C, %3E ,>%C3%A9èéé!!"
        );
        let id = mongodb::bson::Uuid::from_bytes([0x11; 16]);
        assert_eq!(
            numbers(id, -1).await?,
            "11111111%2D1111%2D1111%2D1111%2D111111111111--1"
        );
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
    assert!(
        matches!(&refused, Err(LockError::InvalidName { .. })),
        "{refused:?}"
    );
    assert!(provider.scope(edit(" a", "1")).await.is_ok(), "not at an end");
    for name in [" a", "a\u{2003}"] {
        let refused = provider.lock(name).acquire().await;
        assert!(
            matches!(&refused, Err(LockError::InvalidName { .. })),
            "{refused:?}"
        );
        assert!(
            provider.admin().get(name).await.unwrap().is_none(),
            "operators can use any name"
        );
    }
}

#[tokio::test]
async fn a_rendered_name_is_checked() {
    let longest = "n".repeat(1024 - "doc:a:".len());
    let edited = async |id: &str| LockProvider::in_memory().scope(edit("a", id)).await;
    assert!(edited(&longest).await.is_ok());
    for bad in ["", "a\tb", "\u{85}", &format!("{longest}n")] {
        let refused = edited(bad).await;
        assert!(
            matches!(&refused, Err(LockError::InvalidName { .. })),
            "{refused:?}"
        );
    }
    let shown = edited("").await.unwrap_err().to_string();
    assert!(shown.contains("<id>"), "{shown}");
}

/// Values that the checks accept, of the characters that matter to the escapes.
const VALUE: &str = "[%:,>é25A3C9]{1,6}";

proptest! {
    #[test]
    fn two_calls_share_a_name_only_if_their_values_are_equal(
        one in prop::collection::vec(VALUE, 4),
        other in prop::collection::vec(VALUE, 4),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let provider = LockProvider::in_memory();
        let name = |values: &[String]| {
            let call = separators(&values[0], &values[1], &values[2], &values[3]);
            runtime.block_on(provider.scope(call)).unwrap()
        };
        prop_assert_eq!(name(&one) == name(&other), one == other);
        let by_hand = format!(
            "{}, {}>{}é{}!",
            escape(&one[0], ','), escape(&one[1], '>'), escape(&one[2], 'é'), one[3]
        );
        prop_assert_eq!(name(&one), by_hand);
    }

    /// Values that differ only in where the separator stands, which unescaped names could not tell apart.
    #[test]
    fn a_moved_separator_gives_another_name(text in "[a:%]{3,9}", cuts in (1..9_usize, 1..9_usize)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let provider = LockProvider::in_memory();
        let split = |cut: usize| text.split_at(cut.min(text.len() - 1));
        let (one, other) = (split(cuts.0), split(cuts.1));
        let name = |(tenant, id): (&str, &str)| runtime.block_on(provider.scope(edit(tenant, id))).unwrap();
        prop_assert_eq!(name(one) == name(other), one == other);
    }

    #[test]
    fn the_proof_escapes_as_the_runtime_does(text in "[%:,>é😀a]{1,9}", one: prop::sample::Selector) {
        let separator = one.select(text.chars());
        let of_proof: String = text.chars().map(|one| language::escaped(one, Some(separator))).collect();
        prop_assert_eq!(of_proof, escape(&text, separator));
    }
}
