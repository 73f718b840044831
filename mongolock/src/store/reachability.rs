//! The state of a client's servers by the driver's events: why no request can be sent, and whether the hosts of the
//! connection string belong to one replica set.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Document, doc};
use mongodb::error::Error;
use mongodb::event::EventHandler;
use mongodb::event::cmap::CmapEvent;
use mongodb::event::sdam::{SdamEvent, TopologyDescription};
use mongodb::options::{ClientOptions, ServerAddress};
use mongodb::{Client, ServerInfo, ServerType};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, timeout, timeout_at};

use super::overload::Overload;
use crate::error::driver_text::code;
use crate::error::meaning::{Meaning, OwnFailure};
use crate::timing::{DRIVER_LIMIT, NO_REPLY, UNREACHABLE};
use crate::{LockError, task};

/// The application name of a client that asks a server for its replica set, as shown in the server's log.
const APP_NAME: &str = "mongolock: which replica set";

/// The servers of one client. Without the driver's events, only the replies to the commands of the providers are known.
#[derive(Default)]
pub(crate) struct Reachability {
    known: watch::Sender<ServerState>,
    /// The runtime on which the client was created or first used. The driver's tasks run there and end with it, and after
    /// that the client is useless.
    home: OnceLock<Handle>,
    /// Whether the server rejects the client's commands.
    pub(super) overload: Overload,
    /// The size of the client's pool of connections, if its options set one and are known.
    pub(super) pool: Option<u32>,
}

/// What is known about the servers from the events and replies so far.
#[derive(Default)]
struct ServerState {
    /// The replica set that the connection string names.
    named: Option<String>,
    /// The driver's last description of its servers; `None` if the driver's events are not observed.
    topology: Option<TopologyDescription>,
    /// Since when no server can be reached.
    out_since: Option<Instant>,
    /// The error of the last log-in, unless a connection was used after it.
    refused: Option<Error>,
    /// The last reply of each server, also of those that the driver has removed because they belong to another replica set.
    heard: HashMap<ServerAddress, Document>,
    /// The time at which a request last got a connection, which includes the log-in.
    used: Option<Instant>,
    /// Whether calls wait until the hosts of the connection string are compared.
    is_unchecked: bool,
    /// The text about two hosts that belong to different replica sets.
    two_sets: Option<String>,
}

impl Reachability {
    /// Observes the client that is made from these options of a connection string, and compares its hosts on a task.
    pub(super) fn observe(uri: &str, options: &mut ClientOptions) -> (Arc<Self>, AbortHandle) {
        let hosts = seeds(uri, options);
        let known = ServerState {
            named: options.repl_set_name.clone(),
            is_unchecked: !hosts.is_empty(),
            ..ServerState::default()
        };
        let reachability = Arc::new(Self {
            known: watch::Sender::new(known),
            home: Handle::try_current().map(OnceLock::from).unwrap_or_default(),
            pool: options.max_pool_size,
            ..Self::default()
        });
        let checking = Arc::clone(&reachability).check_hosts(hosts, options.clone());
        let (servers, connections) = (Arc::clone(&reachability), Arc::clone(&reachability));
        let note = move |event| servers.known.send_modify(|known| known.note(event));
        options.sdam_event_handler = Some(EventHandler::callback(note));
        options.cmap_event_handler = Some(EventHandler::callback(move |event| {
            if let CmapEvent::ConnectionCheckedOut(_) = event {
                connections.note_use();
            }
        }));
        (reachability, task::spawn(checking).abort_handle())
    }

    /// Notes that a request has a connection.
    fn note_use(&self) {
        self.known.send_if_modified(|known| {
            known.used = Some(Instant::now());
            known.refused.take().is_some()
        });
    }

    /// Whether a request ever got a connection: before that, none can have taken effect.
    pub(super) fn has_been_used(&self) -> bool {
        self.known.borrow().used.is_some()
    }

    /// Runs a request, and fails it when it cannot be sent: at once if the servers refuse the user or none belongs to the
    /// replica set, and after `UNREACHABLE` if no server can be reached and the request is one that `fails_in_outage`.
    /// The driver itself looks for a server for 30 s before it says why there is none.
    ///
    /// The client's `serverSelectionTimeoutMS` stays as it is. With a short one, every command would fail during an
    /// election, which takes 1 to 12 s: acquire requests, renewals and releases are repeated, but an operator's commands
    /// and those of the index task are not, and have to wait for the new primary. In an election other members still
    /// answer heartbeats, so nothing fails here. Commits and fenced writes use the application's own client.
    pub(super) async fn run<T>(
        &self,
        fails_in_outage: bool,
        request: impl Future<Output = Result<T, LockError>>,
    ) -> Result<T, LockError> {
        if let Ok(here) = Handle::try_current() {
            self.home.get_or_init(|| here);
        }
        let reply = tokio::select! {
            biased;
            error = self.blocked(Instant::now(), fails_in_outage) => Err(error),
            reply = request => reply,
        };
        let has_no_reply = matches!(&reply, Err(LockError::Mongo(error)) if code(error).is_none());
        if !has_no_reply {
            self.note_use();
        }
        reply.map_err(|error| self.explained(error))
    }

    /// Resolves when a request that began at this time cannot be sent, with the error for it.
    async fn blocked(&self, begun: Instant, fails_in_outage: bool) -> LockError {
        let mut known = self.known.subscribe();
        loop {
            let obstacle = known.borrow_and_update().obstacle(begun, fails_in_outage);
            match obstacle {
                Some((Some(end), error)) if end <= Instant::now() => return error,
                Some((Some(end), _)) => drop(timeout_at(end, known.changed()).await),
                // It fails only without a sender, which lives as long as `self`.
                _ => drop(known.changed().await),
            }
        }
    }

    /// The cause of an error that only says that the driver has found no server: the log-in was refused before, or the
    /// runtime of the client has ended. The error of a request that was sent is returned unchanged.
    fn explained(&self, error: LockError) -> LockError {
        match error.meaning() {
            Meaning::Unreachable | Meaning::NoServer | Meaning::WrongServer if !error.may_be_applied() => {}
            _ => return error,
        }
        if self.home.get().is_some_and(task::has_ended) {
            return Meaning::EndedRuntime.error();
        }
        let refused = self.known.borrow().refused.clone();
        refused.map_or(error, LockError::Mongo)
    }

    /// Why a request has no reply, as far as the driver has reported it.
    pub(super) fn failure(&self) -> Option<LockError> {
        let known = self.known.borrow();
        let error = known.obstacle(Instant::now(), true).map(|(_, error)| error);
        error.or_else(|| known.refused.clone().map(LockError::Mongo))
    }

    /// Compares the hosts of the connection string, which must belong to one replica set. When the driver has found a primary, each
    /// host that it has removed is asked for its own one: the name of a host proves nothing, because one server can have many names.
    async fn check_hosts(self: Arc<Self>, hosts: Vec<ServerAddress>, options: ClientOptions) {
        let (mut known, mut asked) = (self.known.subscribe(), JoinSet::new());
        // It fails only without a sender, which lives as long as `self`.
        if let Ok(found) = known.wait_for(ServerState::has_primary).await {
            for host in hosts.into_iter().filter(|host| found.has_removed(host)) {
                asked.spawn(hello(host, options.clone()));
            }
        }
        while let Some(reply) = asked.join_next().await {
            if let Ok(Some((host, hello))) = reply {
                let found = self.known.borrow().other_set(&host, &hello);
                self.known
                    .send_modify(|known| known.two_sets = found.or(known.two_sets.take()));
            }
        }
        self.known.send_modify(|known| known.is_unchecked = false);
    }

    /// The error if the hosts of the connection string are known to belong to two replica sets, for a request that was sent
    /// or not.
    pub(super) fn two_sets(&self, is_unsent: bool) -> Result<(), LockError> {
        match &self.known.borrow().two_sets {
            Some(said) => Err(OwnFailure::wrong_hosts(said, is_unsent)),
            None => Ok(()),
        }
    }

    /// Waits until the hosts of the connection string are compared with those of a primary, for [`NO_REPLY`] at most. Later calls
    /// wait no more then.
    pub(super) async fn until_checked(&self) {
        let is_awaited = |known: &ServerState| known.is_unchecked && known.has_primary();
        if is_awaited(&self.known.borrow()) {
            let mut known = self.known.subscribe();
            // It is on the heap, because each command would contain it otherwise.
            let _ = Box::pin(timeout(NO_REPLY, known.wait_for(|known| !known.is_unchecked))).await;
            self.known.send_modify(|known| known.is_unchecked = false);
        }
    }
}

impl ServerState {
    fn note(&mut self, event: SdamEvent) {
        match event {
            SdamEvent::ServerHeartbeatSucceeded(event) => {
                self.heard.insert(event.server_address, event.reply);
            }
            SdamEvent::TopologyDescriptionChanged(event) => self.topology_changed(event.new_description),
            _ => {}
        }
    }

    fn topology_changed(&mut self, topology: TopologyDescription) {
        let servers = topology.servers();
        let mut errors = servers.values().filter_map(ServerInfo::error);
        if let Some(error) = errors.find(|error| Meaning::of(error) == Meaning::LogIn) {
            self.refused = Some(error.clone());
        }
        let mut answering = servers.values().filter(|server| server.error().is_none());
        let is_out = answering.all(|server| server.server_type() == ServerType::RsGhost);
        self.out_since = is_out.then(|| self.out_since.unwrap_or_else(Instant::now));
        self.topology = Some(topology);
    }

    fn has_primary(&self) -> bool {
        let topology = self.topology.as_ref();
        topology.is_some_and(TopologyDescription::has_writable_server)
    }

    /// Whether the driver has removed this host, because it has found a replica set without it.
    fn has_removed(&self, host: &ServerAddress) -> bool {
        let topology = self.topology.as_ref();
        topology.is_some_and(|topology| !topology.servers().contains_key(host))
    }

    /// The text about a server that does not belong to the replica set which the connection string names.
    fn foreign(&self) -> Option<String> {
        let named = self.named.as_deref()?;
        let is_foreign = |(_, hello): &(_, &Document)| hello.get_str("setName").ok() != Some(named);
        let (address, hello) = self.heard.iter().find(is_foreign)?;
        let set = hello.get_str("setName").ok();
        let set = set.map_or("no replica set".to_owned(), |set| {
            format!("the replica set `{set}`")
        });
        Some(format!(
            "MongoDB at {address} belongs to {set}; the connection string names `{named}`"
        ))
    }

    /// Why no server accepts writes, and the time at which a request that began at `begun` fails for this reason. A
    /// request that was sent may still get its reply.
    fn obstacle(&self, begun: Instant, fails_in_outage: bool) -> Option<(Option<Instant>, LockError)> {
        let topology = self.topology.as_ref().filter(|_| !self.has_primary())?;
        // No request has got a connection since then.
        let is_unsent = self.used.is_none_or(|used| used < begun);
        let at_once = is_unsent.then_some(begun);
        if let Some(refused) = self.refused.clone() {
            return Some((at_once, LockError::Mongo(refused)));
        }
        if topology.servers().is_empty() {
            return Some((at_once, OwnFailure::wrong_hosts(&self.foreign()?, is_unsent)));
        }
        let since = self.out_since.filter(|_| fails_in_outage);
        let end = since.map(|since| since.max(begun) + UNREACHABLE);
        Some((end, OwnFailure::unreachable(&topology.to_string(), is_unsent)))
    }

    /// The text about a removed host whose primary, with this reply to `hello`, is none of the servers.
    fn other_set(&self, host: &ServerAddress, hello: &Document) -> Option<String> {
        // A server without a replica set is not a member of another one.
        let (set, topology) = (hello.get_str("setName").ok()?, self.topology.as_ref()?);
        let (joined, servers) = (topology.set_name()?, topology.servers());
        let own = hello.get_str("me").map(ServerAddress::parse).ok()?.ok()?;
        // The id of a process does not depend on the name by which it was reached.
        let process = process_of(hello);
        let is_same = |address: &&ServerAddress| {
            let known = self.heard.get(*address).and_then(process_of);
            **address == own || known.is_some() && known == process
        };
        if servers.keys().any(is_same) {
            return None;
        }
        let servers: Vec<_> = servers.keys().map(ToString::to_string).collect();
        let servers = servers.join(", ");
        Some(format!(
            "the connection string names two replica sets: {servers} belongs to `{joined}`, and {host} to another set, `{set}`"
        ))
    }
}

/// The hosts of a connection string with these options, if it lists several. Those of `mongodb+srv` are those of one DNS
/// record; with a direct connection or a load balancer the driver looks for no replica set.
fn seeds(uri: &str, options: &ClientOptions) -> Vec<ServerAddress> {
    let is_list = options.hosts.iter().any(|host| *host != options.hosts[0]);
    let finds_set = options.direct_connection != Some(true) && options.load_balanced != Some(true);
    let is_checked = is_list && finds_set && !uri.starts_with("mongodb+srv");
    options.hosts.iter().filter(|_| is_checked).cloned().collect()
}

/// A host with the reply of its primary to `hello`, on a client of its own without a user, because `hello` needs none; `None` if
/// there is none.
async fn hello(host: ServerAddress, mut options: ClientOptions) -> Option<(ServerAddress, Document)> {
    options.hosts = vec![host.clone()];
    options.repl_set_name = None;
    options.credential = None;
    options.app_name = Some(APP_NAME.to_owned());
    let client = Client::with_options(options).ok()?;
    let admin = client.database("admin");
    let reply = timeout(DRIVER_LIMIT, admin.run_command(doc! { "hello": 1 }).into_future()).await;
    client.shutdown().immediate(true).await;
    Some((host, reply.ok()?.ok()?))
}

/// The id of the process that has sent this reply to `hello`.
fn process_of(hello: &Document) -> Option<ObjectId> {
    let version = hello.get_document("topologyVersion").ok()?;
    version.get_object_id("processId").ok()
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::net::TcpListener;

    use super::*;

    /// A client, which must exist as long as its servers are observed, and the state of its servers.
    async fn observed(uri: &str) -> (Client, Arc<Reachability>) {
        let mut options = ClientOptions::parse(uri).await.unwrap();
        let (servers, _) = Reachability::observe(uri, &mut options);
        (Client::with_options(options).unwrap(), servers)
    }

    #[tokio::test]
    async fn a_request_fails_when_no_server_was_reachable_for_a_while() {
        let (_client, servers) = observed("mongodb://127.0.0.1:1,127.0.0.1:2").await;
        let begun = Instant::now();
        let sent = async {
            servers.note_use();
            pending::<Result<(), LockError>>().await
        };
        let error = servers.run(true, sent).await.unwrap_err();
        assert!(begun.elapsed() >= UNREACHABLE);
        let refused = |port| format!("127.0.0.1:{port} (Connection refused)");
        let text = format!("MongoDB cannot be reached: {}, {}", refused(1), refused(2));
        assert_eq!(error.to_string(), text);
        assert!(error.may_be_applied(), "it had a connection");
        let unsent = servers.run(true, pending::<Result<(), LockError>>());
        let unsent = unsent.await.unwrap_err();
        assert_eq!(unsent.to_string(), text);
        assert!(!unsent.may_be_applied());
        let patient = servers.run(false, pending::<Result<(), LockError>>());
        assert!(timeout(UNREACHABLE + UNREACHABLE, patient).await.is_err());
    }

    #[tokio::test]
    async fn a_missing_reply_is_explained_by_what_is_known() {
        assert!(Reachability::default().failure().is_none());
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = silent.local_addr().unwrap();
        let (_client, servers) = observed(&format!("mongodb://{address}")).await;
        let mut known = servers.known.subscribe();
        known.wait_for(|known| known.topology.is_some()).await.unwrap();
        let text = format!("MongoDB cannot be reached: {address} (no answer yet)");
        assert_eq!(servers.failure().unwrap().to_string(), text);
    }

    #[tokio::test]
    async fn only_hosts_of_a_list_are_asked_for_their_set() {
        for (uri, count) in [("mongodb://a,b/", 2), ("mongodb://a/", 0), ("mongodb://a,a/", 0)] {
            let options = ClientOptions::parse(uri).await.unwrap();
            assert_eq!(seeds(uri, &options).len(), count, "{uri}");
        }
        let mut options = ClientOptions::parse("mongodb://a,b/").await.unwrap();
        assert!(seeds("mongodb+srv://", &options).is_empty());
        options.load_balanced = Some(true);
        assert!(seeds("mongodb://", &options).is_empty());
    }
}
