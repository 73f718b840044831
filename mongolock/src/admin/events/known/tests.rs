use super::LockEventKind::{Acquired, Damaged, Released};
use super::*;
use crate::protocol::Document;

fn at(millis: i64) -> DateTime {
    DateTime::from_millis(millis)
}

fn sight(at: i64, lock_id: &str, expires_at: i64, token: i64) -> Sight {
    Sight {
        document: Document {
            lock_id: Value::Text(lock_id.into()),
            acquired_at: Value::Date(0),
            expires_at: Value::Date(expires_at),
            token: Value::Long(token),
        },
        now: Some(at),
    }
}

/// Of an update: the fields that it has changed.
fn update(lock_id: Value, expires_at: Value) -> Sight {
    Sight {
        document: Document {
            lock_id,
            expires_at,
            ..Document::default()
        },
        now: None,
    }
}

fn released() -> Sight {
    update(Value::Text("".into()), Value::Missing)
}

/// Locks of which the clock of this process shows the milliseconds of the server.
struct Scene {
    known: KnownLocks,
    begun: Instant,
}

impl Scene {
    fn new() -> Self {
        Self {
            known: KnownLocks::default(),
            begun: Instant::now(),
        }
    }

    fn moment(&self, millis: i64) -> Moment {
        let now = self.begun + Duration::from_millis(millis.unsigned_abs());
        Moment { at: at(millis), now }
    }

    fn written(&mut self, millis: i64, id: &str, lock_id: &str, expires_at: i64) -> Option<LockEvent> {
        self.updated(millis, id, &sight(millis, lock_id, expires_at, 1))
    }

    fn updated(&mut self, millis: i64, id: &str, fields: &Sight) -> Option<LockEvent> {
        let time = self.moment(millis);
        self.known.change_of(&id.into(), Some(fields), time)
    }

    /// The event of a read of the one lock that is due then.
    fn read_due(&mut self, millis: i64, id: &str, sight: Sight) -> Option<LockEvent> {
        let (time, name) = (self.moment(millis), Name::from(id));
        let due = self.known.due(time.now);
        assert_eq!(due, [Name::clone(&name)]);
        self.known.read_due(&due, &[(name, sight)], time).pop()
    }

    fn read(&mut self, millis: i64, found: &[(&str, Sight)]) -> Vec<(LockEventKind, String)> {
        let named = found.iter().map(|(id, sight)| (Name::from(*id), sight.clone()));
        let events = self.known.read(&named.collect::<Vec<_>>(), self.moment(millis));
        events.into_iter().map(|event| (event.kind, event.name)).collect()
    }
}

fn kind_of(event: Option<LockEvent>) -> Option<LockEventKind> {
    event.map(|event| event.kind)
}

#[test]
fn a_document_that_becomes_unreadable_is_told_once() {
    let mut scene = Scene::new();
    scene.written(10, "a", "anna#1", 100);
    let mut damaged = sight(100, "anna#1", 100, 1);
    damaged.document.token = Value::Missing;
    assert_eq!(kind_of(scene.read_due(100, "a", damaged)), Some(Damaged));
    let later = scene.moment(1_000_000).now;
    assert!(scene.known.due(later).is_empty());
    let updates = [
        update(Value::Int(5), Value::Missing),
        update(Value::Text("bert#1".into()), Value::Int(5)),
        update(Value::Missing, Value::Missing),
    ];
    for update in updates {
        assert_eq!(scene.updated(110, "a", &update), None, "it was none before");
        scene.written(120, "a", "anna#2", 200);
        let event = scene.updated(130, "a", &update).expect("an event");
        assert_eq!((event.kind, event.owner.as_deref()), (Damaged, Some("anna")));
    }
}

/// The stream is opened before the read.
#[test]
fn what_a_read_has_told_is_not_told_again_in_another_way() {
    let mut scene = Scene::new();
    let mut carl = sight(60, "carl#3", 500, 3);
    carl.document.acquired_at = Value::Date(50);
    let told = scene.read(60, &[("a", carl.clone())]);
    assert_eq!(told, [(Acquired, "a".to_owned())]);
    assert_eq!(scene.updated(30, "a", &released()), None, "anna's");
    assert_eq!(scene.written(35, "a", "bert#2", 300), None);
    assert_eq!(scene.updated(40, "a", &released()), None, "bert's");
    assert_eq!(scene.updated(50, "a", &carl), None);
    let event = scene.updated(70, "a", &released()).expect("an event");
    assert_eq!((event.kind, event.owner.as_deref()), (Released, Some("carl")));

    // Later a clock that is behind means nothing.
    scene.written(80, "a", "dora#4", 500);
    scene.known.taken.get_mut("a").expect("it is taken").acquired_at = Some(1000);
    scene.known.caught_up();
    assert_eq!(kind_of(scene.updated(90, "a", &released())), Some(Released));
}
