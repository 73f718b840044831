//! A running MongoDB: one server, or a replica set.

mod replica_set;

use std::path::Path;

use mongodb::Client;
use mongodb::bson::doc;
use tokio::task::JoinSet;

use crate::error::SupportError;
use crate::node::{Node, connect, run_admin};
use crate::options::{PASSWORD, SET_NAME, ServerOptions, USER};
use crate::wait::{AMPLE, eventually};

/// The time in which a former primary cannot become primary again, in seconds.
const STEP_DOWN_SECONDS: i32 = 5;

/// A MongoDB that belongs to this value: its processes and directories are removed when it is dropped, and also when
/// this process ends in any other way. Dropping blocks for some milliseconds.
///
/// It belongs to no runtime: a test can keep it in a static and use it from several runtimes.
#[derive(Debug)]
pub struct Server {
    nodes: Vec<Node>,
    replica_set: bool,
    auth: bool,
}

impl Server {
    /// Starts a server and waits until it accepts writes and all members of a replica set are primary or secondary.
    ///
    /// # Errors
    /// [`SupportError::NoMongod`] without a binary, [`SupportError::Start`] with the log's end when it does not run.
    pub async fn start(options: ServerOptions) -> Result<Self, SupportError> {
        let binary = options.source.clone().find().await?;
        let nodes = start_nodes(&binary, &options).await?;
        let server = Self {
            nodes,
            replica_set: options.replica_set,
            auth: options.auth,
        };
        if server.replica_set {
            server.initiate(options.election_timeout).await?;
        }
        if server.auth {
            server.create_user().await?;
        }
        if server.replica_set {
            server.wait_for_members().await?;
        }
        Ok(server)
    }

    /// A connection string for the whole deployment, with the user of a server that has access control.
    #[must_use]
    pub fn uri(&self) -> String {
        let hosts = self.nodes.iter().map(Node::address).collect::<Vec<_>>().join(",");
        let user = if self.auth {
            format!("{USER}:{PASSWORD}@")
        } else {
            String::new()
        };
        let mut options = Vec::new();
        if self.replica_set {
            options.push(format!("replicaSet={SET_NAME}"));
        }
        if self.auth {
            options.push("authSource=admin".to_owned());
        }
        format!("mongodb://{user}{hosts}/?{}", options.join("&"))
    }

    /// A new client, for the calling runtime: clients must not be shared between runtimes.
    ///
    /// # Errors
    /// When the driver refuses the connection string.
    pub async fn client(&self) -> Result<Client, SupportError> {
        connect(&self.uri()).await
    }

    /// All members.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The first member: the only one of a standalone server and of a replica set of one member.
    ///
    /// # Panics
    /// Never: a server has at least one member.
    #[must_use]
    pub fn node(&self) -> &Node {
        &self.nodes[0]
    }

    /// The current primary. The call waits for a running election.
    ///
    /// # Errors
    /// [`SupportError::Deadline`] if there is none for a minute.
    pub async fn primary(&self) -> Result<&Node, SupportError> {
        eventually(AMPLE, "a primary of the replica set", || self.find_primary()).await
    }

    /// The members that are secondaries now.
    pub async fn secondaries(&self) -> Vec<&Node> {
        let answers = self.roles().await;
        let secondaries = answers
            .into_iter()
            .filter(|(_, hello)| hello.get_bool("secondary").unwrap_or_default());
        secondaries.map(|(node, _)| node).collect()
    }

    /// Steps the primary down and waits for the next one: another member, or the same one in a set of one member.
    ///
    /// # Errors
    /// When the server refuses, or no primary follows.
    pub async fn step_down(&self) -> Result<&Node, SupportError> {
        let primary = self.primary().await?;
        let seconds = if self.nodes.len() == 1 {
            1
        } else {
            STEP_DOWN_SECONDS
        };
        let command = doc! { "replSetStepDown": seconds, "secondaryCatchUpPeriodSecs": 0, "force": true };
        run_admin(&primary.uri(), command).await?;
        self.primary().await
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // All nodes begin to end at the same time; their own drops then wait.
        self.nodes.iter().for_each(Node::dismiss);
    }
}

async fn start_nodes(binary: &Path, options: &ServerOptions) -> Result<Vec<Node>, SupportError> {
    let mut starting = JoinSet::new();
    for _ in 0..options.members {
        let (binary, options) = (binary.to_owned(), options.clone());
        starting.spawn(async move { Node::start(&binary, &options).await });
    }
    let mut nodes = Vec::new();
    while let Some(started) = starting.join_next().await {
        nodes.push(
            started
                .map_err(std::io::Error::other)
                .map_err(SupportError::io("start of mongod"))??,
        );
    }
    Ok(nodes)
}
