//! Servers that one test after the other has for itself.

use std::ops::Deref;
use std::sync::{Mutex, PoisonError};
use std::thread;

use mongodb::Client;
use mongodb::bson::doc;

use crate::error::SupportError;
use crate::options::{ServerOptions, USER};
use crate::server::Server;

/// What a server is, beside the rest of its options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Standalone,
    Single,
    WithUsers,
}

/// The servers that no test has at the moment.
static FREE: Mutex<Vec<(Kind, Server)>> = Mutex::new(Vec::new());

/// The databases of the server itself.
const OWN: [&str; 3] = ["admin", "config", "local"];

/// A server that no other test uses at the same time. Earlier tests of the process have used it, and their databases, users,
/// roles and fail points are gone. It costs a fraction of what a new one costs. A test that kills its server, leaves it
/// stopped, or changes its parameters starts one of its own with [`Server::start`].
#[derive(Debug)]
pub struct LentServer {
    kind: Kind,
    /// It is there until the value is dropped.
    server: Option<Server>,
}

impl LentServer {
    /// One server without replication, as [`ServerOptions::standalone`] has it.
    ///
    /// # Errors
    /// Those of [`Server::start`].
    pub async fn standalone() -> Result<Self, SupportError> {
        Self::of(Kind::Standalone).await
    }

    /// A replica set of one member, as [`ServerOptions::single`] has it.
    ///
    /// # Errors
    /// Those of [`Server::start`].
    pub async fn single() -> Result<Self, SupportError> {
        Self::of(Kind::Single).await
    }

    /// A replica set of one member with access control, as [`ServerOptions::auth`] has it.
    ///
    /// # Errors
    /// Those of [`Server::start`].
    pub async fn with_users() -> Result<Self, SupportError> {
        Self::of(Kind::WithUsers).await
    }

    async fn of(kind: Kind) -> Result<Self, SupportError> {
        let server = match free(kind) {
            Some(server) if is_cleared(&server).await => server,
            // One that cannot be cleared ends here.
            _ => Server::start(kind.options()).await?,
        };
        Ok(Self {
            kind,
            server: Some(server),
        })
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
        let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
        free.extend(server.map(|server| (self.kind, server)));
    }
}

impl Kind {
    fn options(self) -> ServerOptions {
        match self {
            Self::Standalone => ServerOptions::standalone(),
            Self::Single => ServerOptions::single(),
            Self::WithUsers => ServerOptions::single().auth(),
        }
    }
}

fn free(kind: Kind) -> Option<Server> {
    let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
    let place = free.iter().position(|(of, _)| *of == kind)?;
    Some(free.swap_remove(place).1)
}

async fn is_cleared(server: &Server) -> bool {
    match server.client().await {
        Ok(client) => clear(&client).await.is_ok(),
        Err(_) => false,
    }
}

/// Removes what an earlier test has left.
async fn clear(client: &Client) -> mongodb::error::Result<()> {
    let admin = client.database("admin");
    let no_fail_point = doc! { "configureFailPoint": "failCommand", "mode": "off" };
    admin.run_command(no_fail_point).await?;
    for name in client.list_database_names().await? {
        if !OWN.contains(&&*name) {
            client.database(&name).drop().await?;
        }
    }
    let users = admin
        .run_command(doc! { "usersInfo": { "forAllDBs": true } })
        .await?;
    for user in users.get_array("users").into_iter().flatten() {
        let user = user
            .as_document()
            .map(|user| (user.get_str("user"), user.get_str("db")));
        if let Some((Ok(name), Ok(place))) = user
            && name != USER
        {
            let drop = doc! { "dropUser": name };
            client.database(place).run_command(drop).await?;
        }
    }
    let with_roles = doc! { "distinct": "system.roles", "key": "db" };
    let places = admin.run_command(with_roles).await?;
    for place in places.get_array("values").into_iter().flatten() {
        let place = client.database(place.as_str().unwrap_or_default());
        place.run_command(doc! { "dropAllRolesFromDatabase": 1 }).await?;
    }
    Ok(())
}
