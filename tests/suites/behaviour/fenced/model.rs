//! Random sequences of fenced writes, compared with a model.

use std::collections::BTreeMap;

use fastrand::Rng;
use mongodb::bson::{Bson, Document, doc};
use mongolock::LockError;

use super::{Scene, is_duplicate_key};

/// The documents of the model: the token and the value of each `_id`.
type Model = BTreeMap<i32, (i64, i32)>;

/// The token of a document without one: every holder may write it.
const NO_TOKEN: i64 = i64::MIN;

/// The forms of a fenced write.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Insert,
    Update,
    UpdateUpsert,
    ReplaceUpsert,
    Delete,
}

/// One write of a sequence.
#[derive(Clone, Copy, Debug)]
struct Write {
    kind: Kind,
    id: i32,
    token: i64,
    value: i32,
}

impl Write {
    /// Sends the write. The result is whether it found or inserted a document.
    async fn send(self, scene: &Scene) -> Result<bool, LockError> {
        let (holder, query) = (scene.holder(self.token), doc! { "_id": self.id });
        let (new, value) = (
            doc! { "_id": self.id, "value": self.value },
            doc! { "value": self.value },
        );
        let set = doc! { "$set": &value };
        Ok(match self.kind {
            Kind::Insert => holder.insert_one(new).await.map(|_| true)?,
            Kind::Update => holder.update_one(query, set).await?.matched_count > 0,
            Kind::UpdateUpsert => holder.update_one(query, set).upsert(true).await.map(|_| true)?,
            Kind::ReplaceUpsert => holder
                .replace_one(query, value)
                .upsert(true)
                .await
                .map(|_| true)?,
            Kind::Delete => holder.delete_one(query).await?.deleted_count > 0,
        })
    }

    /// Applies the write to the model, and checks that the outcome of the real write is the same.
    fn check(self, outcome: Result<bool, LockError>, model: &mut Model) {
        let seen = model.get(&self.id).map(|(seen, _)| *seen);
        match (seen, self.kind) {
            (Some(seen), _) if seen > self.token => {
                assert!(matches!(outcome, Err(LockError::Stale { .. })), "{outcome:?}");
            }
            (Some(_), Kind::Insert) => assert!(is_duplicate_key(&outcome), "{outcome:?}"),
            (None, Kind::Update | Kind::Delete) => assert!(!outcome.unwrap()),
            (Some(_), Kind::Delete) => {
                assert!(outcome.unwrap());
                model.remove(&self.id);
            }
            _ => {
                assert!(outcome.unwrap());
                model.insert(self.id, (self.token, self.value));
            }
        }
    }
}

/// Random writes of five holders in random order, compared with a model of three documents, one of which has no token in the
/// beginning.
#[tokio::test]
async fn random_sequences_of_writes_match_the_model() {
    let kinds = [
        Kind::Insert,
        Kind::Update,
        Kind::UpdateUpsert,
        Kind::ReplaceUpsert,
        Kind::Delete,
    ];
    let scene = Scene::new().await;
    for seed in 0..40 {
        let mut random = Rng::with_seed(seed);
        let writes = 1..random.i32(2..=24);
        let writes = writes.map(|value| Write {
            kind: kinds[random.usize(..kinds.len())],
            id: random.i32(0..3),
            token: random.i64(1..6),
            value,
        });
        let writes: Vec<Write> = writes.collect();
        println!("{writes:?}");
        scene.reports.delete_many(doc! {}).await.unwrap();
        let without = doc! { "_id": 0, "value": 0 };
        scene.reports.insert_one(without).await.unwrap();
        let mut model = Model::from([(0, (NO_TOKEN, 0))]);
        for write in writes {
            write.check(write.send(&scene).await, &mut model);
        }
        let stored: Model = scene.all().await.iter().map(entry).collect();
        assert_eq!(stored, model);
    }
}

fn entry(document: &Document) -> (i32, (i64, i32)) {
    let number = |field: &str| match document.get(field) {
        Some(Bson::Int32(number)) => *number,
        other => panic!("{field} is {other:?}"),
    };
    let token = document.get_i64("fencingToken").unwrap_or(NO_TOKEN);
    (number("_id"), (token, number("value")))
}
