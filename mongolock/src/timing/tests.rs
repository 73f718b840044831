use super::*;

const fn is_less(one: Duration, other: Duration) -> bool {
    one.as_millis() < other.as_millis()
}

/// The relations between the limits that the reasons above rely on.
const _: () = {
    // The server ends every command long before `LATE_COMMAND`.
    const LATE_COMMAND: Duration = Duration::from_millis(crate::protocol::LATE_COMMAND.unsigned_abs());
    assert!(is_less(COMMAND_LIMIT, LATE_COMMAND));
    // A command is given up before the requests that wait for it, each of which may repeat it.
    assert!(is_less(NO_REPLY, COMMAND_LIMIT) && is_less(COMMAND_LIMIT, DRIVER_LIMIT));
    assert!(is_less(DRIVER_LIMIT, FAILOVER_LIMIT) && is_less(FAILOVER_LIMIT, REQUEST_LIMIT));

    // The server ends a release before its caller gives up, and a caller has the result before a shutdown ends.
    assert!(is_less(COMMAND_LIMIT, RELEASE_REPLY_LIMIT) && is_less(RELEASE_REPLY_LIMIT, SHUTDOWN_LIMIT));
    // The steps after a shutdown are shorter than the shutdown itself.
    assert!(is_less(CLOSE_LIMIT, CLIENT_LIMIT) && is_less(CLIENT_LIMIT, SHUTDOWN_LIMIT));

    // A health check learns of an outage, and its request is given up only after it.
    assert!(is_less(UNREACHABLE, PROBE_LIMIT) && is_less(PROBE_LIMIT, COMMAND_LIMIT));
    // A stream that has no event is alive.
    assert!(is_less(STREAM_AWAIT, REQUEST_LIMIT) && is_less(REQUEST_LIMIT, HISTORY_LIMIT));
    assert!(is_less(INDEX_BUILD_LIMIT, COMMAND_LIMIT) && is_less(FAILED_PAUSE, INDEX_RECHECK));
};
