//! The program `edit_document`: the demonstration as a user runs it, and instances as browsers use them.

use std::process::Command;
use std::time::Duration;

use mongodb::bson::{RawDocumentBuf, doc};
use mongolock::{LockInfo, LockProvider, LockState};
use mongolock_examples::browser::{self, Browser, Instance};
use mongolock_examples::workers::Processes;
use mongolock_tests::{TestDb, eventually, must, test_db};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::run::{Alone, passes, program};

/// The limit for what takes no time, on a busy machine.
const SOON: Duration = Duration::from_secs(30);

fn edit_document() -> Command {
    program(env!("CARGO_BIN_EXE_edit_document"), &[])
}

/// S2.4, S2.7, S2.9, S2.11: the sessions are the owners, one has two documents, and leases end with it or by time.
#[tokio::test]
async fn the_demonstration_passes() {
    let text = passes(edit_document()).await;
    text.has_lines(&[
        "bert/1 1/open on 2: 423 \"locked by anna/1\"",
        "anna/1 1/open on 2: 200 \"\"",
        "anna/1 1/heartbeat on 2: 409 \"lost\"",
        "anna/1 1/end on 2: 200 \"2\"",
        "confirmed saves 50",
        "lines in the document 50",
        "saves refused without the lock 18",
    ]);
    assert_eq!(
        text.count("1/save       on 2: 409"),
        1,
        "after the kill: {text:?}"
    );
    assert_eq!(text.count("1/save       on 1: 409"), 1, "after the ttl: {text:?}");
}

fn at_work() -> Alone {
    Alone::start("edit_document", edit_document())
}

#[tokio::test]
async fn killed_it_leaves_nothing() {
    at_work().killed_leaves_nothing().await;
}

#[tokio::test]
async fn interrupted_it_leaves_nothing() {
    at_work().interrupted_leaves_nothing().await;
}

/// Two instances on a database of their own.
struct Service {
    db: TestDb,
    locks: LockProvider,
    at: [Instance; 2],
    /// The instances end with this.
    processes: Processes,
}

impl Service {
    async fn start() -> Self {
        let db = test_db().await;
        let command = |number: u32| {
            let mut command = edit_document();
            command
                .args(["--worker", &number.to_string(), "--database", db.name()])
                .env("MONGODB_URI", db.uri());
            Ok(command)
        };
        let mut processes = must(Processes::start(1..=2, command));
        Self {
            at: must(browser::instances(&mut processes).await),
            locks: LockProvider::new(db.database()),
            db,
            processes,
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
    must(Browser::new(name, false))
}

/// Sends a request for document 1, and checks the answer.
async fn expect(browser: &Browser, at: Instance, action: &str, text: &str, answer: (u16, &str)) {
    let body = json!({ "text": text, "ttl": 300 });
    must(browser.expect(at, &format!("1/{action}"), &body, answer).await);
}

/// S2.4, S2.5.
#[tokio::test]
async fn of_many_sessions_one_opens_the_document() {
    const SESSIONS: usize = 12;
    let service = Service::start().await;
    let open = |number: usize| {
        let at = service.at[number % 2];
        async move {
            let session = format!("session/{number}");
            let (status, _) = must(
                session_of(&session)
                    .post(at, "1/open", &json!({ "ttl": 300 }))
                    .await,
            );
            (status, session)
        }
    };
    let opened: JoinSet<(u16, String)> = (0..SESSIONS).map(open).collect();
    let mut answers = opened.join_all().await;
    answers.sort_unstable();
    let refused = answers.iter().filter(|(status, _)| *status == 423).count();
    assert_eq!((answers[0].0, refused), (200, SESSIONS - 1), "{answers:?}");
    let holder = format!("locked by {}", answers[0].1);
    expect(&session_of("late/1"), service.at[0], "open", "", (423, &holder)).await;
}

/// S2.7.
#[tokio::test]
async fn the_end_of_a_session_releases_what_a_killed_instance_was_saving() {
    let mut service = Service::start().await;
    let ([a, b], anna, bert) = (service.at, session_of("anna/1"), session_of("bert/1"));
    let page = json!({ "ttl": 300 });
    expect(&anna, a, "open", "", (200, "")).await;
    must(bert.expect(b, "2/open", &page, (200, "")).await);
    let save = json!({ "text": "never", "work": 60, "ttl": 300 });
    service.begin_save(&anna, b, &save).await;
    must(service.processes.kill(2));
    expect(&anna, a, "end", "", (200, "1")).await;
    expect(&bert, a, "open", "", (200, "")).await;
    must(anna.expect(a, "2/open", &page, (423, "locked by bert/1")).await);
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
        let other = format!("2/{action}");
        must(
            anna.expect(b, &other, &json!({ "ttl": 300 }), (409, "not open"))
                .await,
        );
    }
    assert_eq!(service.document().await, None);
    expect(&anna, b, "close", "", (200, "true")).await;
}
