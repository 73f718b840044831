use std::time::Duration;

use super::*;

fn error_of(servers: &Servers) -> Option<String> {
    servers.refuses().map(|error| error.to_string())
}

/// The driver waits for the next heartbeat after a refused log-in, and what is sent then may succeed.
#[test]
fn a_refused_log_in_is_said_until_the_next_heartbeat_and_kept_until_a_log_in_succeeds() {
    let error = Error::custom("refused");
    let mut servers = Servers::observed(None, Seeds::default());
    servers.succeeded("a:1".to_owned(), None, true);
    servers.described("a:1".to_owned(), Some(&error));
    assert!(error_of(&servers).is_some());
    // A heartbeat that was sent before does not count.
    servers.succeeded("a:1".to_owned(), None, true);
    assert!(error_of(&servers).is_some());
    servers.described("a:1".to_owned(), None);
    assert!(error_of(&servers).is_none() && servers.refused().is_some());
    servers.logged_in();
    assert!(servers.refused().is_none() && servers.is_logged_in());
}

#[test]
fn a_log_in_that_a_secondary_refuses_keeps_no_request_back() {
    let error = Error::custom("refused");
    let mut servers = Servers::observed(None, Seeds::default());
    servers.succeeded("primary:1".to_owned(), Some("rs"), true);
    servers.described("secondary:1".to_owned(), Some(&error));
    servers.topology = Some(TopologyType::ReplicaSetWithPrimary);
    assert!(error_of(&servers).is_none());
    servers.topology = Some(TopologyType::ReplicaSetNoPrimary);
    assert!(error_of(&servers).is_some());
}

#[test]
fn a_server_of_another_set_fails_requests_if_there_is_no_other_server() {
    let mut servers = Servers::observed(Some("mine".to_owned()), Seeds::default());
    servers.set("a:1".to_owned(), Heartbeat::Pending);
    servers.set("b:2".to_owned(), Heartbeat::Pending);
    servers.succeeded("a:1".to_owned(), Some("other"), true);
    assert!(error_of(&servers).is_none());
    servers.closed("a:1");
    // It has no configuration yet.
    servers.succeeded("b:2".to_owned(), None, false);
    assert!(error_of(&servers).is_none());
    servers.succeeded("b:2".to_owned(), None, true);
    servers.closed("b:2");
    let text = "MongoDB at b:2 belongs to no replica set; the connection string names `mine`";
    assert_eq!(error_of(&servers).as_deref(), Some(text));
    servers.succeeded("c:3".to_owned(), Some("mine"), true);
    assert!(error_of(&servers).is_none());
}

/// Requests that may have been sent wait for their replies.
#[tokio::test(start_paused = true)]
async fn a_request_is_unsent_if_no_connection_was_ready_for_it() {
    let mut servers = Servers::observed(None, Seeds::default());
    let connection = ("a:1".to_owned(), 1);
    let later = async || {
        tokio::time::sleep(Duration::from_millis(1)).await;
        Instant::now()
    };
    let first = later().await;
    assert!(servers.is_unsent(first));
    servers.connections.open.insert(connection.clone());
    assert!(!servers.is_unsent(first));
    assert!(servers.connections.close(&connection) && !servers.connections.close(&connection));
    assert!(!servers.is_unsent(first), "it may have used the connection");
    assert!(servers.is_unsent(later().await));
    assert!(
        !Servers::default().is_unsent(first),
        "nothing is known without events"
    );
}
