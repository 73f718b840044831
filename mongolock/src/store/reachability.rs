//! What the driver's monitoring says about the servers of a client that this library has made.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use mongodb::error::{Error, ErrorKind};
use mongodb::event::EventHandler;
use mongodb::event::sdam::{SdamEvent, TopologyType};
use mongodb::options::ClientOptions;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use crate::LockError;
use crate::error::failure::Failure;
use crate::timing::UNREACHABLE;

/// The servers of one client and their last heartbeats.
pub(crate) struct Reachability(watch::Sender<State>);

#[derive(Default)]
struct State {
    /// The known servers by their addresses.
    servers: BTreeMap<String, Heartbeat>,
    /// The address of the server whose heartbeat failed last.
    failed_last: String,
    /// Since when the last heartbeat of every known server has failed; `None` while one of them has not.
    outage_since: Option<Instant>,
    /// The kind of the deployment, as far as the driver knows it.
    topology: Option<TopologyType>,
}

/// The last heartbeat of a server.
enum Heartbeat {
    /// There is no reply yet to the first one.
    Pending,
    Succeeded,
    Failed {
        reason: String,
        kind: io::ErrorKind,
    },
}

impl Reachability {
    /// Listens to the monitoring of a client that is made from these options.
    pub(crate) fn watch(options: &mut ClientOptions) -> Arc<Self> {
        let reachability = Arc::new(Self(watch::Sender::default()));
        let listener = Arc::clone(&reachability);
        options.sdam_event_handler = Some(EventHandler::callback(move |event| listener.note(event)));
        reachability
    }

    fn note(&self, event: SdamEvent) {
        let (address, heartbeat) = match event {
            SdamEvent::ServerOpening(event) => (event.address, Some(Heartbeat::Pending)),
            SdamEvent::ServerClosed(event) => (event.address, None),
            SdamEvent::ServerHeartbeatSucceeded(event) => (event.server_address, Some(Heartbeat::Succeeded)),
            SdamEvent::ServerHeartbeatFailed(event) => {
                (event.server_address, Some(Heartbeat::failed(&event.failure)))
            }
            SdamEvent::TopologyDescriptionChanged(event) => {
                let topology = event.new_description.topology_type();
                return self.0.send_modify(|state| state.topology = Some(topology));
            }
            _ => return,
        };
        self.0
            .send_modify(|state| state.set(address.to_string(), heartbeat));
    }

    /// Runs a request, and fails it when no server could be reached for [`UNREACHABLE`]. The driver itself looks for a
    /// server for 30 s before it says why there is none.
    ///
    /// The client's `serverSelectionTimeoutMS` stays as it is. With a short one, every command would fail during an
    /// election, which takes 1 to 12 s: acquire requests, renewals and releases are repeated, but an operator's commands
    /// and those of the index task are not, and have to wait for the new primary. In an election other members still
    /// answer heartbeats, so nothing fails here. Commits and fenced writes use the application's own client.
    ///
    /// The outcome of a failed request is not known, as without a reply: a connection may have been open to the last
    /// moment.
    pub(crate) async fn unless_unreachable<T>(
        &self,
        request: impl Future<Output = Result<T, LockError>>,
    ) -> Result<T, LockError> {
        tokio::select! {
            biased;
            reply = request => reply,
            failure = self.outage() => Err(failure.into_error()),
        }
    }

    /// Resolves when an outage has lasted for [`UNREACHABLE`], counted from the call if it began earlier.
    async fn outage(&self) -> Failure {
        let (begun, mut events) = (Instant::now(), self.0.subscribe());
        loop {
            let since = events.borrow_and_update().outage_since;
            // It fails only without a sender, which lives as long as `self`.
            let next_event = events.changed();
            match since.map(|since| since.max(begun) + UNREACHABLE) {
                None => drop(next_event.await),
                Some(end) => {
                    if timeout_at(end, next_event).await.is_err()
                        && let Some(failure) = self.0.borrow().failure()
                    {
                        return failure;
                    }
                }
            }
        }
    }

    /// The failure of a request without a reply.
    pub(crate) fn unanswered(&self, request: &str, waited: Duration) -> Failure {
        let state = self.0.borrow();
        state.failure().unwrap_or_else(|| Failure::NoReply {
            request: request.to_owned(),
            waited,
            note: state.note(),
        })
    }
}

impl State {
    fn set(&mut self, address: String, heartbeat: Option<Heartbeat>) {
        match heartbeat {
            Some(heartbeat) => {
                if matches!(heartbeat, Heartbeat::Failed { .. }) {
                    self.failed_last.clone_from(&address);
                }
                self.servers.insert(address, heartbeat);
            }
            None => drop(self.servers.remove(&address)),
        }
        self.outage_since = if self.is_outage() {
            self.outage_since.or_else(|| Some(Instant::now()))
        } else {
            None
        };
    }

    fn is_outage(&self) -> bool {
        let mut heartbeats = self.servers.values();
        !self.servers.is_empty() && heartbeats.all(|heartbeat| matches!(heartbeat, Heartbeat::Failed { .. }))
    }

    /// The failure of an outage.
    fn failure(&self) -> Option<Failure> {
        self.outage_since?;
        // The server whose heartbeat failed last may have left the deployment.
        let last = self.servers.get_key_value(&self.failed_last);
        let (address, heartbeat) = last.or_else(|| self.servers.first_key_value())?;
        match heartbeat {
            Heartbeat::Failed { reason, kind } => Some(Failure::Unreachable {
                address: address.clone(),
                reason: reason.clone(),
                kind: *kind,
                others: self.servers.len() - 1,
            }),
            Heartbeat::Pending | Heartbeat::Succeeded => None,
        }
    }

    /// Why there may be no reply, for the end of a sentence; empty if the heartbeats show no reason.
    fn note(&self) -> String {
        let mut heartbeats = self.servers.values();
        let is_connected = heartbeats.any(|heartbeat| matches!(heartbeat, Heartbeat::Succeeded));
        match self.topology {
            // A load balancer gets no heartbeats.
            Some(TopologyType::LoadBalanced) => String::new(),
            _ if !is_connected && !self.servers.is_empty() => {
                let addresses: Vec<&str> = self.servers.keys().map(String::as_str).collect();
                format!(": there is no connection to {} yet", addresses.join(", "))
            }
            Some(TopologyType::ReplicaSetNoPrimary) => ": the replica set has no primary".to_owned(),
            _ => String::new(),
        }
    }
}

impl Heartbeat {
    fn failed(failure: &Error) -> Self {
        match &*failure.kind {
            ErrorKind::Io(error) => Self::Failed {
                reason: without_code(&error.to_string()),
                kind: error.kind(),
            },
            kind => Self::Failed {
                reason: kind.to_string(),
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

#[cfg(test)]
mod tests {
    use super::*;

    impl Reachability {
        fn new() -> Self {
            Self(watch::Sender::default())
        }

        fn heartbeat(&self, address: &str, heartbeat: Heartbeat) {
            self.0
                .send_modify(|state| state.set(address.to_owned(), Some(heartbeat)));
        }

        /// The time after which a request without a reply fails, and the error; `None` if it does not within a minute.
        async fn fails_after(&self) -> Option<(Duration, String)> {
            let begun = Instant::now();
            let request = std::future::pending::<Result<(), LockError>>();
            let failing = self.unless_unreachable(request);
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
        servers.0.send_modify(|state| state.topology = no_primary);
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
        servers.0.send_modify(|state| state.set("a:1".to_owned(), None));
        let (_, error) = servers.fails_after().await.expect("b:2 is alone");
        assert!(error.contains("b:2"), "{error}");
    }
}
