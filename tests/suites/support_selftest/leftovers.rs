//! No server and no directory is left behind, however the process ends.

use std::env;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mongolock_tests::{Actor, Server, ServerOptions, must, order, say, until};
use rustix::process::{Pid, Signal, test_kill_process};
use tokio::process::Command;

/// The variable with the number of members that [`holder`] starts.
const MEMBERS: &str = "MONGOLOCK_TESTS_MEMBERS";

#[tokio::test]
#[ignore = "the process that other tests kill"]
async fn holder() {
    let options = match env::var(MEMBERS).as_deref() {
        Ok("3") => ServerOptions::three_members(),
        _ => ServerOptions::single(),
    };
    let server = must(Server::start(options).await);
    for node in server.nodes() {
        say(format_args!(
            "{} {}",
            node.pid().unwrap_or_default(),
            node.directory().display()
        ));
    }
    say("ready");
    order().await;
}

fn start_holder(members: usize, temporary: &Path) -> Actor {
    let mut command = Command::new(must(env::current_exe()));
    command.args(["leftovers::holder", "--exact", "--ignored", "--nocapture"]);
    command.env(MEMBERS, members.to_string()).env("TMPDIR", temporary);
    Actor::start(command)
}

fn exists(pid: u32) -> bool {
    let pid = Pid::from_raw(pid.cast_signed());
    pid.is_some_and(|pid| test_kill_process(pid).is_ok())
}

#[tokio::test]
async fn a_killed_process_leaves_nothing() {
    let mut holder = start_holder(3, &env::temp_dir());
    let mut nodes: Vec<(u32, PathBuf)> = Vec::new();
    loop {
        let (pid, directory) = holder.next().await;
        if pid == "ready" {
            break;
        }
        nodes.push((must(pid.parse()), PathBuf::from(directory)));
    }
    assert_eq!(nodes.len(), 3);
    let all = |is: fn(&(u32, PathBuf)) -> bool| nodes.iter().all(is);
    assert!(all(|(pid, directory)| exists(*pid) && directory.is_dir()));
    holder.signal(Signal::KILL);
    holder.end().await;
    until("all servers and directories gone", async || {
        all(|(pid, directory)| !exists(*pid) && !directory.exists())
    })
    .await;
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

#[tokio::test]
async fn a_process_killed_while_it_starts_a_server_leaves_nothing() {
    for milliseconds in [5, 15, 30, 60, 120, 200] {
        let place = must(tempfile::tempdir());
        let mut holder = start_holder(3, place.path());
        tokio::time::sleep(Duration::from_millis(milliseconds)).await;
        holder.signal(Signal::KILL);
        holder.end().await;
        let named = place.path().to_string_lossy();
        until("all processes of the server gone", async || {
            let listing = Command::new("ps").args(["-A", "-ww", "-o", "args"]).output();
            let listing = must(listing.await).stdout;
            !String::from_utf8_lossy(&listing).contains(&*named)
        })
        .await;
        assert_eq!(must(place.path().read_dir()).count(), 0);
    }
}
