//! The commands of `LockAdmin`, and how it reads documents that other programs have written.

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, doc};
use mongolock::{FencingToken, LockError, LockFilter, LockProvider, LockState};
use mongolock_tests::{claim, names, recorded};

use crate::fixture::Fixture;
use crate::planted::{GUID, foreign};

async fn listed(provider: &LockProvider, filter: LockFilter) -> Vec<String> {
    let locks = provider.admin().list(filter).await.unwrap();
    locks.into_iter().map(|lock| lock.name).collect()
}

/// A `lockId` that is only a GUID names no owner. Names that mongolock itself refuses can still be read and released.
#[tokio::test]
async fn locks_of_another_program_can_be_listed_and_released() {
    let fixture = Fixture::mongodb().await;
    let foreign_names = ["", "line\nbreak", "line\nbreak\n", "nul\0byte", "plain"];
    let documents = foreign_names.map(foreign);
    fixture.locks().insert_many(&documents).await.unwrap();
    let admin = fixture.provider.admin();
    let filter = LockFilter::new;
    assert_eq!(listed(&fixture.provider, filter()).await, foreign_names);
    for (prefix, expected) in [("line\n", 1..3), ("nul\0", 3..4), ("\0", 0..0)] {
        let found = listed(&fixture.provider, filter().prefix(prefix)).await;
        assert_eq!(found, foreign_names[expected], "{prefix:?}");
    }
    for (name, document) in foreign_names.into_iter().zip(&documents) {
        let info = fixture.info(name).await;
        assert_eq!(
            (&*info.name, info.owner, info.state),
            (name, None, LockState::Held)
        );
        assert_eq!(info.fencing_token.get(), 17);
        assert_eq!(Some(&info.acquired_at), document.get_datetime("acquiredAt").ok());
        assert_eq!(Some(&info.expires_at), document.get_datetime("expiresAt").ok());
        assert_eq!(admin.release_owner("").await.unwrap(), 0);
        assert!(admin.force_release(name).await.unwrap());
        assert!(!admin.force_release(name).await.unwrap());
    }
    let next = fixture.provider.lock("plain").await.unwrap();
    assert!(next.fencing_token().get() > 17);
}

#[tokio::test]
async fn a_document_whose_id_is_not_a_string_is_no_lock() {
    let fixture = Fixture::mongodb().await;
    let oid = Bson::from(ObjectId::new());
    for id in [oid, 7.into(), doc! { "a": 1 }.into(), Bson::Null] {
        let own = claim(id, format!("me#{GUID}"), 600_000);
        fixture.locks().insert_one(own).await.unwrap();
    }
    let guard = fixture.provider.lock("lock").await.unwrap();
    let filter = LockFilter::new;
    for filter in [filter(), filter().prefix(""), filter().state(LockState::Held)] {
        assert_eq!(listed(&fixture.provider, filter).await, ["lock"]);
    }
    assert_eq!(fixture.provider.admin().get(7).await.unwrap(), None);
    assert_eq!(fixture.provider.admin().release_owner("me").await.unwrap(), 0);
    guard.release().await.unwrap();
}

/// The error names the document and the field. The other locks can be read with a narrower filter.
#[tokio::test]
async fn a_damaged_document_is_named() {
    let fixture = Fixture::mongodb().await;
    let guard = fixture.provider.lock("sound").await.unwrap();
    let admin = fixture.provider.admin();
    let wrong = [
        ("lockId", Bson::Null),
        ("acquiredAt", "now".into()),
        ("expiresAt", 1.into()),
        ("fencingToken", 1.5.into()),
    ];
    for (field, wrong) in wrong {
        for damage in [
            doc! { "$set": { field: wrong } },
            doc! { "$unset": { field: "" } },
        ] {
            let (name, locks) = ("broken $name", fixture.locks());
            let this = doc! { "_id": name };
            locks.insert_one(foreign(name)).await.unwrap();
            locks.update_one(this.clone(), damage.clone()).await.unwrap();
            for error in [
                admin.get(name).await.unwrap_err(),
                admin.list(LockFilter::new()).await.unwrap_err(),
            ] {
                let LockError::CorruptDocument {
                    name: named, problem, ..
                } = &error
                else {
                    panic!("{damage}: {error}");
                };
                assert_eq!(named, name);
                assert!(problem.contains(&format!("`{field}`")), "{damage}: {problem}");
            }
            let sound = LockFilter::new().prefix("sound");
            assert_eq!(listed(&fixture.provider, sound).await, ["sound"]);
            assert!(admin.force_release(name).await.unwrap(), "{damage}");
            assert_eq!(fixture.info(name).await.state, LockState::Released, "{damage}");
            locks.delete_one(this).await.unwrap();
        }
    }
    guard.release().await.unwrap();
}

/// A list that does not fit into the first batch of the server's reply.
#[tokio::test]
async fn a_long_list_is_complete_and_in_order() {
    let fixture = Fixture::mongodb().await;
    let expected: Vec<String> = (0..300).map(|number| format!("lock:{number:03}")).collect();
    let documents = expected.iter().rev().map(|name| foreign(name.as_str()));
    fixture.locks().insert_many(documents).await.unwrap();
    assert_eq!(listed(&fixture.provider, LockFilter::new()).await, expected);
    let limited = LockFilter::new().limit(150);
    assert_eq!(listed(&fixture.provider, limited).await, expected[..150]);
}

/// S3.1, S3.3, B12: requests go to the primary with majority concerns and a time limit, and carry no client time.
#[tokio::test]
async fn requests_go_to_the_primary_and_carry_no_client_time() {
    let fixture = Fixture::mongodb().await;
    let parameters = ["w=1", "readPreference=secondary", "readConcernLevel=local"];
    let (database, commands) = recorded(fixture.db(), &parameters).await;
    let admin = LockProvider::new(&database).admin();
    let _held = fixture.provider.lock("held").await.unwrap();
    for state in [LockState::Held, LockState::Expired, LockState::Released] {
        admin.list(LockFilter::new().state(state)).await.unwrap();
    }
    admin.get("held").await.unwrap().unwrap();
    admin.release_owner("unknown").await.unwrap();
    let earlier = FencingToken::from(1);
    assert!(!admin.force_release("held").only_if(earlier).await.unwrap());
    assert!(admin.force_release("held").await.unwrap());
    let mut sent = commands.take();
    sent.retain(|command| command.values().next().and_then(Bson::as_str) == Some("distributed_locks"));
    let expected = "find find find find find find find findAndModify";
    let what = "a read for each request, and an update of what was read";
    assert_eq!(names(&sent).join(" "), expected, "{what}");
    for command in sent {
        let text = command.to_string();
        assert!(
            text.contains("$$NOW") && !text.contains("$date") && !text.contains("DateTime("),
            "{text}"
        );
        assert!(text.contains("\"maxTimeMS\": 5000"), "{text}");
        let (concern, value) = if command.contains_key("find") {
            ("readConcern", "level")
        } else {
            ("writeConcern", "w")
        };
        let concern = command.get_document(concern).unwrap();
        assert_eq!(concern.get_str(value), Ok("majority"), "{text}");
        let preference = command.get_document("$readPreference");
        assert!(
            preference.is_err() || preference == Ok(&doc! { "mode": "primary" }),
            "{text}"
        );
    }
}
