//! Instances of the program `edit_document`, as browsers use them.

use std::process::{Command, Stdio};
use std::time::Duration;

use mongodb::bson::{RawDocumentBuf, doc};
use mongolock::{LockInfo, LockProvider, LockState};
use mongolock_example_services::browser::{self, Browser, Instance};
use mongolock_examples::workers::Processes;
use mongolock_tests::{TestDb, eventually, must, test_db};
use serde_json::{Value, json};

/// The limit for what takes no time, on a busy machine.
const SOON: Duration = Duration::from_secs(30);

/// Two instances on a database of their own.
struct Service {
    db: TestDb,
    locks: LockProvider,
    at: [Instance; 2],
    /// The instances end with this.
    _processes: Processes,
}

impl Service {
    async fn start() -> Self {
        let db = test_db().await;
        let command = |number: u32| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_edit_document"));
            command.args(["--worker", &number.to_string(), "--database", db.name()]);
            command.stdin(Stdio::null()).env("MONGODB_URI", db.uri());
            command
        };
        let mut processes = must(Processes::start(1..=2, command));
        Self {
            at: must(browser::instances(&mut processes).await),
            locks: LockProvider::new(db.database()),
            db,
            _processes: processes,
        }
    }

    /// The document with its exact bytes.
    async fn document(&self) -> Option<RawDocumentBuf> {
        let documents = self.db.database().collection("documents");
        must(documents.find_one(doc! { "_id": 1 }).await)
    }

    /// Waits for the lease of the document to be like this.
    async fn until(&self, what: &str, is_so: fn(&LockInfo) -> bool) {
        let lock = || async {
            let lock = must(self.locks.admin().get("document:1").await);
            lock.filter(|lock| lock.state == LockState::Held && is_so(lock))
        };
        must(eventually(SOON, what, lock).await);
    }

    /// Sends a save of document 1, and closes the connection while it is under way.
    async fn begin_save(&self, browser: &Browser, at: Instance, save: &Value) {
        tokio::select! {
            saved = browser.post(at, "1/save", save) => panic!("it was not under way: {saved:?}"),
            () = self.until("the save", |lock| !lock.detached) => {}
        }
    }
}

fn session_of(name: &str) -> Browser {
    Browser::new(name, false)
}

/// Sends a request for document 1, and checks the answer.
async fn expect(browser: &Browser, at: Instance, action: &str, text: &str, answer: (u16, &'static str)) {
    let body = json!({ "text": text, "ttl": 300 });
    must(browser.expect(at, &format!("1/{action}"), &body, answer).await);
}

/// S2.1, S2.6, S2.10: opening and closing change no byte of the document, and a save without the lock is refused.
#[tokio::test]
async fn a_page_whose_lock_an_operator_has_released_cannot_save() {
    let service = Service::start().await;
    let ([a, b], anna, bert) = (service.at, session_of("anna/1"), session_of("bert/1"));
    expect(&anna, a, "open", "", (200, "")).await;
    expect(&anna, b, "save", "first", (200, "")).await;
    let before = service.document().await;
    assert!(before.is_some());

    assert!(must(service.locks.admin().force_release("document:1").await));
    expect(&bert, b, "open", "", (200, "first")).await;
    expect(&anna, a, "save", "second", (409, "lost")).await;
    expect(&anna, b, "heartbeat", "", (409, "lost")).await;
    expect(&anna, b, "close", "", (200, "false")).await;
    expect(&bert, a, "close", "", (200, "true")).await;
    assert_eq!(service.document().await, before);
}

#[tokio::test]
async fn a_client_that_closes_its_connection_does_not_interrupt_its_save() {
    let service = Service::start().await;
    let ([a, b], anna) = (service.at, session_of("anna/1"));
    expect(&anna, a, "open", "", (200, "")).await;
    let save = json!({ "text": "whole", "work": 2, "ttl": 300 });
    service.begin_save(&anna, b, &save).await;
    service.until("the end of the save", |lock| lock.detached).await;
    // The answer with the new handle was lost, but the session still has the lock, and opens the document anew.
    expect(&anna, a, "heartbeat", "", (409, "lost")).await;
    expect(&session_of("bert/1"), b, "open", "", (423, "locked by anna/1")).await;
    expect(&anna, b, "open", "", (200, "whole")).await;
    expect(&anna, a, "end", "", (200, "1")).await;
}

#[tokio::test]
async fn a_session_opens_its_document_anew_but_not_during_its_save() {
    let service = Service::start().await;
    let ([a, b], anna, bert) = (service.at, session_of("anna/1"), session_of("bert/1"));
    expect(&anna, a, "open", "", (200, "")).await;
    expect(&anna, b, "save", "first", (200, "")).await;
    let earlier = anna.cookie("1").expect("a cookie");

    let reloaded = session_of("anna/1");
    // The service limits the time that a page asks for.
    let longer = json!({ "ttl": 3600 });
    must(reloaded.expect(b, "1/open", &longer, (200, "first")).await);
    let lock = must(service.locks.admin().get("document:1").await).expect("a lock");
    assert!(lock.remaining <= Duration::from_secs(300), "{lock:?}");
    expect(&bert, a, "open", "", (423, "locked by anna/1")).await;
    anna.set_cookie("1", &earlier);
    expect(&anna, a, "heartbeat", "", (409, "lost")).await;
    expect(&anna, a, "save", "by the earlier page", (409, "lost")).await;

    let save = json!({ "text": "never", "work": 60 });
    service.begin_save(&reloaded, a, &save).await;
    expect(&session_of("anna/1"), b, "open", "", (423, "locked by anna/1")).await;
    expect(&anna, b, "end", "", (200, "1")).await;
    expect(&bert, a, "open", "", (200, "first")).await;
}

#[tokio::test]
async fn only_the_session_that_has_opened_a_document_can_use_its_cookie() {
    let service = Service::start().await;
    let ([a, b], anna, eve) = (service.at, session_of("anna/1"), session_of("eve/1"));
    expect(&anna, a, "open", "", (200, "")).await;
    let cookie = anna.cookie("1").expect("a cookie");
    let (handle, attributes) = cookie.split_once("; ").expect("attributes");
    assert!(handle.starts_with("lock=mlh1."), "another cookie");
    assert_eq!(attributes, "Path=/1; HttpOnly; Secure; SameSite=Strict");

    eve.set_cookie("1", &cookie);
    anna.set_cookie("2", &cookie);
    for action in ["heartbeat", "save", "close"] {
        expect(&eve, b, action, "hers", (409, "not open")).await;
        let (other, page) = (format!("2/{action}"), json!({ "ttl": 300 }));
        must(anna.expect(b, &other, &page, (409, "not open")).await);
    }
    assert_eq!(service.document().await, None);
    expect(&anna, b, "close", "", (200, "true")).await;
}
