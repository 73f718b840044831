//! The commands that a client sends, for tests that count or read them.

use std::sync::{Arc, Mutex};

use mongodb::bson::Document;
use mongodb::event::EventHandler;
use mongodb::event::command::CommandEvent;
use mongodb::options::ClientOptions;
use mongodb::{Client, Database};

use crate::database::TestDb;
use crate::error::{locked, must};
use crate::purpose::{Meant, Seen};
use crate::stable_api::stable_options;
use crate::wait::until;

/// The commands that one client has sent, in their order. The driver's monitoring commands are not among them.
#[derive(Clone, Debug, Default)]
pub struct Commands {
    sent: Arc<Mutex<Vec<Document>>>,
    failed: Arc<Mutex<Vec<String>>>,
}

impl Commands {
    /// Starts to record the commands of a client that is made from these options.
    pub fn record(&self, options: &mut ClientOptions) {
        let commands = self.clone();
        options.command_event_handler = Some(EventHandler::callback(move |event| match event {
            CommandEvent::Started(started) => locked(&commands.sent).push(started.command),
            CommandEvent::Failed(failed) => {
                let text = format!("{}: {}", failed.command_name, failed.failure);
                locked(&commands.failed).push(text);
            }
            _ => {}
        }));
    }

    /// The commands that failed so far: the name of each one, and its error.
    pub fn failed(&self) -> Vec<String> {
        locked(&self.failed).clone()
    }

    /// The commands since the last call of this method.
    #[must_use = "call `clear` to forget the commands"]
    pub fn take(&self) -> Vec<Document> {
        std::mem::take(&mut *locked(&self.sent))
    }

    /// Forgets the commands so far.
    pub fn clear(&self) {
        locked(&self.sent).clear();
    }

    /// The commands so far, which stay recorded.
    pub fn all(&self) -> Vec<Document> {
        locked(&self.sent).clone()
    }

    /// The number of recorded commands of this name or of this purpose.
    pub fn count(&self, meant: impl Into<Meant>) -> usize {
        let meant = meant.into();
        let sent = locked(&self.sent);
        let seen = sent.iter().filter_map(Seen::of);
        seen.filter(|seen| meant.includes(seen)).count()
    }

    /// Waits until a command of this name or of this purpose is recorded.
    pub async fn until_sent(&self, meant: impl Into<Meant>) {
        let meant = meant.into();
        until(&format!("{meant:?} is sent"), async || {
            self.count(meant.clone()) > 0
        })
        .await;
    }
}

/// The names of commands: the first key of each document.
pub fn names(commands: &[Document]) -> Vec<&str> {
    let keys = commands.iter().filter_map(|command| command.keys().next());
    keys.map(String::as_str).collect()
}

/// The test's database through a new client whose commands are recorded. Each parameter (`w=1`) is added to the
/// connection string.
pub async fn recorded(db: &TestDb, parameters: &[&str]) -> (Database, Commands) {
    let uri = parameters.iter().fold(db.uri().to_owned(), |uri, parameter| {
        with_parameter(&uri, parameter)
    });
    let commands = Commands::default();
    let mut options = must(stable_options(uri).await);
    commands.record(&mut options);
    // The fail points of the test hit this client too.
    options.app_name = Some(db.name().to_owned());
    let client = must(Client::with_options(options));
    (client.database(db.name()), commands)
}

/// A connection string with one more parameter.
pub fn with_parameter(uri: &str, parameter: &str) -> String {
    let separator = if uri.contains('?') { '&' } else { '?' };
    format!("{uri}{separator}{parameter}")
}
