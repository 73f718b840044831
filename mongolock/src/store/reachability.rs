//! What the driver says about the servers of a client: their heartbeats, its connections and its log-ins.

mod question;
mod seeds;
mod servers;

use std::sync::Arc;
use std::time::Duration;

use mongodb::event::EventHandler;
use mongodb::event::cmap::CmapEvent;
use mongodb::event::sdam::SdamEvent;
use mongodb::options::{ClientOptions, ServerAddress};
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};

use self::question::Question;
use self::seeds::Seeds;
use self::servers::Servers;
use super::home::Home;
use super::overload::Overload;
use crate::LockError;
use crate::error::failure::Failure;
use crate::error::meaning::{Meaning, code};
use crate::task;
use crate::timing::CLIENT_LIMIT;

/// The number of connections of a client's pool if its options set none.
pub(super) const DEFAULT_POOL: u32 = 10;

/// The servers of one client, their last heartbeats and log-ins. Without events it knows only what the replies to the
/// commands of the providers show.
pub(crate) struct Reachability {
    servers: watch::Sender<Servers>,
    /// The runtime of the client.
    home: Home,
    /// Whether the server rejects the client's commands.
    pub(super) overload: Overload,
    /// The size of the client's pool of connections.
    pub(super) pool: u32,
    /// The options of a client that asks a host for its replica set.
    asking: ClientOptions,
    /// Whether questions to hosts end; each of them has a receiver.
    has_ended: watch::Sender<bool>,
}

impl Default for Reachability {
    /// What is known of a client that is not observed. The driver does not tell the size of its pool.
    fn default() -> Self {
        Self {
            servers: watch::Sender::default(),
            home: Home::default(),
            overload: Overload::default(),
            pool: DEFAULT_POOL,
            asking: ClientOptions::default(),
            has_ended: watch::Sender::new(false),
        }
    }
}

impl Reachability {
    /// Observes the client that is made from these options of a connection string. Its hosts must belong to one replica set.
    pub(super) fn observe(uri: &str, options: &mut ClientOptions) -> Arc<Self> {
        let reachability = Arc::new(Self::observed(options, Seeds::of(uri, options)));
        let (servers, connections) = (Arc::clone(&reachability), Arc::clone(&reachability));
        options.sdam_event_handler = Some(EventHandler::callback(move |event| servers.note(&event)));
        options.cmap_event_handler = Some(EventHandler::callback(move |event| {
            connections.note_connection(&event);
        }));
        reachability.settle();
        reachability
    }

    /// What is known before the first event of a client with these options and hosts.
    fn observed(options: &ClientOptions, seeds: Seeds) -> Self {
        Self {
            servers: watch::Sender::new(Servers::observed(options.repl_set_name.clone(), seeds)),
            home: Home::default(),
            overload: Overload::default(),
            pool: options.max_pool_size.unwrap_or(DEFAULT_POOL),
            asking: question::options(options),
            has_ended: watch::Sender::new(false),
        }
    }

    /// Notes the runtime of the client.
    pub(super) fn settle(&self) {
        self.home.settle();
    }

    fn note(self: &Arc<Self>, event: &SdamEvent) {
        let mut removed = Vec::new();
        self.servers.send_modify(|servers| removed = servers.note(event));
        for host in removed {
            task::spawn(Arc::clone(self).ask(host));
        }
    }

    /// Asks a host of the connection string that the driver has removed for its replica set.
    async fn ask(self: Arc<Self>, host: ServerAddress) {
        let mut ended = self.has_ended.subscribe();
        let address = host.to_string();
        let mut question = Question::begin(self.asking.clone(), host);
        let reply = async { question.as_mut()?.reply().await };
        let reply = tokio::select! {
            reply = reply => reply,
            // It fails only without a sender, which lives as long as `self`.
            _ = ended.wait_for(|ended| *ended) => None,
        };
        let answered = |servers: &mut Servers| servers.seeds.answered(&address, reply.as_ref());
        self.servers.send_modify(answered);
        if let Some(question) = question {
            question.end().await;
        }
    }

    /// Ends the questions, before the client ends.
    pub(super) async fn end_questions(&self) {
        self.has_ended.send_replace(true);
        let _ = timeout(CLIENT_LIMIT, self.has_ended.closed()).await;
    }

    /// The error if the hosts of the connection string are known to belong to two replica sets, for a request that was sent
    /// or not.
    pub(super) fn two_sets(&self, is_unsent: bool) -> Result<(), LockError> {
        let failure = self.servers.borrow().seeds.failure(is_unsent);
        failure.map_or(Ok(()), |failure| Err(failure.into_error()))
    }

    /// Whether a host of the connection string was asked for its replica set, and calls wait for the answer.
    pub(super) fn is_asking(&self) -> bool {
        self.servers.borrow().seeds.wait_until().is_some()
    }

    /// Waits for the answers of the hosts that were asked, as long as calls wait for them.
    pub(super) async fn until_answered(&self) {
        let mut servers = self.servers.subscribe();
        loop {
            let Some(end) = servers.borrow_and_update().seeds.wait_until() else {
                return;
            };
            if timeout_at(end, servers.changed()).await.is_err() {
                return;
            }
        }
    }

    fn note_connection(&self, event: &CmapEvent) {
        self.servers
            .send_if_modified(|servers| servers.note_connection(event));
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
        let begun = Instant::now();
        let (refused, is_observed) = {
            let state = self.servers.borrow();
            (state.refuses(), state.is_observed())
        };
        let reply = match refused {
            // A request that was polled once may have been sent.
            Some(error) => Err(error),
            None if !is_observed => request.await,
            None => tokio::select! {
                biased;
                reply = request => reply,
                error = self.blocked(begun, fails_in_outage) => Err(error),
            },
        };
        self.note_reply(&reply);
        reply.map_err(|error| self.explained(error))
    }

    /// Notes what a reply shows, also without events.
    fn note_reply<T>(&self, reply: &Result<T, LockError>) {
        match reply {
            Err(LockError::Mongo(error)) if Meaning::of(error) == Meaning::LogIn => {
                self.servers.send_modify(|state| state.refuse(error));
            }
            Err(error) if !is_reply(error) => {}
            // The events of an observed client tell it as well, and earlier. Most replies change nothing.
            _ if self.servers.borrow().is_logged_in() => {}
            _ => self.servers.send_modify(Servers::logged_in),
        }
    }

    /// The cause of an error that only says that the driver has found no server: the log-in was refused before, or the
    /// runtime of the client has ended.
    fn explained(&self, error: LockError) -> LockError {
        let is_selection = error.meaning() == Meaning::NoServer;
        if !is_selection && !matches!(error.meaning(), Meaning::Unreachable | Meaning::NoSet) {
            return error;
        }
        if self.home.has_ended() {
            return Meaning::EndedRuntime.error();
        }
        let refused = self.servers.borrow().refused().cloned();
        refused.filter(|_| is_selection).map_or(error, LockError::Mongo)
    }

    /// Resolves when a request that began at this time cannot be sent, with the error for it.
    async fn blocked(&self, begun: Instant, fails_in_outage: bool) -> LockError {
        let mut events = self.servers.subscribe();
        loop {
            let end = events.borrow_and_update().gives_up_at(begun, fails_in_outage);
            // It fails only without a sender, which lives as long as `self`.
            let next_event = events.changed();
            match end {
                None => drop(next_event.await),
                Some(end) => {
                    if timeout_at(end, next_event).await.is_err()
                        && let Some(error) = self.servers.borrow().error(begun)
                    {
                        return error;
                    }
                }
            }
        }
    }

    /// The failure of a request without a reply.
    pub(super) fn unanswered(&self, request: &str, waited: Duration) -> Failure {
        let state = self.servers.borrow();
        let no_reply = || Failure::no_reply(request, waited, &state.note_on_reply());
        let refused = state.refused().cloned();
        let refused = refused.map(Failure::refused_log_in);
        state.failure(None).or(refused).unwrap_or_else(no_reply)
    }

    /// Whether a connection has ever been ready: before that, no request can have taken effect.
    pub(super) fn has_been_ready(&self) -> bool {
        self.servers.borrow().has_been_ready()
    }
}

/// Whether the server has replied with this error, or the error is about the document in its reply.
fn is_reply(error: &LockError) -> bool {
    match error {
        LockError::Mongo(driver_error) => code(driver_error).is_some() || error.meaning() == Meaning::Blocked,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use mongodb::event::sdam::TopologyType;

    use super::servers::Heartbeat;
    use super::*;
    use crate::timing::UNREACHABLE;

    impl Reachability {
        fn new() -> Self {
            Self::observed(&ClientOptions::default(), Seeds::default())
        }

        fn heartbeat(&self, address: &str, heartbeat: Heartbeat) {
            self.servers.send_modify(|state| {
                state.set(address.to_owned(), heartbeat);
            });
        }

        /// The time after which a request without a reply fails, and the error; `None` if it does not within a minute.
        async fn fails_after(&self) -> Option<(Duration, String)> {
            let begun = Instant::now();
            let request = std::future::pending::<Result<(), LockError>>();
            let failing = self.run(true, request);
            let failed = tokio::time::timeout(Duration::from_secs(60), failing).await;
            let error = failed.ok()?.unwrap_err();
            Some((begun.elapsed(), error.to_string()))
        }
    }

    fn refused() -> Heartbeat {
        let text = "Connection refused (os error 111)";
        let error = io::Error::new(io::ErrorKind::ConnectionRefused, text);
        Heartbeat::failed(&error.into())
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_fails_when_no_server_was_reachable_for_a_while() {
        let servers = Reachability::new();
        servers.heartbeat("a:1", refused());
        let (after, error) = servers.fails_after().await.expect("it fails");
        assert_eq!(after, UNREACHABLE);
        assert_eq!(error, "MongoDB at a:1 cannot be reached: Connection refused");
        servers.heartbeat("b:2", refused());
        let (after, error) = servers.fails_after().await.expect("it fails");
        assert_eq!(after, UNREACHABLE, "the request itself has some time");
        assert_eq!(
            error,
            "MongoDB at b:2 cannot be reached: Connection refused (nor can the other server)"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn one_server_that_answers_or_is_unknown_is_no_outage() {
        for other in [Heartbeat::Succeeded, Heartbeat::Pending] {
            let servers = Reachability::new();
            servers.heartbeat("a:1", other);
            servers.heartbeat("b:2", refused());
            assert!(servers.fails_after().await.is_none());
        }
        assert!(
            Reachability::new().fails_after().await.is_none(),
            "nothing is known"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_is_back_in_time_fails_no_request() {
        let servers = Reachability::new();
        let restarts = async {
            for _ in 0..10 {
                servers.heartbeat("a:1", refused());
                tokio::time::sleep(UNREACHABLE * 2 / 3).await;
                servers.heartbeat("a:1", Heartbeat::Succeeded);
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let (failed, ()) = tokio::join!(servers.fails_after(), restarts);
        assert!(failed.is_none(), "{failed:?}");
    }

    #[test]
    fn a_missing_reply_is_explained_by_what_is_known() {
        let text = |servers: &Reachability| {
            let failure = servers.unanswered("acquire request", Duration::from_secs(10));
            failure.to_string()
        };
        let servers = Reachability::new();
        let plain = "MongoDB did not answer the acquire request within 10 s";
        assert_eq!(text(&servers), plain);
        servers.heartbeat("a:1", Heartbeat::Pending);
        assert_eq!(
            text(&servers),
            format!("{plain}: there is no connection to a:1 yet")
        );
        servers.heartbeat("a:1", Heartbeat::Succeeded);
        assert_eq!(text(&servers), plain);
        let no_primary = Some(TopologyType::ReplicaSetNoPrimary);
        servers
            .servers
            .send_modify(|servers| servers.topology = no_primary);
        assert_eq!(text(&servers), format!("{plain}: the replica set has no primary"));
        servers.heartbeat("a:1", refused());
        assert_eq!(
            text(&servers),
            "MongoDB at a:1 cannot be reached: Connection refused"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_has_left_does_not_count() {
        let servers = Reachability::new();
        servers.heartbeat("a:1", Heartbeat::Succeeded);
        servers.heartbeat("b:2", refused());
        servers.servers.send_modify(|servers| servers.closed("a:1"));
        let (_, error) = servers.fails_after().await.expect("b:2 is alone");
        assert!(error.contains("b:2"), "{error}");
    }
}
