//! `top` at a terminal.

use std::fs;
use std::time::Duration;

use mongolock::LockProvider;
use mongolock_tests::{TestDb, must, test_db};
use rustix::process::Signal;

use crate::fixture::{mongolock, output, provider, send};
use crate::records::Records;
use crate::terminal::Terminal;

/// The first line of the screen that is a row.
const FIRST_ROW: usize = 3;

const TOP: &str = r#""$ML" --database "$DB" top"#;

/// What shows that the shell has the terminal as it was: letters are shown, and lines are sent as a whole.
const MODE: &str =
    r"echo code $?; stty -a | tr ' ;' '\n\n' | grep -x -E -e '-?(icanon|echo)' | tr '\n' ' '; echo end";

async fn owned_by(db: &TestDb, owner: &str) -> LockProvider {
    must(provider(db).await.to_builder().owner(owner).build())
}

fn row(lines: &[&str], number: usize) -> Vec<String> {
    let line = lines.get(FIRST_ROW + number).copied().unwrap_or_default();
    line.split_whitespace().map(str::to_owned).collect()
}

fn summary<'a>(lines: &[&'a str]) -> &'a str {
    lines.first().copied().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_locks_are_sorted_and_filtered_and_the_terminal_is_given_back() {
    let db = test_db().await;
    let (anna, bert) = (owned_by(&db, "anna").await, owned_by(&db, "bert").await);
    let report = must(anna.lock("report:42\u{202e}").acquire().await);
    // The ages differ by more than the clock's precision.
    tokio::time::sleep(Duration::from_millis(20)).await;
    let deploy = must(anna.lock("deploy:web").acquire().await);
    let waiting = bert.lock("deploy:web").acquire_timeout(None);
    let waiting = tokio::spawn(async move { waiting.acquire().await });

    let mut terminal = Terminal::run(&db, &format!("{TOP}; {MODE}"));
    let lines = terminal.until_screen(|lines| summary(lines) == "mongolock: 2 held, 1 waiting; by waiters");
    assert!(terminal.is_alternate());
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let first = row(&lines, 0);
    assert_eq!((first[0].as_str(), first[1].as_str()), ("deploy:web", "anna"));
    assert_eq!(first[4..], ["1:", "bert"]);
    let second = row(&lines, 1);
    assert_eq!(second[0], r"report:42\u{202e}", "names are escaped");
    assert_eq!(second[4..], ["-"]);

    terminal.type_in("s");
    terminal.until_screen(|lines| {
        summary(lines).ends_with("by age") && row(lines, 0)[0].starts_with("report:42")
    });
    terminal.type_in("r");
    terminal.until_screen(|lines| {
        summary(lines).ends_with("by age, reversed") && row(lines, 0)[0] == "deploy:web"
    });
    terminal.type_in("/REPORT");
    terminal.until_screen(|lines| {
        summary(lines).contains("1 of 2 held")
            && row(lines, 1).is_empty()
            && lines.contains(&"filter: REPORT_")
    });
    // It is live.
    must(report.release().await);
    terminal.until_screen(|lines| summary(lines).contains("0 of 1 held"));
    terminal.type_in("\x1b");
    must(deploy.release().await);
    let held = must(must(waiting.await));
    terminal.until_screen(|lines| {
        summary(lines).contains("1 held, 0 waiting")
            && row(lines, 0).get(1).is_some_and(|holder| holder == "bert")
    });
    must(held.release().await);

    terminal.type_in("q");
    terminal.until("code 0");
    terminal.until("icanon echo end");
    assert!(!terminal.is_alternate());
    assert_eq!(terminal.shell.code().await, Some(0));
}

#[tokio::test]
async fn a_signal_gives_the_terminal_back() {
    let db = test_db().await;
    let records = Records::new();
    let file = records.file("pid");
    let script = format!("sh -c 'echo $$ >{}; exec {TOP}'; {MODE}", file.display());
    for (signal, code) in [(Signal::TERM, "code 143"), (Signal::INT, "code 130")] {
        let mut terminal = Terminal::run(&db, &script);
        terminal.until_screen(|lines| summary(lines).starts_with("mongolock: 0 held"));
        let id = must(fs::read_to_string(&file));
        send(must(id.trim().parse()), signal);
        terminal.until(code);
        terminal.until("icanon echo end");
        assert!(!terminal.is_alternate());
    }
}

/// A name that is too long for its column is cut in the middle, and Enter shows all of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn enter_shows_all_of_a_lock() {
    let db = test_db().await;
    let anna = owned_by(&db, "anna").await;
    let long = format!("b:{}:42", "x".repeat(120));
    let (short, held) = (
        must(anna.lock("a").acquire().await),
        must(anna.lock(&long).acquire().await),
    );
    let mut terminal = Terminal::run(&db, &format!("{TOP} --sort name"));
    let lines = terminal.until_screen(|lines| summary(lines).contains("2 held"));
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    assert_eq!(row(&lines, 0)[..2], ["a", "anna"]);
    let shown = &row(&lines, 1)[0];
    assert!(
        shown.starts_with("b:xx") && shown.contains('\u{2026}') && shown.ends_with("xx:42"),
        "{shown}"
    );
    assert_eq!(row(&lines, 1)[1], "anna");

    terminal.type_in("\x1b[B\r");
    let token = held.fencing_token().to_string();
    let is_shown = |lines: &[&str]| {
        let all = lines.concat();
        all.contains(&long) && all.contains("holder     anna") && all.contains(&token)
    };
    terminal.until_screen(is_shown);
    must(held.release().await);
    terminal.until_screen(|lines| lines.contains(&"no longer held; it was:"));
    terminal.type_in("\r");
    terminal.until_screen(|lines| {
        summary(lines).contains("1 held") && row(lines, 0).first().is_some_and(|name| name == "a")
    });
    must(short.release().await);
    terminal.type_in("q");
    assert_eq!(terminal.shell.code().await, Some(0));
}

/// No process renews it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_detached_lease_is_marked() {
    let db = test_db().await;
    let anna = owned_by(&db, "anna").await;
    let _renewed = must(anna.lock("b").acquire().await);
    must(
        must(anna.lock("a").acquire().await)
            .detach(Duration::from_secs(60 * 60))
            .await,
    );
    let mut terminal = Terminal::run(&db, &format!("{TOP} --sort name"));
    let lines = terminal.until_screen(|lines| summary(lines).contains("2 held"));
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    assert_eq!(row(&lines, 0)[1..3], ["anna", "(detached)"]);
    assert!(!row(&lines, 1).contains(&"(detached)".to_owned()));
    terminal.type_in("\r");
    terminal.until_screen(|lines| lines.concat().contains("detached   yes, no process renews it"));
    terminal.type_in("q");
    assert_eq!(terminal.shell.code().await, Some(0));
}

/// Old rows must not pass for new ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_read_is_said() {
    let db = test_db().await;
    let held = must(owned_by(&db, "anna").await.lock("a").acquire().await);
    let proxy = must(db.proxy().await);
    let mut terminal = Terminal::run_at(&db, &proxy.uri(), TOP);
    terminal.until_screen(|lines| summary(lines).contains("1 held"));
    proxy.freeze();
    terminal.until_screen(|lines| lines[1].starts_with("read ") && row(lines, 0)[0] == "a");
    proxy.thaw();
    terminal.until_screen(|lines| lines[1].is_empty());
    must(held.release().await);
    terminal.type_in("q");
    assert_eq!(terminal.shell.code().await, Some(0));
}

#[tokio::test]
async fn it_needs_a_terminal() {
    let db = test_db().await;
    let (code, out, said) = output(mongolock(&db, &["top"]));
    assert_eq!((code, out.as_str()), (Some(125), ""));
    assert!(
        said.contains("needs a terminal") && said.contains("mongolock ls"),
        "{said}"
    );
}
