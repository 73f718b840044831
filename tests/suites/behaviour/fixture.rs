//! What the tests share: a provider with a place of its own, rivals, and a look at the documents and commands.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use mongodb::bson::{Document, doc};
use mongodb::event::EventHandler;
use mongodb::event::command::CommandEvent;
use mongodb::options::ClientOptions;
use mongodb::{Client, Collection, Database};
use mongolock::{IndexState, LockError, LockProvider};
use mongolock_tests::{Server, TestDb, eventually, must, test_db};

/// Longer than anything takes, so that a deadline missed is a defect and not a slow machine.
pub(crate) const AMPLE: Duration = Duration::from_secs(30);

/// The error of a program that uses locks.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AppError {
    #[error("the body failed")]
    Body,
    #[error(transparent)]
    Lock(#[from] LockError),
}

/// A provider, alone in its database or in its memory.
pub(crate) struct Fixture {
    pub(crate) provider: LockProvider,
    db: Option<TestDb>,
}

impl Fixture {
    pub(crate) async fn mongodb() -> Self {
        let db = test_db().await;
        let provider = LockProvider::builder(db.database())
            .acquire_timeout(AMPLE)
            .build()
            .unwrap();
        Self {
            provider,
            db: Some(db),
        }
    }

    pub(crate) fn memory() -> Self {
        let provider = LockProvider::in_memory()
            .another()
            .acquire_timeout(AMPLE)
            .build()
            .unwrap();
        Self { provider, db: None }
    }

    /// What another process would have.
    pub(crate) fn rival(&self) -> LockProvider {
        self.provider.another().owner("rival").build().unwrap()
    }

    pub(crate) fn db(&self) -> &TestDb {
        self.db.as_ref().expect("this test is for MongoDB")
    }

    pub(crate) fn database(&self) -> &Database {
        self.db().database()
    }

    pub(crate) fn locks(&self) -> Collection<Document> {
        self.database().collection("distributed_locks")
    }

    /// For tests that count commands or documents: creating the index on a filled collection needs some of its own.
    pub(crate) async fn until_indexed(&self) {
        assert_eq!(self.provider.admin().index_state().await, IndexState::Ready);
    }

    pub(crate) async fn document(&self, name: &str) -> Option<Document> {
        self.locks().find_one(doc! { "_id": name }).await.unwrap()
    }
}

/// The commands that a client has sent, but for those of its monitoring.
#[derive(Clone, Default)]
pub(crate) struct Commands(Arc<Mutex<Vec<Document>>>);

impl Commands {
    pub(crate) fn take(&self) -> Vec<Document> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }

    pub(crate) fn all(&self) -> Vec<Document> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) async fn until_sent(&self, name: &str) {
        let sent = async || names(&self.0.lock().unwrap()).contains(&name).then_some(());
        must(eventually(AMPLE, name, sent).await);
    }
}

pub(crate) fn names(commands: &[Document]) -> Vec<&str> {
    commands
        .iter()
        .filter_map(|command| command.keys().next().map(String::as_str))
        .collect()
}

/// The database through a client of its own that notes the commands it sends.
pub(crate) async fn recorded(db: &TestDb, parameters: &[&str]) -> (Database, Commands) {
    let commands = Commands::default();
    let mut uri = db.uri().to_owned();
    for parameter in parameters {
        uri.push(if uri.contains('?') { '&' } else { '?' });
        uri.push_str(parameter);
    }
    let mut options = ClientOptions::parse(uri).await.unwrap();
    let noted = commands.clone();
    options.command_event_handler = Some(EventHandler::callback(move |event| {
        if let CommandEvent::Started(started) = event {
            noted.0.lock().unwrap().push(started.command);
        }
    }));
    (
        Client::with_options(options).unwrap().database(db.name()),
        commands,
    )
}

/// The connection string of a user who may do just this with the collection of the locks in the database `app`.
pub(crate) async fn restricted(server: &Server, actions: &[&str]) -> String {
    let app = server.client().await.unwrap().database("app");
    let privileges = doc! {
        "resource": { "db": "app", "collection": "distributed_locks" },
        "actions": actions,
    };
    let role = doc! { "createRole": "locks", "privileges": [privileges], "roles": [] };
    app.run_command(role).await.unwrap();
    app.run_command(doc! { "createUser": "app", "pwd": "app", "roles": ["locks"] })
        .await
        .unwrap();
    let uri = server.uri().replace("root:secret@", "app:app@");
    uri.replace("authSource=admin", "authSource=app")
}
