//! No server and no directory is left behind, however the process ends.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use mongolock_tests::{AMPLE, Server, ServerOptions, eventually, must};
use rustix::process::{Pid, test_kill_process};

fn exists(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| test_kill_process(pid).is_ok())
}

async fn gone(pid: u32, directory: PathBuf) {
    let what = format!("process {pid} and {} gone", directory.display());
    let gone = || async { (!exists(pid) && !directory.exists()).then_some(()) };
    must(eventually(AMPLE, &what, gone).await);
}

/// Runs `holder` until it is ready and kills it with SIGKILL. Returns the process ids and directories of its servers.
fn kill_a_holder(kind: &str) -> Vec<(u32, PathBuf)> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_holder"));
    command
        .arg(kind)
        .env_remove("MONGODB_URI")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut holder = must(command.spawn());
    let output = BufReader::new(holder.stdout.take().expect("the output is piped"));
    let lines = output
        .lines()
        .map_while(Result::ok)
        .take_while(|line| line != "ready");
    let nodes: Vec<_> = lines
        .filter_map(|line| {
            let (pid, directory) = line.split_once(' ')?;
            Some((pid.parse().ok()?, PathBuf::from(directory)))
        })
        .collect();
    assert!(
        nodes
            .iter()
            .all(|(pid, directory)| exists(*pid) && directory.is_dir())
    );
    must(holder.kill());
    must(holder.wait());
    nodes
}

#[tokio::test]
async fn a_killed_process_leaves_nothing() {
    for (kind, expected) in [("single", 1), ("three", 3)] {
        let nodes = kill_a_holder(kind);
        assert_eq!(nodes.len(), expected);
        for (pid, directory) in nodes {
            gone(pid, directory).await;
        }
    }
}

#[tokio::test]
async fn dropping_waits_until_everything_is_gone_also_of_a_stopped_or_killed_server() {
    for state in ["running", "stopped", "killed"] {
        let server = must(Server::start(ServerOptions::standalone()).await);
        let node = server.node();
        let (pid, directory) = (node.pid().unwrap_or_default(), node.directory().to_owned());
        assert!(exists(pid) && directory.is_dir());
        match state {
            "stopped" => must(node.stop()),
            "killed" => must(node.kill().await),
            _ => {}
        }
        drop(server);
        assert!(!exists(pid) && !directory.exists(), "{state}");
    }
}

/// Waits until no process has `text` on its command line.
async fn no_process_names(text: &str) {
    let processes = || async {
        let listing = must(Command::new("ps").args(["-A", "-ww", "-o", "args"]).output());
        (!String::from_utf8_lossy(&listing.stdout).contains(text)).then_some(())
    };
    must(eventually(AMPLE, "all processes of the server gone", processes).await);
}

#[tokio::test]
async fn a_process_killed_while_it_starts_a_server_leaves_nothing() {
    for milliseconds in [5, 15, 30, 60, 120, 200] {
        let place = must(tempfile::tempdir());
        let mut command = Command::new(env!("CARGO_BIN_EXE_holder"));
        command
            .arg("three")
            .env("TMPDIR", place.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null());
        let mut holder = must(command.spawn());
        tokio::time::sleep(Duration::from_millis(milliseconds)).await;
        must(holder.kill());
        must(holder.wait());
        no_process_names(&place.path().to_string_lossy()).await;
        assert_eq!(must(place.path().read_dir()).count(), 0);
    }
}

#[tokio::test]
async fn a_start_that_is_given_up_leaves_nothing() {
    let starting = Server::start(ServerOptions::single().parameter("ttlMonitorSleepSecs", "77"));
    assert!(
        tokio::time::timeout(Duration::from_millis(60), starting)
            .await
            .is_err()
    );
    no_process_names("ttlMonitorSleepSecs=77").await;
}
