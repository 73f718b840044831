//! Nothing of a program is left behind, however it ends.

use std::process::Stdio;

use mongolock_tests::{AMPLE, eventually, must, shared};

use crate::programs::run::{Alone, database_of, program, signal, text, worker};

/// The programs at work, the line that says so, and whether one of their processes is stopped for as long as the test takes.
const AT_WORK: [(&str, &str, bool); 7] = [
    ("report --calls=1000", " ms ", false),
    ("report_service", "409", false),
    ("queue_workers", "process 2 is stopped", false),
    ("nightly_job", "all instances are stopped", false),
    ("edit_document", "1/open", false),
    ("transfer --approval=3600000", "Process 1 is stopped.", true),
    ("paused_writer --expiry=60000", "writer 1 is stopped;", true),
];

async fn at_work((line, at_work, has_stopped): (&str, &str, bool)) -> Alone {
    let alone = Alone::start(line, at_work);
    if has_stopped {
        alone.has_one_stopped().await;
    }
    alone
}

#[tokio::test]
async fn an_interrupted_program_leaves_nothing() {
    for program in AT_WORK {
        let code = at_work(program).await.leaves_nothing_after("INT").await;
        assert_eq!(code, Some(130), "{program:?}");
    }
}

/// Elsewhere than on Linux nothing ends a stopped process whose parent is killed.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_killed_program_leaves_nothing() {
    for program in AT_WORK {
        let code = at_work(program).await.leaves_nothing_after("KILL").await;
        assert_eq!(code, None, "{program:?}");
    }
}

/// An error while the first process is stopped: another process is killed.
#[tokio::test]
async fn a_process_that_fails_is_named() {
    let mut command = program("transfer --processes=2 --approval=3600000");
    let program = must(command.env_remove("MONGODB_URI").stdout(Stdio::piped()).spawn());
    let second = || async { worker("transfer", program.id(), "2") };
    let second = must(eventually(AMPLE, "the second process", second).await);
    signal("KILL", second);
    let output = must(program.wait_with_output());
    let text = text(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    let verdict = text.lines().last().unwrap_or_default();
    let is_named = verdict.starts_with("FAILED: ") && verdict.contains("process 2: signal: 9");
    assert!(is_named, "{text}");
}

#[tokio::test]
async fn the_database_on_a_given_server_is_dropped() {
    let shared = must(shared().await);
    let mut command = program("report --calls=2");
    let program = must(
        command
            .env("MONGODB_URI", shared.uri())
            .stdout(Stdio::null())
            .spawn(),
    );
    let own = database_of("report", program.id());
    assert!(must(program.wait_with_output()).status.success());
    let names = must(must(shared.client().await).list_database_names().await);
    assert!(!names.iter().any(|name| name.starts_with(&own)), "{names:?}");
}
