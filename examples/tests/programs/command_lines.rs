//! The command lines of all programs: the help names the options of a user, and a wrong option is refused with what to
//! write instead.

use mongolock_tests::must;

use crate::programs::run::{program, text};

/// The words of the help.
const HELP: &str = "
report         | --processes --calls --ids --hold --without-lock
report_service | Usage: report_service
queue_workers  | --without-lock
nightly_job    | --without-lock
edit_document  | Usage: edit_document
transfer       | --processes --transfers --accounts --approval --without-guard
paused_writer  | --expiry";

/// A wrong option, and a part of the message.
const WRONG: &str = "
report         | --processes=0     | 1..=64
report         | --calls=many      | invalid digit
report         | --ids=0           | 1..=10000
report         | --hold=20ms       | invalid digit
report_service | serve             | unexpected argument
queue_workers  | --kill            | unexpected argument
nightly_job    | --first=soon      | invalid digit
edit_document  | --worker=1        | --database
transfer       | --processes=1     | 2..=64
transfer       | --transfers=none  | invalid digit
transfer       | --accounts=21     | 2..=20
transfer       | --approval=9000000 | 0..=3600000
paused_writer  | --expiry=99       | 100..=60000";

/// Runs the program of a row, and returns what it prints.
fn run(row: &str, arguments: &str, code: i32) -> String {
    let name = row.split('|').next().unwrap_or_default().trim();
    let output = must(program(&format!("{name} {arguments}")).output());
    let printed = text(&output);
    assert_eq!(output.status.code(), Some(code), "{row}: {printed}");
    printed
}

#[test]
fn the_help_names_the_options_of_a_user_and_no_others() {
    for row in HELP.trim().lines() {
        let help = run(row, "--help", 0);
        let words = row.split(' ').filter(|word| word.starts_with("--"));
        for word in words.chain(["Usage: ", "MONGODB_URI", "Exit status"]) {
            assert!(help.contains(word), "{word}: {help}");
        }
        for internal in ["--worker", "--database", "--first", "--way", "--directory"] {
            assert!(!help.contains(internal), "{internal}: {help}");
        }
    }
}

#[test]
fn a_wrong_option_is_refused_before_anything_starts() {
    for row in WRONG.trim().lines() {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let printed = run(row, cells[1], 2);
        let is_refused = printed.contains(cells[2]) && !printed.contains("Starting");
        assert!(is_refused, "{row}: {printed}");
    }
}
