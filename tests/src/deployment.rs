//! The MongoDB server of tests and examples that do not start one of their own.

use std::env;

use mongodb::Client;
use tokio::sync::OnceCell;

use crate::error::SupportError;
use crate::node::connect;
use crate::options::ServerOptions;
use crate::server::Server;

/// A MongoDB server: the one that `MONGODB_URI` names, or else a replica set of one member that belongs to this
/// process.
#[derive(Debug)]
pub struct Deployment {
    uri: String,
    server: Option<Server>,
}

impl Deployment {
    /// The server of `MONGODB_URI` if that is set, or else a new replica set of one member.
    pub async fn from_env_or_start() -> Result<Self, SupportError> {
        match env::var("MONGODB_URI") {
            Ok(uri) if !uri.is_empty() => Ok(Self { uri, server: None }),
            _ => {
                let server = Server::start(ServerOptions::single()).await?;
                let (uri, server) = (server.uri(), Some(server));
                Ok(Self { uri, server })
            }
        }
    }

    /// The connection string, for clients and child processes.
    pub fn uri(&self) -> &str {
        &self.uri
    }

    /// The server that belongs to this value; `None` if `MONGODB_URI` names a running server.
    pub fn server(&self) -> Option<&Server> {
        self.server.as_ref()
    }

    /// A new client, for the calling runtime.
    pub async fn client(&self) -> Result<Client, SupportError> {
        connect(&self.uri).await
    }
}

/// The servers that a test process starts at most for databases of its tests. A server has one fail point, and the tests
/// that want it wait for each other: with five servers one test of `faults` took as long as the whole suite.
const SERVERS: usize = 8;

/// The shared MongoDB server of this test process. The first test that calls this function starts it; it ends with the
/// process. After a failure the next test tries again.
pub async fn shared() -> Result<&'static Deployment, SupportError> {
    in_turn(0).await
}

/// The shared server for the test with this number: the servers take turns.
pub(crate) async fn in_turn(number: u64) -> Result<&'static Deployment, SupportError> {
    static SHARED: [OnceCell<Deployment>; SERVERS] = [const { OnceCell::const_new() }; SERVERS];
    let index = usize::try_from(number).unwrap_or_default() % SERVERS;
    SHARED[index].get_or_try_init(Deployment::from_env_or_start).await
}
