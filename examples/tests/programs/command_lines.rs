//! The command lines of all programs: the help names the options of a user, and a wrong option is refused with what to
//! write instead.

use std::process::Command;

use mongolock_tests::must;

use crate::run::program;

const REPORT: &str = env!("CARGO_BIN_EXE_report");
const REPORT_SERVICE: &str = env!("CARGO_BIN_EXE_report_service");
const QUEUE_WORKERS: &str = env!("CARGO_BIN_EXE_queue_workers");
const NIGHTLY_JOB: &str = env!("CARGO_BIN_EXE_nightly_job");
const EDIT_DOCUMENT: &str = env!("CARGO_BIN_EXE_edit_document");
const TRANSFER: &str = env!("CARGO_BIN_EXE_transfer");
const PAUSED_WRITER: &str = env!("CARGO_BIN_EXE_paused_writer");

/// The exit code, and what was printed.
fn run(mut program: Command) -> (Option<i32>, String) {
    let output = must(program.output());
    let printed = [output.stdout, output.stderr].concat();
    (
        output.status.code(),
        String::from_utf8_lossy(&printed).into_owned(),
    )
}

#[test]
fn the_help_names_the_options() {
    for (path, options) in [
        (REPORT, "--processes --calls --ids --hold --without-lock"),
        (REPORT_SERVICE, "serve --keep-running"),
        (
            QUEUE_WORKERS,
            "--processes --messages --types --pause --expiry --kill --without-lock --directory",
        ),
        (
            NIGHTLY_JOB,
            "--ticks --schedule --work --late --kill --without-lock",
        ),
        (EDIT_DOCUMENT, "Usage: edit_document"),
        (
            TRANSFER,
            "--processes --transfers --accounts --approval --without-guard",
        ),
        (PAUSED_WRITER, "--runs --expiry"),
    ] {
        let (code, help) = run(program(path, &["--help"]));
        assert_eq!(code, Some(0), "{help}");
        for word in options.split(' ').chain(["MONGODB_URI", "Exit status"]) {
            assert!(help.contains(word), "{word}: {help}");
        }
    }
}

#[test]
fn the_help_names_no_options_of_worker_processes() {
    for path in [
        REPORT,
        QUEUE_WORKERS,
        NIGHTLY_JOB,
        EDIT_DOCUMENT,
        TRANSFER,
        PAUSED_WRITER,
    ] {
        let (_, help) = run(program(path, &["--help"]));
        for internal in ["--worker", "--database", "--first", "--way"] {
            assert!(!help.contains(internal), "{internal}: {help}");
        }
    }
}

#[test]
fn the_help_of_a_service_instance_names_its_options_and_its_route() {
    let (code, help) = run(program(REPORT_SERVICE, &["serve", "--help"]));
    assert_eq!(code, Some(0), "{help}");
    for word in [
        "--port",
        "--database",
        "--acquire-timeout",
        "--grace",
        "POST /reports/<id>",
    ] {
        assert!(help.contains(word), "{word}: {help}");
    }
    assert!(!help.contains("--instance"), "{help}");
}

/// `|` separates the arguments.
#[test]
fn a_wrong_option_is_refused_before_anything_starts() {
    for (path, arguments, message) in [
        (REPORT, "--processes=0", "1..=64"),
        (REPORT, "--calls=many", "invalid digit"),
        (REPORT, "--ids=0", "1..=10000"),
        (REPORT, "--hold=5 minutes", "such as `20ms`"),
        (REPORT_SERVICE, "serve|--port=70000", "0..=65535"),
        (REPORT_SERVICE, "serve|--acquire-timeout=soon", "such as `20ms`"),
        (REPORT_SERVICE, "serve|--grace=2h", "`m`"),
        (REPORT_SERVICE, "--keep-running|serve", "serve"),
        (REPORT_SERVICE, "serve|--keep-running", "--keep-running"),
        (QUEUE_WORKERS, "--processes=1", "2..=64"),
        (QUEUE_WORKERS, "--messages=19", "20..=5000"),
        (QUEUE_WORKERS, "--types=7", "2..=6"),
        (QUEUE_WORKERS, "--pause=soon", "such as `20ms`"),
        (QUEUE_WORKERS, "--expiry=99ms", "at least 100ms"),
        (QUEUE_WORKERS, "--kill|--without-lock", "cannot be used with"),
        (NIGHTLY_JOB, "--ticks=0", "1..=1000"),
        (NIGHTLY_JOB, "--schedule=daily", "such as `0 0 3 * * *`"),
        (NIGHTLY_JOB, "--schedule=0 0 3 30 2 *", "no such time"),
        (NIGHTLY_JOB, "--work=5h", "such as `20ms`"),
        (NIGHTLY_JOB, "--late=soon", "such as `20ms`"),
        (EDIT_DOCUMENT, "--worker=1", "--database"),
        (TRANSFER, "--processes=1", "2..=64"),
        (TRANSFER, "--transfers=none", "invalid digit"),
        (TRANSFER, "--accounts=21", "2..=20"),
        (TRANSFER, "--approval=5h", "such as `20ms`"),
        (PAUSED_WRITER, "--runs=0", "1..=10000"),
        (PAUSED_WRITER, "--expiry=5h", "such as `20ms`"),
        (PAUSED_WRITER, "--expiry=99ms", "at least 100ms"),
        (PAUSED_WRITER, "--expiry=61s", "at most 60s"),
    ] {
        let words: Vec<&str> = arguments.split('|').collect();
        let (code, printed) = run(program(path, &words));
        assert_eq!(code, Some(2), "{arguments}: {printed}");
        assert!(printed.contains(message), "{arguments}: {printed}");
        assert!(!printed.contains("Starting"), "{arguments}: {printed}");
    }
}
