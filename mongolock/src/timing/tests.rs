use super::*;

const fn is_less(one: Duration, other: Duration) -> bool {
    one.as_millis() < other.as_millis()
}

/// The relations between the limits that the reasons above rely on.
const _: () = {
    // The server ends every command long before `LATE_COMMAND`.
    const LATE_COMMAND: Duration = Duration::from_millis(crate::protocol::LATE_COMMAND.unsigned_abs());
    assert!(is_less(COMMAND_LIMIT, LATE_COMMAND));

    // The server ends a release before its caller gives up, and a caller has the result before a shutdown ends.
    assert!(is_less(COMMAND_LIMIT, RELEASE_REPLY_LIMIT) && is_less(RELEASE_REPLY_LIMIT, SHUTDOWN_LIMIT));
    // The steps after a shutdown are shorter than the shutdown itself.
    assert!(is_less(CLOSE_LIMIT, CLIENT_LIMIT) && is_less(CLIENT_LIMIT, SHUTDOWN_LIMIT));

    assert!(is_less(UNREACHABLE, PROBE_LIMIT) && is_less(PROBE_LIMIT, PROBE_NO_REPLY));
    assert!(is_less(COMMIT_NO_REPLY, COMMIT_LIMIT) && is_less(COMMAND_LIMIT, ADMIN_REPLY_LIMIT));
    assert!(is_less(STREAM_AWAIT, REQUEST_LIMIT));
    assert!(is_less(INDEX_BUILD_LIMIT, COMMAND_LIMIT));
};
