use mongodb::bson::{Document, doc};

use crate::{AMPLE, Node, Server, ServerOptions, eventually, must};

/// A replica set whose configuration a test makes itself. Its methods panic if a server does not do what they ask for.
pub struct Set {
    servers: Vec<Server>,
    name: &'static str,
}

impl Set {
    /// Starts servers that wait for the configuration of a set.
    pub async fn uninitiated(name: &'static str, members: usize) -> Self {
        let options = ServerOptions::standalone().argument("--replSet").argument(name);
        let mut servers = Vec::new();
        for _ in 0..members {
            servers.push(must(Server::start(options.clone()).await));
        }
        Self { servers, name }
    }

    /// A set whose members have these fields, besides their addresses.
    pub async fn start(name: &'static str, members: &[Document]) -> Self {
        let set = Self::uninitiated(name, members.len()).await;
        set.run(0, doc! { "replSetInitiate": set.config(1, members) })
            .await;
        let settled = || async {
            let status = set
                .admin(0)
                .await
                .run_command(doc! { "replSetGetStatus": 1 })
                .await;
            let status = status.ok()?;
            let mut each = status.get_array("members").ok()?.iter().map(|member| {
                let state = member
                    .as_document()
                    .and_then(|member| member.get_i32("state").ok());
                // 1 is primary, 2 is secondary, 7 is arbiter.
                matches!(state, Some(1 | 2 | 7))
            });
            (status.get_i32("myState").is_ok_and(|state| state == 1) && each.all(|is_settled| is_settled))
                .then_some(())
        };
        must(eventually(AMPLE, "a set whose first member is its primary", settled).await);
        set
    }

    /// A configuration. The first member is always the primary: no other one has a priority.
    #[must_use]
    pub fn config(&self, version: i32, members: &[Document]) -> Document {
        let members = (0_i32..).zip(members).zip(&self.servers);
        let members = members.map(|((id, fields), server)| {
            let mut member =
                doc! { "_id": id, "host": server.node().address(), "priority": i32::from(id == 0) };
            member.extend(fields.clone());
            member
        });
        let settings = doc! { "electionTimeoutMillis": 2000, "heartbeatIntervalMillis": 500 };
        doc! {
            "_id": self.name, "version": version, "members": members.collect::<Vec<_>>(), "settings": settings,
        }
    }

    /// The member with this number, from 0.
    #[must_use]
    pub fn node(&self, member: usize) -> &Node {
        self.servers[member].node()
    }

    /// The address of the member with this number.
    #[must_use]
    pub fn address(&self, member: usize) -> &str {
        self.node(member).address()
    }

    /// The database `admin` of the member with this number.
    pub async fn admin(&self, member: usize) -> mongodb::Database {
        must(self.node(member).client().await).database("admin")
    }

    /// The reply of the member with this number to a command on `admin`.
    pub async fn run(&self, member: usize, command: Document) -> Document {
        must(self.admin(member).await.run_command(command).await)
    }
}
