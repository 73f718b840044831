use mongodb::bson::doc;

use super::LockEventKind::{
    Acquired, Damaged, Deleted, Detached, Done, Expired, Released, Resumed, TakenOver,
};
use super::*;

fn at(millis: i64) -> DateTime {
    DateTime::from_millis(millis)
}

fn document(lock_id: &str, expires_at: i64, token: i64) -> Document {
    doc! { "lockId": lock_id, "acquiredAt": at(0), "expiresAt": at(expires_at), "fencingToken": token }
}

/// Locks of which the clock of this process shows the milliseconds of the server.
struct Scene {
    known: Known,
    begun: Instant,
}

impl Scene {
    fn new() -> Self {
        Self {
            known: Known::new(),
            begun: Instant::now(),
        }
    }

    fn instant(&self, millis: i64) -> Instant {
        self.begun + Duration::from_millis(millis.unsigned_abs())
    }

    fn change(&mut self, millis: i64, kind: ChangeKind) -> Vec<LockEvent> {
        let now = self.instant(millis);
        self.known.change(DocumentChange { at: at(millis), kind }, now)
    }

    fn written(&mut self, millis: i64, id: &str, document: Document) -> Option<LockEvent> {
        let id = id.to_owned();
        self.change(millis, ChangeKind::Written { id, document }).pop()
    }

    fn updated(&mut self, millis: i64, id: &str, fields: Document) -> Option<LockEvent> {
        let (id, removed) = (id.to_owned(), Vec::new());
        self.change(millis, ChangeKind::Updated { id, fields, removed })
            .pop()
    }

    fn removed(&mut self, millis: i64, id: &str, field: &str) -> Option<LockEvent> {
        let (id, fields, removed) = (id.to_owned(), Document::new(), vec![field.to_owned()]);
        self.change(millis, ChangeKind::Updated { id, fields, removed })
            .pop()
    }

    /// The locks that are due then, and the event of a read of one of them.
    fn read_due(&mut self, millis: i64, found: TakenOrDamaged) -> Option<LockEvent> {
        let now = self.instant(millis);
        let due = self.known.due(now);
        assert_eq!(due, [id_of(&found)]);
        self.known.read_due(&due, vec![found], at(millis), now).pop()
    }

    /// The earliest end that is known, after a look.
    fn next_end(&mut self) -> Option<Instant> {
        self.known.due(self.begun);
        self.known.next_end()
    }

    fn read(&mut self, millis: i64, found: Vec<TakenOrDamaged>) -> Vec<(LockEventKind, String)> {
        let now = self.instant(millis);
        let events = self.known.read(found, at(millis), now);
        events.into_iter().map(|event| (event.kind, event.name)).collect()
    }
}

fn taken(millis: i64, id: &str, lock_id: &str, expires_at: i64) -> TakenLock {
    TakenLock {
        id: id.to_owned(),
        lock_id: lock_id.to_owned(),
        acquired_at: at(0),
        expires_at: at(expires_at),
        token: 1,
        read_at: at(millis),
    }
}

fn kind_of(event: Option<LockEvent>) -> Option<LockEventKind> {
    event.map(|event| event.kind)
}

#[test]
fn a_life_of_a_lock() {
    let mut scene = Scene::new();
    let acquired = scene
        .written(10, "a", document("anna#1", 100, 1))
        .expect("an event");
    assert_eq!(
        (acquired.kind, acquired.owner.as_deref()),
        (Acquired, Some("anna"))
    );
    assert_eq!(
        (acquired.fencing_token, acquired.expires_at),
        (Some(FencingToken::new(1)), Some(at(100)))
    );
    assert_eq!(
        scene.written(11, "a", document("anna#1", 200, 1)),
        None,
        "a read has told it"
    );
    let now = scene.instant(199);
    assert_eq!(scene.known.due(now), Vec::<String>::new());
    assert_eq!(
        scene.read_due(200, Ok(taken(200, "a", "anna#1", 300))),
        None,
        "it was renewed"
    );
    assert_eq!(
        kind_of(scene.read_due(300, Ok(taken(300, "a", "anna#1", 300)))),
        Some(Expired)
    );
    assert_eq!(scene.next_end(), None, "it is told once");
    let over = scene
        .written(400, "a", document("bert#2", 500, 2))
        .expect("an event");
    assert_eq!(
        (over.kind, over.previous_owner.as_deref()),
        (TakenOver, Some("anna"))
    );
    let released = scene.updated(410, "a", doc! { "lockId": "", "expiresAt": at(410) });
    let released = released.expect("an event");
    assert_eq!(
        (released.kind, released.owner.as_deref()),
        (Released, Some("bert"))
    );
    assert_eq!(released.fencing_token, Some(FencingToken::new(2)));
    assert_eq!(
        kind_of(scene.written(420, "a", document("anna#3", 600, 3))),
        Some(Acquired)
    );
    assert_eq!(
        kind_of(scene.written(430, "a", document("done:anna#3", 900, 3))),
        Some(Done)
    );
    assert_eq!(scene.read_due(900, Ok(taken(900, "a", "done:anna#3", 900))), None);
    assert_eq!(
        kind_of(scene.written(910, "a", document("anna#4", 999, 4))),
        Some(Acquired)
    );
    assert_eq!(
        kind_of(
            scene
                .change(920, ChangeKind::Deleted { id: "a".to_owned() })
                .pop()
        ),
        Some(Deleted)
    );
    assert_eq!(scene.next_end(), None);
}

/// A history does not begin with the holds at its start.
#[test]
fn the_end_of_an_unknown_hold_has_no_owner() {
    let mut scene = Scene::new();
    let released = scene.updated(1, "a", doc! { "lockId": "" }).expect("an event");
    assert_eq!(
        (released.kind, released.owner, released.lock_id),
        (Released, None, None)
    );
    assert_eq!(scene.updated(2, "a", doc! { "expiresAt": at(9) }), None);
}

#[test]
fn a_lease_changes_hands() {
    let id = |kind: &str, byte: &str| format!("anna#0b8e3f3a-6d0c-{kind}53-ada4-5f0f6a5c{byte}11");
    let mut scene = Scene::new();
    for (lock_id, wanted) in [
        (id("40", "00"), Some(Acquired)),
        (id("80", "01"), Some(Detached)),
        (id("80", "01"), None),
        (id("43", "02"), Some(Resumed)),
        (id("80", "03"), Some(Detached)),
        (id("40", "04"), Some(TakenOver)),
        ("done:".to_owned() + &id("43", "02"), Some(Done)),
    ] {
        let event = scene.updated(10, "a", document(&lock_id, 100, 1));
        assert_eq!(kind_of(event), wanted, "{lock_id}");
    }
}

#[test]
fn a_document_that_becomes_unreadable_is_told_once() {
    let mut scene = Scene::new();
    scene.written(10, "a", document("anna#1", 100, 1));
    assert_eq!(kind_of(scene.read_due(100, Err("a".to_owned()))), Some(Damaged));
    assert_eq!(scene.next_end(), None);
    scene.written(110, "a", document("anna#2", 200, 2));
    let damaged = scene.updated(120, "a", doc! { "lockId": 5 }).expect("an event");
    assert_eq!((damaged.kind, damaged.owner.as_deref()), (Damaged, Some("anna")));
    assert_eq!(
        kind_of(scene.written(130, "a", doc! { "x": 1 })),
        None,
        "it was none before"
    );
    scene.written(140, "a", document("anna#3", 300, 3));
    assert_eq!(kind_of(scene.written(150, "a", doc! { "x": 1 })), Some(Damaged));
}

#[test]
fn a_change_by_hand_is_no_renewal() {
    let mut scene = Scene::new();
    for field in ["lockId", "expiresAt"] {
        scene.written(10, "a", document("anna#1", 100, 1));
        let end = scene.next_end();
        assert_eq!(scene.updated(20, "a", doc! { "comment": "by hand" }), None);
        assert_eq!(scene.removed(25, "a", "comment"), None);
        assert_eq!(scene.next_end(), end, "its lease still ends");
        assert_eq!(kind_of(scene.removed(30, "a", field)), Some(Damaged));
    }
}

#[test]
fn a_read_tells_what_has_changed_and_a_dropped_collection_ends_all() {
    let mut scene = Scene::new();
    let first = vec![
        Ok(taken(1, "a", "anna#1", 50)),
        Ok(taken(1, "b", "bert#1", 50)),
        Ok(taken(1, "d", "done:dora#1", 1)),
    ];
    let named = |kind, name: &str| (kind, name.to_owned());
    assert_eq!(scene.read(1, first), [named(Acquired, "a"), named(Acquired, "b")]);
    let second = vec![Ok(taken(60, "a", "anna#1", 50)), Ok(taken(60, "c", "carl#2", 90))];
    let told = [named(Released, "b"), named(Expired, "a"), named(Acquired, "c")];
    assert_eq!(scene.read(60, second.clone()), told);
    assert_eq!(scene.read(61, second), [], "nothing has changed");
    let ended = scene.change(70, ChangeKind::AllDeleted);
    let ended: Vec<_> = ended.into_iter().map(|event| (event.kind, event.name)).collect();
    assert_eq!(
        ended,
        [named(Deleted, "a"), named(Deleted, "c"), named(Deleted, "")]
    );
}

#[test]
fn permits_have_a_number_and_internal_documents_no_event() {
    let mut scene = Scene::new();
    let permit = scene
        .written(0, "s\u{1f}2", document("anna#1", 100, 1))
        .expect("an event");
    assert_eq!(
        (permit.name.as_str(), permit.permit, permit.fencing_token),
        ("s", Some(2), None)
    );
    let internal = "mongolock\u{1f}ttl-index";
    assert_eq!(scene.written(0, internal, document("anna#1", 100, 1)), None);
}

/// The stream is opened before the read.
#[test]
fn what_a_read_has_told_is_not_told_again_in_another_way() {
    let mut scene = Scene::new();
    let lock = TakenLock {
        acquired_at: at(50),
        token: 3,
        ..taken(60, "a", "carl#3", 500)
    };
    assert_eq!(scene.read(60, vec![Ok(lock)]), [(Acquired, "a".to_owned())]);
    let released = || doc! { "lockId": "", "expiresAt": at(40) };
    assert_eq!(scene.updated(30, "a", released()), None, "anna's");
    assert_eq!(scene.updated(35, "a", document("bert#2", 300, 2)), None);
    assert_eq!(scene.updated(40, "a", released()), None, "bert's");
    assert_eq!(scene.updated(50, "a", document("carl#3", 500, 3)), None);
    let event = scene.updated(70, "a", released()).expect("an event");
    assert_eq!((event.kind, event.owner.as_deref()), (Released, Some("carl")));

    // Later a clock that is behind means nothing.
    scene.written(80, "a", document("dora#4", 500, 4));
    scene.known.taken.get_mut("a").expect("it is taken").acquired_at = Some(at(1000));
    scene.known.caught_up();
    assert_eq!(kind_of(scene.updated(90, "a", released())), Some(Released));
}

/// Before MongoDB 6.0 an event has only its second.
#[test]
fn a_hold_does_not_end_before_it_begins() {
    let mut scene = Scene::new();
    let mut begin = document("anna#1", 9000, 1);
    begin.insert("acquiredAt", at(1700));
    let acquired = scene.written(1000, "a", begin).expect("an event");
    let released = scene.updated(1000, "a", doc! { "lockId": "" }).expect("an event");
    assert_eq!((acquired.at, released.at), (at(1700), at(1700)));
    scene.written(2000, "a", document("anna#2", 9000, 2));
    let released = scene.updated(5000, "a", doc! { "lockId": "" }).expect("an event");
    assert_eq!(released.at, at(5000));
}
