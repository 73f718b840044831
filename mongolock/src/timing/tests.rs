use super::*;

const fn is_less(one: Duration, other: Duration) -> bool {
    one.as_millis() < other.as_millis()
}

/// The relations between the limits that the reasons above rely on.
const _: () = {
    // The server ends every command long before `LATE_COMMAND`.
    const LATE_COMMAND: Duration = Duration::from_millis(crate::protocol::LATE_COMMAND.unsigned_abs());
    assert!(is_less(ACQUIRE_LIMIT, LATE_COMMAND) && is_less(RENEWAL_LIMIT_MAX, LATE_COMMAND));
    assert!(is_less(RELEASE_LIMIT, LATE_COMMAND) && is_less(COMMAND_LIMIT, LATE_COMMAND));

    // The stages of an acquire request: a healthy reply, overdue, given up, a minute without a reply.
    assert!(is_less(SLOW_REPLY, UNREACHABLE) && is_less(UNREACHABLE, ACQUIRE_OVERDUE));
    assert!(is_less(ACQUIRE_OVERDUE, ACQUIRE_LIMIT) && is_less(CROWDED_LIMIT, ACQUIRE_LIMIT));
    assert!(ACQUIRE_NO_REPLY.as_millis() == ACQUIRE_LIMIT.as_millis() + NO_REPLY.as_millis());
    assert!(is_less(ACQUIRE_NO_REPLY, DEAD_CONNECTION) && is_less(ACQUIRE_NO_REPLY, NO_REPLY_LIMIT));
    assert!(is_less(LOOK_LIMIT, ACQUIRE_NO_REPLY) && is_less(LOOK_GAP_MAX, SLOW_REPLY));
    assert!(is_less(SLOW_REPLY, PERMIT_LIMIT) && is_less(PERMIT_LIMIT, ACQUIRE_LIMIT));
    assert!(is_less(ACQUIRE_LIMIT_MIN, SLOW_REPLY) && is_less(NO_REPLY_LIMIT_MIN, NO_REPLY_LIMIT));

    // The server has ended a request before its id is released late, and the last release comes after its connection is
    // closed.
    assert!(is_less(ACQUIRE_LIMIT, LATE_RELEASE_OF_SET) && is_less(LATE_RELEASE_OF_SET, LATE_RELEASES[0]));
    assert!(is_less(ACQUIRE_LIMIT, LATE_RELEASES[0]) && is_less(LATE_RELEASES[0], LATE_RELEASES[1]));
    assert!(is_less(DEAD_CONNECTION, LATE_RELEASES[2]) && is_less(LATE_RELEASES[1], LATE_RELEASES[2]));

    // The server ends a release before this process repeats it, and a caller knows the outcome before a shutdown ends.
    assert!(is_less(RELEASE_REPEAT_LIMIT, RELEASE_LIMIT) && is_less(RELEASE_LIMIT, RELEASE_NO_REPLY));
    assert!(is_less(RELEASE_NO_REPLY, RELEASE_REPLY_LIMIT) && is_less(RELEASE_REPLY_LIMIT, SHUTDOWN_LIMIT));
    // What follows a shutdown is short beside it.
    assert!(is_less(CLOSE_LIMIT, CLIENT_LIMIT) && is_less(CLIENT_LIMIT, SHUTDOWN_LIMIT));

    assert!(is_less(UNREACHABLE, PROBE_LIMIT) && is_less(PROBE_LIMIT, PROBE_NO_REPLY));
    assert!(is_less(PROBE_PRIMARY, PROBE_LIMIT));
    assert!(is_less(RENEWAL_LIMIT_MIN, RENEWAL_LIMIT_MAX) && is_less(HANDOVER_MIN, HANDOVER_MAX));
    assert!(is_less(HANDOVER_MAX, HANDOVER_MAX_SLOW));
    assert!(is_less(COMMIT_NO_REPLY, COMMIT_LIMIT) && is_less(COMMAND_LIMIT, ADMIN_REPLY_LIMIT));
    assert!(is_less(LINE_READ_LIMIT, LINE_LIMIT));
    assert!(is_less(YIELD_MAX, LINE_SLOTS_MAX) && is_less(LINE_SLOTS_MAX, LINE_SILENCE));
    assert!(is_less(STREAM_AWAIT, STREAM_SILENT) && is_less(STREAM_SILENT, DEAD_CONNECTION));
    assert!(is_less(STREAM_COST_WINDOW, STREAM_POLL_MIN) && is_less(STREAM_POLL_MIN, STREAM_POLL_MAX));
    assert!(is_less(STREAM_LATE, STREAM_AWAIT) && is_less(FILTER_KEEPS, FILTER_SWITCH));
    assert!(is_less(INDEX_BUILD_LIMIT, COMMAND_LIMIT) && is_less(INDEX_REPLY_LIMIT, DEAD_CONNECTION));
};
