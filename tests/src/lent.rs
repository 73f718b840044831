//! Servers that one test after the other has for itself.

use std::ops::Deref;
use std::sync::Mutex;
use std::thread;

use mongodb::bson::{Bson, doc};

use crate::error::{SupportError, locked};
use crate::fail_point::off;
use crate::options::{ServerOptions, USER};
use crate::server::Server;

/// The servers that no test has at the moment.
static FREE: Mutex<Vec<Server>> = Mutex::new(Vec::new());

/// A server that no other test uses at the same time. Earlier tests of the process have used it, and their databases, users,
/// roles and fail points are gone. It costs a fraction of what a new one costs. A test that kills its server, leaves it
/// stopped, or changes its parameters starts one of its own with [`Server::start`].
#[derive(Debug)]
pub struct LentServer {
    /// It is there until the value is dropped.
    server: Option<Server>,
}

impl LentServer {
    /// One server without replication, as [`ServerOptions::standalone`] has it.
    pub async fn standalone() -> Result<Self, SupportError> {
        Self::of(ServerOptions::standalone()).await
    }

    /// A replica set of one member, as [`ServerOptions::single`] has it.
    pub async fn single() -> Result<Self, SupportError> {
        Self::of(ServerOptions::single()).await
    }

    /// A replica set of one member with access control, as [`ServerOptions::auth`] has it.
    pub async fn with_users() -> Result<Self, SupportError> {
        Self::of(ServerOptions::single().auth()).await
    }

    async fn of(options: ServerOptions) -> Result<Self, SupportError> {
        let server = match free(&options) {
            Some(server) if clear(&server).await.is_ok() => server,
            // One that cannot be cleared ends here.
            _ => Server::start(options).await?,
        };
        Ok(Self { server: Some(server) })
    }
}

impl Deref for LentServer {
    type Target = Server;

    fn deref(&self) -> &Server {
        self.server.as_ref().expect("it is there until the drop")
    }
}

impl Drop for LentServer {
    fn drop(&mut self) {
        let server = self.server.take().filter(|_| !thread::panicking());
        locked(&FREE).extend(server);
    }
}

fn free(options: &ServerOptions) -> Option<Server> {
    let kind = (options.replica_set, options.auth);
    let mut free = locked(&FREE);
    let place = free
        .iter()
        .position(|server| (server.replica_set, server.auth) == kind)?;
    Some(free.swap_remove(place))
}

/// Removes what an earlier test has left.
async fn clear(server: &Server) -> Result<(), SupportError> {
    let client = server.client().await?;
    let cleared = async {
        let admin = client.database("admin");
        admin.run_command(off()).await?;
        let all = doc! { "usersInfo": { "forAllDBs": true } };
        let users = admin.run_command(all).await?;
        let users = users.get_array("users").into_iter().flatten();
        for user in users.filter_map(Bson::as_document) {
            let name = user.get_str("user").unwrap_or_default();
            if name != USER {
                let place = client.database(user.get_str("db").unwrap_or_default());
                place.run_command(doc! { "dropUser": name }).await?;
            }
        }
        let with_roles = doc! { "distinct": "system.roles", "key": "db" };
        let places = admin.run_command(with_roles).await?;
        for place in places.get_array("values").into_iter().flatten() {
            let place = client.database(place.as_str().unwrap_or_default());
            place.run_command(doc! { "dropAllRolesFromDatabase": 1 }).await?;
        }
        for name in client.list_database_names().await? {
            if !["admin", "config", "local"].contains(&&*name) {
                client.database(&name).drop().await?;
            }
        }
        Ok::<_, mongodb::error::Error>(())
    };
    cleared.await.map_err(SupportError::at("what a test has left"))
}
