//! A running MongoDB: one server, or a replica set.

use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use mongodb::Client;
use mongodb::bson::{Document, doc};
use tokio::time::timeout;

use crate::error::SupportError;
use crate::mongod::find_mongod;
use crate::node::{Node, connect, run_admin};
use crate::options::{PASSWORD, SET_NAME, ServerOptions, USER};
use crate::wait::{AMPLE, eventually};

/// The time after which a member counts as hanging and has no role.
const ANSWER_LIMIT: Duration = Duration::from_secs(1);

/// A MongoDB that belongs to this value: its processes and directories are removed when it is dropped, and also when
/// this process ends in any other way. Dropping blocks for some milliseconds.
///
/// It belongs to no runtime: a test can keep it in a static and use it from several runtimes.
#[derive(Debug)]
pub struct Server {
    nodes: Vec<Node>,
    pub(crate) replica_set: bool,
    pub(crate) auth: bool,
}

impl Server {
    /// Starts a server and waits until it accepts writes and all members of a replica set are primary or secondary.
    pub async fn start(options: ServerOptions) -> Result<Self, SupportError> {
        let binary = match &options.binary {
            Some(binary) => binary.clone(),
            None => find_mongod().await?,
        };
        let starting = (0..options.members).map(|_| Node::start(&binary, &options));
        let server = Self {
            nodes: try_join_all(starting).await?,
            replica_set: options.replica_set,
            auth: options.auth,
        };
        if server.replica_set {
            let members = vec![doc! {}; options.members];
            let config = server.config(SET_NAME, &members, options.election_timeout);
            server.initiate(config).await?;
        }
        if server.auth {
            server.create_user().await?;
        }
        if server.replica_set {
            server.wait_for_members().await?;
        }
        Ok(server)
    }

    /// The configuration of a set whose members have these fields, besides their addresses.
    pub(crate) fn config(&self, name: &str, members: &[Document], election_timeout: Duration) -> Document {
        let members = (0_i32..).zip(&self.nodes).zip(members);
        let members = members.map(|((id, node), fields)| {
            let mut member = doc! { "_id": id, "host": node.address() };
            member.extend(fields.clone());
            member
        });
        let timeout = i64::try_from(election_timeout.as_millis()).unwrap_or(i64::MAX);
        // A member that follows another secondary would wait for seconds if a test stops that one, and so would every write.
        let settings = doc! {
            "electionTimeoutMillis": timeout,
            "heartbeatIntervalMillis": 500_i64,
            "chainingAllowed": false,
        };
        doc! { "_id": name, "version": 1, "members": members.collect::<Vec<_>>(), "settings": settings }
    }

    /// Makes a replica set, and waits for its primary.
    pub(crate) async fn initiate(&self, config: Document) -> Result<(), SupportError> {
        // Before the first user exists, the server accepts exactly this command from its own machine.
        run_admin(&self.node().anonymous_uri(), doc! { "replSetInitiate": config }).await?;
        self.primary().await.map(drop)
    }

    async fn create_user(&self) -> Result<(), SupportError> {
        let uri = self.primary().await?.anonymous_uri();
        let command = doc! { "createUser": USER, "pwd": PASSWORD, "roles": ["root"] };
        run_admin(&uri, command).await.map(drop)
    }

    pub(crate) async fn wait_for_members(&self) -> Result<(), SupportError> {
        let settled = || async {
            let primary = self.find_primary().await?;
            let status = run_admin(&primary.uri(), doc! { "replSetGetStatus": 1 }).await;
            let status = status.ok()?;
            let members = status.get_array("members").ok()?.iter();
            let roles = members.filter_map(|member| member.as_document()?.get_i32("state").ok());
            // 1 is primary, 2 is secondary, 7 is arbiter.
            let settled = roles.filter(|state| matches!(state, 1 | 2 | 7));
            (settled.count() == self.nodes.len()).then_some(())
        };
        eventually(AMPLE, "all members of the replica set ready", settled).await
    }

    /// A connection string for the whole deployment, with the user of a server that has access control.
    pub fn uri(&self) -> String {
        let hosts = self.nodes.iter().map(Node::address).collect::<Vec<_>>().join(",");
        let set = format!("replicaSet={SET_NAME}");
        let set = if self.replica_set { &*set } else { "" };
        if self.auth {
            return format!("mongodb://{USER}:{PASSWORD}@{hosts}/?authSource=admin&{set}");
        }
        format!("mongodb://{hosts}/?{set}")
    }

    /// A new client, for the calling runtime: clients must not be shared between runtimes.
    pub async fn client(&self) -> Result<Client, SupportError> {
        connect(&self.uri()).await
    }

    /// All members.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The first member: the only one of a standalone server and of a replica set of one member.
    pub fn node(&self) -> &Node {
        &self.nodes[0]
    }

    /// The current primary. The call waits for a running election.
    pub async fn primary(&self) -> Result<&Node, SupportError> {
        eventually(AMPLE, "a primary of the replica set", || self.find_primary()).await
    }

    /// The primary. For a while two members may report that role: the one with the later election counts.
    async fn find_primary(&self) -> Option<&Node> {
        let of_role = self.members_that_are("isWritablePrimary").await.into_iter();
        let last = of_role.max_by_key(|(_, hello)| hello.get_object_id("electionId").ok());
        last.map(|(node, _)| node)
    }

    /// The members that are secondaries now.
    pub async fn secondaries(&self) -> Vec<&Node> {
        let of_role = self.members_that_are("secondary").await.into_iter();
        of_role.map(|(node, _)| node).collect()
    }

    /// The members whose reply to `hello` has this field, with the reply.
    async fn members_that_are(&self, role: &str) -> Vec<(&Node, Document)> {
        let running = self.nodes.iter().filter(|node| node.pid().is_some());
        let replies = running.map(|node| async move {
            let uri = node.anonymous_uri();
            let hello = timeout(ANSWER_LIMIT, run_admin(&uri, doc! { "hello": 1 }));
            let hello = hello.await.ok()?.ok()?;
            hello.get_bool(role).unwrap_or_default().then_some((node, hello))
        });
        join_all(replies).await.into_iter().flatten().collect()
    }

    /// Steps the primary down and waits for the next one: another member, or the same one in a set of one member.
    pub async fn step_down(&self) -> Result<&Node, SupportError> {
        let primary = self.primary().await?;
        // The time in which the former primary cannot become primary again.
        let seconds = if self.nodes.len() == 1 { 1 } else { 5 };
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
