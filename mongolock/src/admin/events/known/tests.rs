use mongodb::bson::doc;

use super::LockEventKind::{Acquired, Damaged, Released};
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

    fn change(&mut self, millis: i64, kind: ChangeKind) -> Option<LockEvent> {
        let now = self.instant(millis);
        let change = DocumentChange { at: at(millis), kind };
        self.known.change(change, now).pop()
    }

    fn written(&mut self, millis: i64, id: &str, document: Document) -> Option<LockEvent> {
        let id = id.to_owned();
        self.change(millis, ChangeKind::Written { id, document })
    }

    fn updated(&mut self, millis: i64, id: &str, fields: Document) -> Option<LockEvent> {
        let (id, removed) = (id.to_owned(), Vec::new());
        self.change(millis, ChangeKind::Updated { id, fields, removed })
    }

    fn removed(&mut self, millis: i64, id: &str, field: &str) -> Option<LockEvent> {
        let (id, fields, removed) = (id.to_owned(), Document::new(), vec![field.to_owned()]);
        self.change(millis, ChangeKind::Updated { id, fields, removed })
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

/// A history does not begin with the holds of its first moment.
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

#[test]
fn an_internal_document_has_no_event() {
    let internal = "mongolock\u{1f}ttl-index";
    let event = Scene::new().written(0, internal, document("anna#1", 100, 1));
    assert_eq!(event, None);
}
