//! Asks one server for its replica set.

use mongodb::Client;
use mongodb::bson::Document;
use mongodb::event::EventHandler;
use mongodb::event::sdam::SdamEvent;
use mongodb::options::{ClientOptions, ServerAddress, ServerMonitoringMode};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::timing::{CLIENT_LIMIT, SEED_LIMIT};

/// What the log of a server calls a client that asks such a question.
const APP_NAME: &str = "mongolock: which replica set";

/// The options of a client for such questions: those of the application's client that reach a server, and no user, because
/// `hello` needs none.
pub(super) fn options(of: &ClientOptions) -> ClientOptions {
    let mut options = of.clone();
    options.direct_connection = Some(true);
    options.repl_set_name = None;
    options.credential = None;
    options.app_name = Some(APP_NAME.to_owned());
    options.min_pool_size = None;
    // One heartbeat says all, and no other one follows before the client ends.
    options.server_monitoring_mode = Some(ServerMonitoringMode::Poll);
    options.heartbeat_freq = None;
    options
}

/// The client of a question, and what comes of its first heartbeat.
pub(super) struct Question {
    client: Client,
    reply: mpsc::UnboundedReceiver<Option<Document>>,
}

impl Question {
    /// Begins to ask; `None` if the driver does not accept the options.
    pub(super) fn begin(mut options: ClientOptions, host: ServerAddress) -> Option<Self> {
        let (sender, reply) = mpsc::unbounded_channel();
        options.hosts = vec![host];
        options.sdam_event_handler = Some(EventHandler::callback(move |event| {
            // The question may be over.
            let _ = match event {
                SdamEvent::ServerHeartbeatSucceeded(event) => sender.send(Some(event.reply)),
                SdamEvent::ServerHeartbeatFailed(_) => sender.send(None),
                _ => Ok(()),
            };
        }));
        let client = Client::with_options(options).ok()?;
        Some(Self { client, reply })
    }

    /// The reply to `hello`; `None` if there is none.
    pub(super) async fn reply(&mut self) -> Option<Document> {
        timeout(SEED_LIMIT, self.reply.recv()).await.ok()??
    }

    /// Ends the connection.
    pub(super) async fn end(self) {
        let _ = timeout(CLIENT_LIMIT, self.client.shutdown().immediate(true)).await;
    }
}
