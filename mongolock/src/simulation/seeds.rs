//! Seeds that have failed once, each with what was wrong then. Every run of the tests repeats them.
//!
//! A seed repeats the same run only until a change draws other random numbers, so an old one may no longer come to the same
//! place. It costs a few milliseconds, and a new one is the first proof that a correction holds.

use super::plan::Scenario::{self, *};

pub(super) const FAILED: &[(Scenario, u64, &str)] = &[
    (Calm, 28, "A reply whose caller had left was not noted."),
    (Marks, 185, "The check took one period for the next one."),
    (SilentConnections, 70, "Its cause was not noted."),
    (
        Leaps,
        221,
        "A try was told \"busy\" without a reply of its own, because the reply to an earlier query counted.",
    ),
    (SilentConnections, 370, "The same behind a silent connection."),
    (
        Lines,
        288,
        "A call reported a missing reply while it left the lock to others after the release of its process.",
    ),
    (Margins, 337, "The same with a takeover margin."),
    (
        Lines,
        154,
        "Releases waited for seconds behind commands on the documents of waiters.",
    ),
    (Lines, 310, "The same."),
    (Lines, 333, "The same."),
    (
        Calm,
        315,
        "A call of 39 ms that had left the lock to others reported a missing reply to a request sent 2 ms before.",
    ),
    (Calm, 358, "The same."),
    (
        Marks,
        24,
        "A call waited longer than the check allowed for a mark that was repeated behind releases without a reply.",
    ),
    (
        Permits,
        138,
        "The same for a claim that was given up and arrived late.",
    ),
    (
        Overload,
        163,
        "A rejected common command was repeated beyond its limit, which made its rejection an unknown outcome.",
    ),
    (
        Overload,
        9,
        "A lease counted from the common command that had failed before, and lasted for less than a second.",
    ),
    (
        Overload,
        98,
        "Rejected queries were not noted, so that a call reported a missing reply.",
    ),
    (
        Gathered,
        152,
        "A release in a common command counted as a loss, because another process had acquired the lock right after it.",
    ),
    (
        Marks,
        109,
        "The check took a claim that an operator had freed, and that a late request had acquired again, for one that still had its lock.",
    ),
    (
        Overload,
        287,
        "The check took the release of a lease that was over, and whose mark nothing had confirmed, for one that still lasted.",
    ),
    (Overload, 197, "A last rejection passed for a refusal."),
    (Operators, 12, "The check took a leaked hold for a waiter."),
    (
        Marks,
        12,
        "A claim that was delayed in the server beyond the end of its period ran work that was marked as done in it.",
    ),
];
