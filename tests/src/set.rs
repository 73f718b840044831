//! Replica sets with a configuration of their own.

use std::time::Duration;

use mongodb::bson::{Document, doc};

use crate::{Node, Server, ServerOptions, must};

/// A replica set whose configuration a test makes itself. Its methods panic if a server does not do what they ask for.
pub struct Set {
    server: Server,
    name: &'static str,
}

impl Set {
    /// Starts servers that wait for the configuration of a set.
    pub async fn uninitiated(name: &'static str, members: usize) -> Self {
        let options = ServerOptions::new(members, false);
        let options = options.argument("--replSet").argument(name);
        Self {
            server: must(Server::start(options).await),
            name,
        }
    }

    /// A set whose members have these fields, besides their addresses.
    pub async fn start(name: &'static str, members: &[Document]) -> Self {
        let set = Self::uninitiated(name, members.len()).await;
        must(set.server.initiate(set.config(1, members)).await);
        must(set.server.wait_for_members().await);
        set
    }

    /// A configuration. The first member is always the primary: no other one has a priority.
    pub fn config(&self, version: i32, members: &[Document]) -> Document {
        let with_priority = members.iter().enumerate().map(|(id, fields)| {
            let mut member = doc! { "priority": i32::from(id == 0) };
            member.extend(fields.clone());
            member
        });
        let members: Vec<Document> = with_priority.collect();
        let mut config = self.server.config(self.name, &members, Duration::from_secs(2));
        config.insert("version", version);
        config
    }

    /// The member with this number, from 0.
    pub fn node(&self, member: usize) -> &Node {
        &self.server.nodes()[member]
    }

    /// The address of the member with this number.
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
