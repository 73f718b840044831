//! Whether the hosts of a connection string belong to one replica set. If they belong to two, the driver works with the one
//! that answers first, removes the hosts of the other one, and says nothing.
//!
//! How a host is spelt says nothing: one server can have many names. Only a host that the driver has removed is asked, and
//! only what servers say of their sets is compared.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, Document};
use mongodb::event::sdam::TopologyType;
use mongodb::options::{ClientOptions, ServerAddress};
use tokio::time::Instant;

use crate::error::failure::Failure;
use crate::timing::SEED_WAIT;

/// The hosts of a connection string, and what servers have said of their replica sets.
#[derive(Default)]
pub(super) struct Seeds {
    /// The hosts that the driver has not removed.
    kept: Vec<ServerAddress>,
    /// The servers that the driver knows, and what their last heartbeat said; `None` before the first one has ended.
    known: BTreeMap<String, Option<Said>>,
    /// The number of removed hosts that have been asked and have not answered.
    unanswered: usize,
    /// The answers of removed hosts that cannot be judged yet.
    answers: Vec<(String, Said)>,
    /// The time up to which calls wait for the answers and their judgement.
    wait_until: Option<Instant>,
    /// What was found; it stays.
    found: Option<TwoSets>,
}

/// What a server says of its replica set.
#[derive(Debug, Default)]
pub(super) struct Said {
    /// The name of the set; `None` for a server that was removed from its set or has none.
    set: Option<String>,
    /// The addresses of the members by the configuration of the set, and the id of the process, which is the same whatever
    /// the name is by which a server was reached.
    members: BTreeSet<String>,
}

/// Two hosts of a connection string that belong to different replica sets.
#[derive(Debug, Clone)]
struct TwoSets {
    member: String,
    joined: String,
    address: String,
    set: String,
}

impl Said {
    /// What a reply to `hello` says.
    pub(super) fn of(hello: &Document) -> Self {
        let lists = ["hosts", "passives", "arbiters"];
        let listed = lists.iter().filter_map(|list| hello.get_array(list).ok());
        let listed = listed.flatten().filter_map(Bson::as_str).map(str::to_owned);
        let me = hello.get_str("me").ok().map(str::to_owned);
        let version = hello.get_document("topologyVersion").ok();
        let process = version.and_then(|version| version.get_object_id("processId").ok());
        Self {
            set: hello.get_str("setName").ok().map(str::to_owned),
            members: listed.chain(me).chain(process.map(ObjectId::to_hex)).collect(),
        }
    }
}

impl Seeds {
    /// The hosts of a connection string with these options, if it lists several. Those of `mongodb+srv` are those of one DNS
    /// record; with a direct connection or a load balancer the driver looks for no replica set.
    pub(super) fn of(uri: &str, options: &ClientOptions) -> Self {
        let hosts = &options.hosts;
        let is_list = hosts.iter().any(|host| *host != hosts[0]);
        let finds_set = options.direct_connection != Some(true) && options.load_balanced != Some(true);
        let mut seeds = Self::default();
        if is_list && finds_set && !uri.starts_with("mongodb+srv") {
            seeds.kept.clone_from(hosts);
        }
        seeds
    }

    /// Whether what servers say is of use.
    fn is_watching(&self) -> bool {
        !self.kept.is_empty() || self.is_open()
    }

    /// Notes which servers the driver knows from now on, and returns the hosts that it has removed. Before it has found a
    /// replica set, and after the end of the client, it has removed none.
    pub(super) fn topology(&mut self, kind: TopologyType, servers: &[&ServerAddress]) -> Vec<ServerAddress> {
        if !self.is_watching() {
            return Vec::new();
        }
        let mut known = mem::take(&mut self.known);
        let said = servers.iter().map(|server| {
            let address = server.to_string();
            let said = known.remove(&address).flatten();
            (address, said)
        });
        self.known = said.collect();
        if !matches!(
            kind,
            TopologyType::ReplicaSetNoPrimary | TopologyType::ReplicaSetWithPrimary
        ) {
            return Vec::new();
        }
        let hosts = mem::take(&mut self.kept).into_iter();
        let (kept, removed): (Vec<_>, Vec<_>) = hosts.partition(|host| servers.contains(&host));
        self.kept = kept;
        if !removed.is_empty() {
            self.unanswered += removed.len();
            self.wait_until = Some(Instant::now() + SEED_WAIT);
        }
        removed
    }

    /// Notes the end of a heartbeat; one that has failed says nothing new.
    pub(super) fn heartbeat(&mut self, address: &str, reply: Option<&Document>) {
        if !self.is_watching() {
            return;
        }
        if let Some(known) = self.known.get_mut(address) {
            match reply {
                Some(reply) => *known = Some(Said::of(reply)),
                None => drop(known.get_or_insert_default()),
            }
            self.judge();
        }
    }

    /// Notes that a removed host has answered, or does not answer.
    pub(super) fn answered(&mut self, address: &str, reply: Option<&Document>) {
        self.unanswered -= 1;
        // A server without a set is no member of another one.
        if let Some(said) = reply.map(Said::of).filter(|said| said.set.is_some()) {
            self.answers.push((address.to_owned(), said));
        }
        self.judge();
    }

    /// Compares the answers with what the members of the present set say.
    fn judge(&mut self) {
        let mut answers = mem::take(&mut self.answers);
        answers.retain(|(address, said)| match self.verdict(address, said) {
            Verdict::Open => true,
            Verdict::Same => false,
            Verdict::Other(found) => {
                self.found.get_or_insert(found);
                false
            }
        });
        self.answers = answers;
    }

    fn verdict(&self, address: &str, said: &Said) -> Verdict {
        let Some(set) = &said.set else {
            return Verdict::Same;
        };
        let mut members = self.known.iter().filter_map(|(member, known)| {
            let known = known.as_ref()?;
            Some((member, known.set.as_ref()?, known))
        });
        let Some((member, joined, _)) = members.clone().next() else {
            return Verdict::Open;
        };
        if joined == set {
            if members.any(|(.., known)| !known.members.is_disjoint(&said.members)) {
                return Verdict::Same;
            }
            // A member that has not answered may be the same process, with other names.
            if self.known.values().any(Option::is_none) {
                return Verdict::Open;
            }
        }
        Verdict::Other(TwoSets {
            member: member.clone(),
            joined: joined.clone(),
            address: address.to_owned(),
            set: set.clone(),
        })
    }

    fn is_open(&self) -> bool {
        self.unanswered > 0 || !self.answers.is_empty()
    }

    /// The time up to which a call waits; `None` if it need not wait.
    pub(super) fn wait_until(&self) -> Option<Instant> {
        let is_needed = self.is_open() && self.found.is_none();
        self.wait_until.filter(|_| is_needed)
    }

    /// What was found, for a request that was sent or not.
    pub(super) fn failure(&self, is_unsent: bool) -> Option<Failure> {
        let found = self.found.as_ref()?;
        let joined = (&*found.member, &*found.joined);
        Some(Failure::two_sets(joined, (&found.address, &found.set)).unsent(is_unsent))
    }
}

/// What an answer says.
enum Verdict {
    /// Too little is known yet.
    Open,
    Same,
    Other(TwoSets),
}

#[cfg(test)]
mod tests;
