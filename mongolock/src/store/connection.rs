//! The library's own client, and errors about its connection string, without secrets.

use std::sync::Arc;
use std::time::Duration;

use mongodb::Client;
use mongodb::options::ClientOptions;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::reachability::Reachability;
use crate::LockError;
use crate::error::connection_string;
use crate::timing::CLIENT_LIMIT;

/// A client that this library has created, and the results of its monitoring. Providers that are built from one another
/// share it, and the last one that is shut down ends it.
pub(crate) struct Connection {
    pub(crate) client: Client,
    /// What the driver reports about its servers, connections and log-ins.
    pub(crate) servers: Arc<Reachability>,
    /// Compares the hosts of the connection string.
    checking: AbortHandle,
    /// Each provider that uses the client has a copy.
    pub(super) users: Arc<()>,
}

impl Connection {
    /// Ends the client, if no provider uses it any more: its cursors and sessions at the server, and its tasks.
    pub(super) async fn shut_down_if_unused(&self) {
        if Arc::strong_count(&self.users) > 1 {
            return;
        }
        self.checking.abort();
        let shutdown = |immediate| timeout(CLIENT_LIMIT, self.client.clone().shutdown().immediate(immediate));
        if shutdown(false).await.is_err() {
            // A server that does not reply must not delay the end of the process.
            let _ = shutdown(true).await;
        }
    }
}

/// Creates a client whose monitoring shows why MongoDB cannot be reached. It waits for no server, except for the DNS
/// records of a `mongodb+srv` string. `selection` is how long the driver looks for a server if the string does not set
/// that time.
pub(crate) async fn connect(uri: &str, selection: Option<Duration>) -> Result<Arc<Connection>, LockError> {
    let refused = |error| connection_string::refused(uri, error);
    let mut options = options(uri.trim()).await.map_err(refused)?;
    options.server_selection_timeout = options.server_selection_timeout.or(selection);
    let (servers, checking) = Reachability::observe(uri, &mut options);
    let client = Client::with_options(options).map_err(refused)?;
    Ok(Arc::new(Connection {
        client,
        servers,
        checking,
        users: Arc::default(),
    }))
}

/// The number of connections of the pool. The library needs more than the driver's default: for its commands, the
/// stream, and rows that have failed together and are sent alone.
const POOL: u32 = 16;

/// The options of the connection string, and three options for which this library has other defaults than the driver.
async fn options(uri: &str) -> mongodb::error::Result<ClientOptions> {
    let mut options = ClientOptions::parse(uri).await?;
    // This library itself repeats commands that the server rejects for overload: renewals soon, and other commands
    // later.
    options.max_adaptive_retries.get_or_insert(0);
    // The driver waits for the reply to a handshake without a limit. With its default of 2, two silent connections
    // prevent it from opening others for as long as they are silent.
    let pool = *options.max_pool_size.get_or_insert(POOL);
    options.max_connecting.get_or_insert(pool.min(POOL));
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_connection_string_decides_where_it_says_something() {
        for (parameters, repeats, connecting) in [
            ("", 0, POOL),
            ("?maxPoolSize=4", 0, 4),
            ("?maxPoolSize=500", 0, POOL),
            ("?maxAdaptiveRetries=2&maxConnecting=3", 2, 3),
        ] {
            let options = options(&format!("mongodb://host/{parameters}")).await.unwrap();
            assert_eq!(
                (options.max_adaptive_retries, options.max_connecting),
                (Some(repeats), Some(connecting))
            );
        }
    }
}
