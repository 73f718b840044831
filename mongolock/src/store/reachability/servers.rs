#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashSet};
use std::io;

use mongodb::error::{Error, ErrorKind};
use mongodb::event::cmap::CmapEvent;
use mongodb::event::sdam::{SdamEvent, TopologyType};
use mongodb::options::ServerAddress;
use tokio::time::Instant;

use super::seeds::Seeds;
use crate::LockError;
use crate::error::driver_text::sentence;
use crate::error::failure::Failure;
use crate::error::meaning::Meaning;
use crate::timing::UNREACHABLE;

/// The servers of a client, by the events and replies so far.
#[derive(Default)]
pub(super) struct Servers {
    /// Whether the driver's events come here.
    is_observed: bool,
    /// The replica set that the connection string names.
    named: Option<String>,
    /// The last heartbeats of the known servers, by their addresses.
    heartbeats: BTreeMap<String, Heartbeat>,
    /// The address of the server whose heartbeat failed last.
    failed_last: String,
    /// The last server that does not belong to the replica set. The driver forgets most of these at once.
    foreign: Option<Foreign>,
    /// Since when no request can be sent, for a reason that [`Servers::blockage`] tells.
    blocked_since: Option<Instant>,
    /// The kind of the deployment, as far as the driver knows it.
    pub(super) topology: Option<TopologyType>,
    /// The error of the last log-in, unless one has succeeded since.
    refused: Option<Error>,
    connections: Connections,
    /// The hosts of the connection string.
    pub(super) seeds: Seeds,
}

/// The connections of a client that are ready for requests, which includes the log-in.
#[derive(Default)]
struct Connections {
    /// The address and the number of each open connection.
    open: HashSet<(String, u32)>,
    /// The time at which the last of them was closed; `None` if there was none.
    last_closed: Option<Instant>,
    /// Whether one was ready, or the server has replied to a command.
    has_been_ready: bool,
}

/// The last heartbeat of a server.
pub(super) enum Heartbeat {
    /// There is no reply yet to the first one.
    Pending,
    Succeeded,
    Failed {
        reason: String,
        kind: io::ErrorKind,
    },
    /// The server has refused the user after its last heartbeat. The driver sends it nothing before the next one.
    Refused,
    /// The server was started as a member of a replica set and has no configuration yet: it serves no request.
    NoSet,
    /// The server belongs to another replica set.
    Foreign,
}

/// A server that does not belong to the replica set that the connection string names.
struct Foreign {
    address: String,
    /// The set that it belongs to, if it is a member of one.
    set: Option<String>,
}

/// Why no request can be sent at present.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Blockage {
    /// The last heartbeat of every server has failed, or says that it has no replica set yet.
    Outage,
    /// The servers refuse the user, and the driver waits for their next heartbeat.
    Refused,
    /// No server belongs to the replica set.
    Foreign,
}

impl Servers {
    /// What is known before the first event of a client; the connection string names this replica set and these hosts.
    pub(super) fn observed(named: Option<String>, seeds: Seeds) -> Self {
        Self {
            is_observed: true,
            named,
            seeds,
            ..Self::default()
        }
    }

    /// Notes an event, and returns the hosts of the connection string that are to be asked for their replica set.
    pub(super) fn note(&mut self, event: &SdamEvent) -> Vec<ServerAddress> {
        match event {
            SdamEvent::ServerOpening(event) => self.set(event.address.to_string(), Heartbeat::Pending),
            SdamEvent::ServerClosed(event) => self.closed(&event.address.to_string()),
            SdamEvent::ServerHeartbeatSucceeded(event) => {
                let (address, reply) = (event.server_address.to_string(), &event.reply);
                let member_of = reply.get_str("setName").ok();
                let has_set = member_of.is_some() || !reply.get_bool("isreplicaset").unwrap_or(false);
                self.seeds.heartbeat(&address, Some(reply));
                self.succeeded(address, member_of, has_set);
            }
            SdamEvent::ServerHeartbeatFailed(event) => {
                let (address, failed) = (
                    event.server_address.to_string(),
                    Heartbeat::failed(&event.failure),
                );
                self.seeds.heartbeat(&address, None);
                self.set(address, failed);
            }
            SdamEvent::ServerDescriptionChanged(event) => {
                let address = event.address.to_string();
                match event.new_description.error() {
                    Some(error) if Meaning::of(error) == Meaning::LogIn => {
                        self.described(address, Some(error));
                    }
                    // Heartbeats tell of other errors.
                    Some(_) => {}
                    None => self.described(address, None),
                }
            }
            SdamEvent::TopologyDescriptionChanged(event) => {
                let (kind, servers) = (
                    event.new_description.topology_type(),
                    event.new_description.servers(),
                );
                self.topology = Some(kind);
                self.update();
                let servers: Vec<_> = servers.into_keys().collect();
                return self.seeds.topology(kind, &servers);
            }
            _ => {}
        }
        Vec::new()
    }

    /// Notes an event of the connections, and returns whether it has changed anything.
    pub(super) fn note_connection(&mut self, event: &CmapEvent) -> bool {
        match event {
            CmapEvent::ConnectionReady(event) => {
                let connection = (event.address.to_string(), event.connection_id);
                self.connections.open.insert(connection);
                self.logged_in();
                true
            }
            CmapEvent::ConnectionClosed(event) => {
                let connection = (event.address.to_string(), event.connection_id);
                self.connections.close(&connection)
            }
            _ => false,
        }
    }

    /// Whether the driver's events come here.
    pub(super) fn is_observed(&self) -> bool {
        self.is_observed
    }

    /// The error of the last log-in, unless one has succeeded since.
    pub(super) fn refused(&self) -> Option<&Error> {
        self.refused.as_ref()
    }

    /// Whether a log-in has succeeded, and none was refused since.
    pub(super) fn is_logged_in(&self) -> bool {
        self.has_been_ready() && self.refused.is_none()
    }

    /// Whether a connection has ever been ready.
    pub(super) fn has_been_ready(&self) -> bool {
        self.connections.has_been_ready
    }

    pub(super) fn set(&mut self, address: String, heartbeat: Heartbeat) {
        if matches!(heartbeat, Heartbeat::Failed { .. }) {
            self.failed_last.clone_from(&address);
        }
        self.heartbeats.insert(address, heartbeat);
        self.update();
    }

    /// Notes that a server has left the deployment.
    pub(super) fn closed(&mut self, address: &str) {
        self.heartbeats.remove(address);
        self.update();
    }

    /// Notes a heartbeat of a server that says that it is a member of this set, or of one that it does not have yet.
    fn succeeded(&mut self, address: String, member_of: Option<&str>, has_set: bool) {
        if !has_set {
            self.set(address, Heartbeat::NoSet);
        } else if self.named.is_some() && self.named.as_deref() != member_of {
            self.foreign = Some(Foreign {
                address: address.clone(),
                set: member_of.map(str::to_owned),
            });
            self.set(address, Heartbeat::Foreign);
        // The driver itself says when it sends requests to the server again.
        } else if !matches!(self.heartbeats.get(&address), Some(Heartbeat::Refused)) {
            self.set(address, Heartbeat::Succeeded);
        }
    }

    /// Notes the driver's new description of a server: the server has refused the user, or requests are sent to it.
    fn described(&mut self, address: String, refused: Option<&Error>) {
        if let Some(error) = refused {
            self.refuse(error);
            self.set(address, Heartbeat::Refused);
        } else if let Some(Heartbeat::Refused) = self.heartbeats.get(&address) {
            self.set(address, Heartbeat::Succeeded);
        }
    }

    /// Notes the error of a log-in; that of a connection which was refused because of it says less.
    pub(super) fn refuse(&mut self, error: &Error) {
        if self.refused.is_none() || matches!(&*error.kind, ErrorKind::Authentication { .. }) {
            self.refused = Some(error.clone());
        }
    }

    pub(super) fn logged_in(&mut self) {
        self.refused = None;
        self.connections.has_been_ready = true;
        self.update();
    }

    fn update(&mut self) {
        self.blocked_since = self
            .blockage()
            .and_then(|_| self.blocked_since.or_else(|| Some(Instant::now())));
    }

    fn blockage(&self) -> Option<Blockage> {
        let all = |is: fn(&Heartbeat) -> bool| self.heartbeats.values().all(is);
        let is_refused =
            || self.refused.is_some() && !all(|heartbeat| !matches!(heartbeat, Heartbeat::Refused));
        // Of a replica set only the primary counts: the others serve no request of this library.
        let is_served = || match self.topology {
            Some(TopologyType::ReplicaSetWithPrimary) => true,
            Some(TopologyType::ReplicaSetNoPrimary) => false,
            _ => !all(|heartbeat| !matches!(heartbeat, Heartbeat::Succeeded)),
        };
        if self.foreign.is_some() && all(|heartbeat| matches!(heartbeat, Heartbeat::Foreign)) {
            Some(Blockage::Foreign)
        } else if !self.heartbeats.is_empty()
            && all(|heartbeat| matches!(heartbeat, Heartbeat::Failed { .. } | Heartbeat::NoSet))
        {
            Some(Blockage::Outage)
        } else if is_refused() && !is_served() {
            Some(Blockage::Refused)
        } else {
            None
        }
    }

    /// The time at which a request fails that began at this time; `None` as long as it can be sent.
    pub(super) fn gives_up_at(&self, begun: Instant, fails_in_outage: bool) -> Option<Instant> {
        let since = self.blocked_since?;
        match self.blockage()? {
            Blockage::Outage => fails_in_outage.then(|| since.max(begun) + UNREACHABLE),
            // A request that was sent before may still get its reply.
            Blockage::Refused | Blockage::Foreign => self.is_unsent(begun).then_some(begun),
        }
    }

    /// Whether a request that began at this time, and has no reply, was not sent: no connection was ready for it.
    fn is_unsent(&self, begun: Instant) -> bool {
        self.is_observed && self.connections.none_since(begun)
    }

    /// The error of a request that is not sent, because it is known to be refused.
    pub(super) fn refuses(&self) -> Option<LockError> {
        match self.blockage()? {
            Blockage::Outage => None,
            Blockage::Refused | Blockage::Foreign => self.error(Instant::now()),
        }
    }

    /// The error of a request that began at this time and fails because of the present blockage.
    pub(super) fn error(&self, begun: Instant) -> Option<LockError> {
        match self.blockage()? {
            Blockage::Refused => self.refused.clone().map(LockError::Mongo),
            Blockage::Outage | Blockage::Foreign => self.failure(Some(begun)).map(Failure::into_error),
        }
    }

    /// The failure of an outage or of a wrong replica set, for a request that began at this time.
    pub(super) fn failure(&self, begun: Option<Instant>) -> Option<Failure> {
        let blockage = self.blockage()?;
        if blockage == Blockage::Foreign {
            let Foreign { address, set } = self.foreign.as_ref()?;
            let named = self.named.as_deref()?;
            return Some(Failure::wrong_set(address, set.as_deref(), named));
        }
        if blockage != Blockage::Outage {
            return None;
        }
        let is_unsent = begun.is_some_and(|begun| self.is_unsent(begun));
        let mut heartbeats = self.heartbeats.iter();
        if let Some((address, _)) = heartbeats.find(|(_, heartbeat)| matches!(heartbeat, Heartbeat::NoSet)) {
            return Some(Failure::no_set(address).unsent(is_unsent));
        }
        // The server whose heartbeat failed last may have left the deployment.
        let last = self.heartbeats.get_key_value(&self.failed_last);
        let (address, heartbeat) = last.or_else(|| self.heartbeats.first_key_value())?;
        match heartbeat {
            Heartbeat::Failed { reason, kind } => {
                let others = self.heartbeats.len() - 1;
                Some(Failure::unreachable(address, reason, *kind, others).unsent(is_unsent))
            }
            _ => None,
        }
    }

    /// Why there may be no reply, for the end of a sentence; empty if the heartbeats show no reason.
    pub(super) fn note_on_reply(&self) -> String {
        let mut heartbeats = self.heartbeats.values();
        let is_connected = heartbeats.any(|heartbeat| matches!(heartbeat, Heartbeat::Succeeded));
        match self.topology {
            _ if !self.is_observed => {
                "; the driver says why it finds no server after `serverSelectionTimeoutMS`".to_owned()
            }
            // A load balancer gets no heartbeats.
            Some(TopologyType::LoadBalanced) => String::new(),
            _ if !is_connected && !self.heartbeats.is_empty() => {
                let addresses: Vec<&str> = self.heartbeats.keys().map(String::as_str).collect();
                format!(": there is no connection to {} yet", addresses.join(", "))
            }
            Some(TopologyType::ReplicaSetNoPrimary) => ": the replica set has no primary".to_owned(),
            _ => String::new(),
        }
    }
}

impl Connections {
    /// Notes that a connection is closed, and returns whether it was ready.
    fn close(&mut self, connection: &(String, u32)) -> bool {
        let was_ready = self.open.remove(connection);
        if was_ready {
            self.last_closed = Some(Instant::now());
        }
        was_ready
    }

    /// Whether no connection was ready at this time or later.
    fn none_since(&self, begun: Instant) -> bool {
        self.open.is_empty() && self.last_closed.is_none_or(|closed| closed < begun)
    }
}

impl Heartbeat {
    pub(super) fn failed(failure: &Error) -> Self {
        match &*failure.kind {
            ErrorKind::Io(error) => Self::Failed {
                reason: without_code(&error.to_string()),
                kind: error.kind(),
            },
            _ => Self::Failed {
                reason: sentence(failure),
                kind: io::ErrorKind::Other,
            },
        }
    }
}

/// The text of an I/O error without the number that the standard library appends to it.
fn without_code(text: &str) -> String {
    let text = text.split_once(" (os error ").map_or(text, |(text, _)| text);
    text.to_owned()
}
