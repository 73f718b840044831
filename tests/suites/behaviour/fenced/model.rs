//! Random sequences of fenced writes, compared with a model.

use std::collections::BTreeMap;

use mongodb::bson::{Bson, Document, doc};
use mongolock::LockError;

use super::{Scene, is_duplicate_key};

/// Random writes of five holders in random order, compared with a model of three documents.
#[tokio::test]
async fn any_sequence_keeps_to_the_rule() {
    use proptest::strategy::{Strategy, ValueTree};
    use proptest::test_runner::TestRunner;

    let step = (0..5_u8, 0..3_i32, 1..6_i64);
    let scenes = proptest::collection::vec(step, 1..24);
    let mut runner = TestRunner::default();
    let scene = Scene::new().await;
    for _ in 0..40 {
        let steps = scenes.new_tree(&mut runner).unwrap().current();
        scene.reports.delete_many(doc! {}).await.unwrap();
        let mut model: BTreeMap<i32, (i64, i32)> = BTreeMap::new();
        for (number, (kind, id, token)) in (1..).zip(steps.iter().copied()) {
            let (holder, query) = (scene.holder(token), doc! { "_id": id });
            let value = doc! { "value": number };
            let set = doc! { "$set": value.clone() };
            let outcome = match kind {
                0 => holder
                    .insert_one(doc! { "_id": id, "value": number })
                    .await
                    .map(|_| true),
                1 => holder
                    .update_one(query, set)
                    .await
                    .map(|done| done.matched_count > 0),
                2 => holder.update_one(query, set).upsert(true).await.map(|_| true),
                3 => holder.replace_one(query, value).upsert(true).await.map(|_| true),
                _ => holder.delete_one(query).await.map(|done| done.deleted_count > 0),
            };
            let seen = model.get(&id).map(|(seen, _)| *seen);
            match seen {
                Some(seen) if seen > token => {
                    assert!(
                        matches!(outcome, Err(LockError::Stale { .. })),
                        "{steps:?}: {outcome:?}"
                    );
                    continue;
                }
                Some(_) if kind == 0 => {
                    assert!(is_duplicate_key(&outcome), "{steps:?}: {outcome:?}");
                    continue;
                }
                _ => assert_eq!(
                    outcome.unwrap(),
                    seen.is_some() || (kind != 1 && kind != 4),
                    "{steps:?}"
                ),
            }
            match kind {
                4 => drop(model.remove(&id)),
                1 if seen.is_none() => {}
                _ => drop(model.insert(id, (token, number))),
            }
        }
        let stored: BTreeMap<_, _> = scene.all().await.iter().map(entry).collect();
        assert_eq!(stored, model, "{steps:?}");
    }
}

fn entry(document: &Document) -> (i32, (i64, i32)) {
    let number = |field: &str| match document.get(field) {
        Some(Bson::Int32(number)) => *number,
        other => panic!("{field} is {other:?}"),
    };
    (
        number("_id"),
        (document.get_i64("fencingToken").unwrap(), number("value")),
    )
}
