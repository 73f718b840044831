//! Making a replica set out of single servers, and finding out the roles of its members.

use std::time::Duration;

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, Document, doc};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::Server;
use crate::error::SupportError;
use crate::node::{Node, run_admin};
use crate::options::{PASSWORD, SET_NAME, USER};
use crate::wait::{AMPLE, eventually};

/// The time after which a member counts as hanging and has no role.
const ANSWER_LIMIT: Duration = Duration::from_secs(1);

impl Server {
    pub(super) async fn initiate(&self, election_timeout: Duration) -> Result<(), SupportError> {
        let members: Vec<Bson> = (0_i32..)
            .zip(&self.nodes)
            .map(|(id, node)| doc! { "_id": id, "host": node.address() }.into())
            .collect();
        let timeout = i64::try_from(election_timeout.as_millis()).unwrap_or(i64::MAX);
        let settings = doc! { "electionTimeoutMillis": timeout, "heartbeatIntervalMillis": 500_i64 };
        let config = doc! { "_id": SET_NAME, "members": members, "settings": settings };
        // Before the first user exists, the server accepts exactly this command from its own machine.
        run_admin(&self.node().anonymous_uri(), doc! { "replSetInitiate": config }).await?;
        self.primary().await.map(drop)
    }

    pub(super) async fn create_user(&self) -> Result<(), SupportError> {
        let uri = self.primary().await?.anonymous_uri();
        let command = doc! { "createUser": USER, "pwd": PASSWORD, "roles": ["root"] };
        run_admin(&uri, command).await.map(drop)
    }

    pub(super) async fn wait_for_members(&self) -> Result<(), SupportError> {
        let settled = || async {
            let primary = self.find_primary().await?;
            let status = run_admin(&primary.uri(), doc! { "replSetGetStatus": 1 })
                .await
                .ok()?;
            let members = status.get_array("members").ok()?;
            let roles = members
                .iter()
                .filter_map(|member| member.as_document()?.get_i32("state").ok());
            // 1 is primary, 2 is secondary.
            (roles.filter(|state| matches!(state, 1 | 2)).count() == self.nodes.len()).then_some(())
        };
        eventually(AMPLE, "all members of the replica set ready", settled).await
    }

    /// The primary. For a while two members may report that role: the one with the later election counts.
    pub(super) async fn find_primary(&self) -> Option<&Node> {
        let answers = self.roles().await;
        let writable = answers
            .iter()
            .filter(|(_, hello)| hello.get_bool("isWritablePrimary").unwrap_or_default());
        let election = |hello: &Document| {
            hello
                .get_object_id("electionId")
                .as_ref()
                .map(ObjectId::bytes)
                .ok()
        };
        writable
            .max_by_key(|(_, hello)| election(hello))
            .map(|(node, _)| *node)
    }

    /// The replies to `hello` of the members that answer.
    pub(super) async fn roles(&self) -> Vec<(&Node, Document)> {
        let mut questions = JoinSet::new();
        let running = self
            .nodes
            .iter()
            .enumerate()
            .filter(|(_, node)| node.pid().is_some());
        for (index, node) in running {
            let uri = node.anonymous_uri();
            questions.spawn(async move {
                let hello = timeout(ANSWER_LIMIT, run_admin(&uri, doc! { "hello": 1 }));
                Some((index, hello.await.ok()?.ok()?))
            });
        }
        let answers = questions.join_all().await.into_iter().flatten();
        answers
            .map(|(index, answer)| (&self.nodes[index], answer))
            .collect()
    }
}
