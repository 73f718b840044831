//! The MongoDB that tests and examples use unless they need one of their own.

use std::env;

use mongodb::Client;
use tokio::sync::OnceCell;

use crate::error::SupportError;
use crate::node::connect;
use crate::options::ServerOptions;
use crate::server::Server;

/// A MongoDB to work with: the one that `MONGODB_URI` names, else a replica set of one member that belongs to this
/// process.
#[derive(Debug)]
pub struct Deployment {
    uri: String,
    server: Option<Server>,
}

impl Deployment {
    /// The MongoDB of `MONGODB_URI` if that is set, else a new replica set of one member.
    ///
    /// # Errors
    /// Those of [`Server::start`].
    pub async fn from_env_or_start() -> Result<Self, SupportError> {
        match env::var("MONGODB_URI") {
            Ok(uri) if !uri.is_empty() => Ok(Self { uri, server: None }),
            _ => Self::start(ServerOptions::single()).await,
        }
    }

    /// A new server, whatever the environment says.
    ///
    /// # Errors
    /// Those of [`Server::start`].
    pub async fn start(options: ServerOptions) -> Result<Self, SupportError> {
        let server = Server::start(options).await?;
        Ok(Self {
            uri: server.uri(),
            server: Some(server),
        })
    }

    /// The connection string, for clients and child processes.
    #[must_use]
    pub fn uri(&self) -> &str {
        &self.uri
    }

    /// The server that belongs to this value; `None` if `MONGODB_URI` named somebody else's.
    #[must_use]
    pub fn server(&self) -> Option<&Server> {
        self.server.as_ref()
    }

    /// A new client, for the runtime that asks.
    ///
    /// # Errors
    /// When the driver refuses the connection string.
    pub async fn client(&self) -> Result<Client, SupportError> {
        connect(&self.uri).await
    }
}

/// The one MongoDB of this test process, started by the test that asks first; it ends with the process.
///
/// # Errors
/// Those of [`Server::start`]; the next test tries again.
pub async fn shared() -> Result<&'static Deployment, SupportError> {
    static SHARED: OnceCell<Deployment> = OnceCell::const_new();
    SHARED.get_or_try_init(Deployment::from_env_or_start).await
}
