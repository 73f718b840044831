//! The programs by their own verdicts: with the lock their checks pass, and without it they fail.

use mongolock_tests::{Server, ServerOptions, must};

use crate::programs::run::{fails, passes, program, text};

/// S0.1, S0.17.
#[tokio::test]
async fn report_loses_no_update() {
    let parts = [
        "calls 24 of 24\nlost updates 0 of 24\noverlaps 0\n",
        "tokens rise strictly in every report, in the order of the writes",
    ];
    let printed = passes("report --calls=8 --ids=2 --hold=10", &parts).await;
    // The first ten lines, after the errors, say what is proved, and how.
    let lines = printed.lines().skip_while(|line| line.ends_with("..."));
    let first = lines.take(10).collect::<Vec<_>>().join("\n");
    for part in ["To be proved: ", "no update is lost", "Check: ", "--without-lock"] {
        assert!(first.contains(part), "{part}: {first}");
    }
}

#[tokio::test]
async fn report_loses_updates_without_the_lock() {
    let line = "report --ids=1 --calls=4 --hold=100 --without-lock";
    let parts = ["calls 12 of 12", "FAILED: lost updates: ", "; overlaps: "];
    fails(line, &parts).await;
}

/// S0.16, S0.17.
#[tokio::test]
async fn report_service_refuses_only_requests_that_do_not_get_the_lock() {
    let part = "requests each was done, or refused for the lock alone";
    passes("report_service", &[part]).await;
}

/// S4.1, S4.8, S4.9: one process at a time for a type, several processes in turn, different types in parallel, and complete
/// files, although one process is killed and another one writes with a stale token.
#[tokio::test]
async fn queue_workers_write_every_message_once_and_complete() {
    let parts = [
        "process 1 is killed, and process 2 is stopped",
        "2 invoices gives up its batch: its fencing token is stale",
        "orders all messages once and in order, by several processes",
        "stale writes rejected 1 of 1",
    ];
    passes("queue_workers", &parts).await;
}

/// S4.8: what the lock prevents.
#[tokio::test]
async fn queue_workers_tear_records_without_the_lock() {
    let problems = "(damaged, not each once in order, without tokens, overlaps)";
    let failures = ["orders", "invoices", "payments"].map(|own| format!("{own} {problems}"));
    fails("queue_workers --without-lock", &[&failures.join("; ")]).await;
}

#[tokio::test]
async fn nightly_job_runs_once_per_tick() {
    let parts = [
        "all instances are stopped while two ticks pass",
        "is killed in the middle of the job",
        "ran once 6 of 6 ticks",
    ];
    passes("nightly_job", &parts).await;
}

#[tokio::test]
async fn nightly_job_runs_more_often_without_the_lock() {
    fails("nightly_job --without-lock", &["FAILED: ran once: 0 of 6 ticks"]).await;
}

/// S2.4, S2.7, S2.9, S2.11: the sessions are the owners, one has two documents, and leases end with it or by time.
#[tokio::test]
async fn edit_document_lets_one_session_write() {
    let parts = [
        "bert/1 1/open on 2: 423 \"locked by anna/1\"",
        "anna/1 1/open on 2: 200 \"\"",
        "anna/1 1/heartbeat on 2: 409 \"lost\"",
        "anna/1 1/end on 2: 200 \"2\"",
        "confirmed saves 50\nlines in the document 50\nsaves refused without the lock 18",
    ];
    let printed = passes("edit_document", &parts).await;
    for refused in ["1/save on 2: 409", "1/save on 1: 409"] {
        assert_eq!(printed.matches(refused).count(), 1, "{refused}: {printed}");
    }
}

/// The lines of process 1 of `transfer` after its wait for the approval, in which it is stopped.
fn stopped(printed: &str) -> Vec<&str> {
    let own = printed.lines().filter(|line| line.starts_with("1 1 -> 2 500 "));
    let lines: Vec<&str> = own.collect();
    assert!(lines[0].ends_with("waits for its approval"), "{lines:?}");
    lines[1..].to_vec()
}

#[tokio::test]
async fn transfer_rejects_the_stopped_transfer() {
    let parts = [
        "sum of balances 10400\naccounts each has its opening balance and its entries\nbelow zero none\n",
        "over the limit none\ntokens rise strictly between any two accounts, in the order of the entries\n",
        "stopped transfer is not in the journal",
    ];
    let printed = passes("transfer", &parts).await;
    let [rejected, repeated] = stopped(&printed)[..] else {
        panic!("{printed}");
    };
    let again = "rolled back: the locks are lost; trying again";
    assert!(rejected.ends_with(again), "{rejected}");
    assert!(repeated.ends_with("500 is the limit of 1-2"), "{repeated}");
    let [booked, refused] = [" booked: ", " refused: "].map(|end| printed.matches(end).count());
    assert_eq!(booked + refused, 3 * 8 + 1, "{printed}");
    let entries = format!(
        "journal entries {booked}
"
    );
    assert!(printed.contains(&entries), "{printed}");
}

#[tokio::test]
async fn transfer_breaks_the_limit_without_the_guard() {
    // The amount of the other transfer follows from the numbers of its process and of itself.
    let failure = "FAILED: 620 moved between 1-2, 500 is the limit; tokens do not rise between 1-2; \
                   the stopped transfer is in the journal";
    let parts = ["journal entries 2\nsum of balances 10400\n", failure];
    let line = "transfer --processes=2 --transfers=1 --without-guard";
    let printed = fails(line, &parts).await;
    assert!(stopped(&printed)[0].contains("booked: "), "{printed}");
}

/// What account 1 is to pay to each of the others is more than the limit, and it can pay all of it.
#[tokio::test]
async fn transfer_keeps_the_limit_between_many_accounts() {
    let parts = ["1-2", "1-3", "1-4", "1-5"].map(|pair| format!("500 is the limit of {pair}"));
    let line = "transfer --processes=6 --transfers=40 --accounts=5 --approval=1";
    passes(line, &parts.each_ref().map(String::as_str)).await;
}

/// The amounts follow from the numbers of the process and of its transfers.
#[tokio::test]
async fn transfer_pays_only_what_an_account_has() {
    let parts = [
        "booked: account 2 has 80, account 1 has 10120",
        "booked: account 2 has 30, account 1 has 10170",
        "refused: account 2 has less than 100",
    ];
    passes("transfer --processes=2 --transfers=3 --accounts=2", &parts).await;
}

#[tokio::test]
async fn paused_writer_shows_which_stale_writes_are_rejected() {
    let parts = [
        "plain 1 of 1 stale writes were accepted: the update of writer 2 is lost",
        "fenced 1 of 1 stale writes were rejected: the update of writer 2 is kept",
        "guarded commit 1 of 1 stale writes were rejected: the update of writer 2 is kept",
    ];
    let printed = passes("paused_writer", &parts).await;
    for (part, times) in [
        ("writer 1 is stopped;", 3),
        ("writer 2 acquires the lock, token ", 3),
        ("writer 2 writes 150", 3),
        ("writer 1 continues, and writes 110", 3),
        ("LOST UPDATE: the balance is 110", 1),
        ("REJECTED: the balance is 150", 2),
    ] {
        assert_eq!(printed.matches(part).count(), times, "{part}: {printed}");
    }
    // The rejection of the fence names the tokens of both writers, which the timeline has shown before.
    let tokens = printed.split("acquires the lock, token ").skip(1);
    let tokens: Vec<&str> = tokens.filter_map(|rest| rest.split(',').next()).collect();
    let reason = format!(
        "token {} is stale, the account was written with token {}",
        tokens[2], tokens[3]
    );
    assert_eq!(printed.matches(&reason).count(), 1, "{reason}: {printed}");
}

#[tokio::test]
async fn errors_of_the_server_are_clear() {
    let server = must(Server::start(ServerOptions::standalone()).await);
    let standalone = server.uri();
    let nowhere = "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=200".to_owned();
    for (name, uri, message) in [
        ("report", nowhere, "cannot create the reports"),
        (
            "transfer",
            standalone,
            "this needs a replica set or a sharded cluster",
        ),
    ] {
        let output = must(program(name).env("MONGODB_URI", uri).output());
        let text = text(&output);
        let is_error = output.status.code() == Some(1) && output.stdout.is_empty();
        assert!(is_error && text.contains("Error: "), "{text}");
        assert!(text.contains(message) && !text.contains("panicked"), "{text}");
    }
}
