//! The state of a client's servers by the driver's events: why no request can be sent, and whether the hosts of the
//! connection string belong to one replica set.

use std::collections::{HashMap, HashSet};
use std::mem;
use std::sync::{Arc, Mutex, OnceLock};

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, Document, doc};
use mongodb::error::Error;
use mongodb::event::EventHandler;
use mongodb::event::cmap::CmapEvent;
use mongodb::event::sdam::{SdamEvent, TopologyDescription};
use mongodb::options::{ClientOptions, ServerAddress};
use mongodb::{Client, ServerInfo, ServerType};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

use super::home::has_ended;
use super::refusals::Overload;
use crate::LockError;
use crate::error::failure::Failure;
use crate::error::meaning::{Meaning, code};
use crate::sync::lock;
use crate::timing::{SEED_LIMIT, SEED_WAIT, UNREACHABLE};

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
    /// The requests to hosts of the connection string that are in flight.
    questions: Mutex<JoinSet<()>>,
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
    /// The hosts of the connection string, if they are checked.
    seeds: Vec<ServerAddress>,
    /// One time for each removed host whose replica set is not known yet: that until which calls wait for it.
    asked: Vec<Instant>,
    /// The text about two hosts that belong to different replica sets.
    two_sets: Option<String>,
}

impl Reachability {
    /// Observes the client that is made from these options of a connection string. Its hosts must belong to one replica set.
    pub(super) fn observe(uri: &str, options: &mut ClientOptions) -> Arc<Self> {
        let known = ServerState {
            named: options.repl_set_name.clone(),
            seeds: seeds(uri, options),
            ..ServerState::default()
        };
        let reachability = Arc::new(Self {
            known: watch::Sender::new(known),
            pool: options.max_pool_size,
            ..Self::default()
        });
        let (servers, connections) = (Arc::clone(&reachability), Arc::clone(&reachability));
        let asking = options.clone();
        options.sdam_event_handler = Some(EventHandler::callback(move |event| {
            let mut removed = Vec::new();
            servers.known.send_modify(|known| removed = known.note(event));
            for host in removed {
                lock(&servers.questions).spawn(Arc::clone(&servers).ask(host, asking.clone()));
            }
        }));
        options.cmap_event_handler = Some(EventHandler::callback(move |event| {
            if let CmapEvent::ConnectionCheckedOut(_) = event {
                connections.note_use();
            }
        }));
        reachability.settle();
        reachability
    }

    /// Notes the caller's runtime, unless one is known.
    fn settle(&self) {
        if self.home.get().is_none()
            && let Ok(handle) = Handle::try_current()
        {
            // Another caller may have been faster.
            let _ = self.home.set(handle);
        }
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
        self.settle();
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
    /// runtime of the client has ended.
    fn explained(&self, error: LockError) -> LockError {
        let refused = match error.meaning() {
            Meaning::Unreachable => None,
            Meaning::NoServer | Meaning::WrongServer => self.known.borrow().refused.clone(),
            _ => return error,
        };
        if self.home.get().is_some_and(has_ended) {
            return Meaning::EndedRuntime.error();
        }
        refused.map_or(error, LockError::Mongo)
    }

    /// Why a request has no reply, as far as the driver has reported it.
    pub(super) fn failure(&self) -> Option<LockError> {
        let known = self.known.borrow();
        let error = known.obstacle(Instant::now(), true).map(|(_, error)| error);
        error.or_else(|| known.refused.clone().map(LockError::Mongo))
    }

    /// Asks a host of the connection string that the driver has removed for its replica set. The name of a host proves
    /// nothing, because one server can have many names.
    async fn ask(self: Arc<Self>, host: ServerAddress, options: ClientOptions) {
        let hello = hello(host.clone(), options).await.unwrap_or_default();
        let (mut known, mut found) = (self.known.subscribe(), None);
        let compared = known.wait_for(|known| {
            found = known.compared(&host, &hello);
            found.is_some()
        });
        // It fails only without a sender, and the sender exists as long as `self`.
        drop(compared.await);
        self.known.send_modify(|known| {
            known.asked.pop();
            known.two_sets = found.and_then(Result::err).or(known.two_sets.take());
        });
    }

    /// Ends the requests for replica sets, before the client ends.
    pub(super) async fn end_questions(&self) {
        let mut questions = mem::take(&mut *lock(&self.questions));
        questions.shutdown().await;
    }

    /// The error if the hosts of the connection string are known to belong to two replica sets, for a request that was sent
    /// or not.
    pub(super) fn two_sets(&self, is_unsent: bool) -> Result<(), LockError> {
        match &self.known.borrow().two_sets {
            Some(said) => Err(Failure::wrong_hosts(said, is_unsent)),
            None => Ok(()),
        }
    }

    /// Waits for the answers of the hosts that were asked for their replica sets, as long as calls wait for them.
    pub(super) async fn until_answered(&self) {
        let Some(end) = self.known.borrow().asked.last().copied() else {
            return;
        };
        let mut known = self.known.subscribe();
        // It is on the heap, because each command would contain it otherwise.
        let is_over = known.wait_for(|known| known.asked.is_empty() || known.two_sets.is_some());
        let _ = Box::pin(timeout_at(end, is_over)).await;
    }
}

impl ServerState {
    /// Notes an event, and returns the hosts of the connection string that the driver has removed with it. The driver
    /// removes hosts when it has found a replica set.
    fn note(&mut self, event: SdamEvent) -> Vec<ServerAddress> {
        match event {
            SdamEvent::ServerHeartbeatSucceeded(event) => {
                self.heard.insert(event.server_address, event.reply);
                Vec::new()
            }
            SdamEvent::TopologyDescriptionChanged(event) => {
                self.changed(&event.previous_description, event.new_description)
            }
            _ => Vec::new(),
        }
    }

    fn changed(&mut self, former: &TopologyDescription, topology: TopologyDescription) -> Vec<ServerAddress> {
        let (former, servers) = (former.servers(), topology.servers());
        let mut errors = servers.values().filter_map(ServerInfo::error);
        if let Some(error) = errors.find(|error| Meaning::of(error) == Meaning::LogIn) {
            self.refused = Some(error.clone());
        }
        let is_out =
            |server: &ServerInfo<'_>| server.error().is_some() || server.server_type() == ServerType::RsGhost;
        let is_out = servers.values().all(is_out);
        self.out_since = is_out.then(|| self.out_since.unwrap_or_else(Instant::now));
        // After the end of the client there are no servers.
        let has_set = !servers.is_empty() && topology.set_name().is_some();
        let is_removed = |host: &&ServerAddress| former.contains_key(host) && !servers.contains_key(host);
        let removed = self.seeds.iter().filter(|host| has_set && is_removed(host));
        let removed: Vec<_> = removed.cloned().collect();
        let wait_until = Instant::now() + SEED_WAIT;
        self.asked.extend(removed.iter().map(|_| wait_until));
        self.topology = Some(topology);
        removed
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
        let topology = self
            .topology
            .as_ref()
            .filter(|topology| !topology.has_writable_server())?;
        // No request has got a connection since then.
        let is_unsent = self.used.is_none_or(|used| used < begun);
        let at_once = is_unsent.then_some(begun);
        if let Some(refused) = self.refused.clone() {
            return Some((at_once, LockError::Mongo(refused)));
        }
        if topology.servers().is_empty() {
            return Some((at_once, Failure::wrong_hosts(&self.foreign()?, is_unsent)));
        }
        let since = self.out_since.filter(|_| fails_in_outage);
        let end = since.map(|since| since.max(begun) + UNREACHABLE);
        Some((end, Failure::unreachable(&topology.to_string(), is_unsent)))
    }

    /// Compares the replica set in a removed host's reply to `hello` with that of the servers: an error says that the
    /// host belongs to another set. `None` while too little is known.
    fn compared(&self, host: &ServerAddress, hello: &Document) -> Option<Result<(), String>> {
        // A server without a replica set is not a member of another one.
        let Ok(set) = hello.get_str("setName") else {
            return Some(Ok(()));
        };
        let topology = self.topology.as_ref()?;
        let (joined, servers) = (topology.set_name()?, topology.servers());
        let lists = ["hosts", "passives", "arbiters"].map(|list| hello.get_array(list));
        let members = lists.into_iter().flatten().flatten().filter_map(Bson::as_str);
        let members = members.filter_map(|member| ServerAddress::parse(member).ok());
        let members: HashSet<ServerAddress> = members.collect();
        // The id of a process does not depend on the name by which it was reached.
        let process = process_of(hello);
        let is_same = |address: &ServerAddress| {
            let known = self.heard.get(address).and_then(process_of);
            members.contains(address) || known.is_some() && known == process
        };
        if servers.keys().any(|address| is_same(address)) {
            return Some(Ok(()));
        }
        // A server that has not answered may be the same process, with another name.
        let is_silent =
            |server: &ServerInfo<'_>| server.server_type() == ServerType::Unknown && server.error().is_none();
        if joined == set && servers.values().any(is_silent) {
            return None;
        }
        let servers: Vec<_> = servers.keys().map(ToString::to_string).collect();
        Some(Err(format!(
            "the connection string names two replica sets: {} belongs to `{joined}`, and {host} to another set, `{set}`",
            servers.join(", ")
        )))
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

/// The reply of one server to `hello`, on a client of its own without a user, because `hello` needs none; `None` if there is none.
async fn hello(host: ServerAddress, mut options: ClientOptions) -> Option<Document> {
    options.hosts = vec![host];
    options.direct_connection = Some(true);
    options.repl_set_name = None;
    options.credential = None;
    options.app_name = Some(APP_NAME.to_owned());
    let client = Client::with_options(options).ok()?;
    let admin = client.database("admin");
    let reply = timeout(SEED_LIMIT, admin.run_command(doc! { "hello": 1 }).into_future()).await;
    client.shutdown().immediate(true).await;
    reply.ok()?.ok()
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
        let servers = Reachability::observe(uri, &mut options);
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
        let text =
            "MongoDB cannot be reached: 127.0.0.1:1 (Connection refused), 127.0.0.1:2 (Connection refused)";
        assert_eq!(error.to_string(), text);
        assert!(error.may_be_applied(), "it had a connection");
        let unsent = servers
            .run(true, pending::<Result<(), LockError>>())
            .await
            .unwrap_err();
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
        assert_eq!(
            servers.failure().unwrap().to_string(),
            format!("MongoDB at {address} cannot be reached: no answer yet")
        );
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
