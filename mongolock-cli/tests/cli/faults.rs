//! `run` when processes are killed or stopped, or the network is cut: no two commands of one name are alive at once.
//!
//! The second command waits for the lease of the first one in most of these cases, so those of a test run at the same time.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use mongolock_tests::{AMPLE, BEFORE_EXPIRY, TestDb, eventually, must, test_db};
use rustix::process::Signal;
use tokio::time::sleep;

use crate::fixture::{
    Process, Running, at, guardian_of, has_pending, mongolock, output, processes, repetitions, send, stop,
    until_empty,
};
use crate::records::Records;

/// The command whose end is tested: it records for ever.
const ENDLESS: &str = "recording -1";

/// A command that notices it if another one is alive.
const SHORT: &str = "recording 5";

/// A lock, and the two commands that want it.
struct Scene {
    db: TestDb,
    records: Records,
}

impl Scene {
    async fn new() -> Self {
        Self {
            db: test_db().await,
            records: Records::new(),
        }
    }

    /// A `run` of this script, with the shortest expiry.
    fn run(&self, uri: &str, options: &[&str], body: &str) -> Command {
        self.run_under(&[], uri, options, body)
    }

    /// The same with other programs between `run` and the shell.
    fn run_under(&self, around: &[&str], uri: &str, options: &[&str], body: &str) -> Command {
        let script = self.records.script(body);
        let (run, shell) = (["run", "job", "--expiry", "5s"], ["sh", "-c", &script]);
        let arguments = [&run, options, &["--"], around, &shell].concat();
        let mut command = at(uri, &self.db, &arguments);
        command.stderr(Stdio::null());
        command
    }

    /// Starts the first command, and waits until it records.
    async fn first(&self, body: &str) -> Running {
        self.started(self.run(self.db.uri(), &[], body)).await
    }

    /// The same with other programs around `run`.
    async fn first_under(&self, around: &[&str], body: &str) -> Running {
        let run = self.run(self.db.uri(), &[], body);
        let mut command = Command::new(around[0]);
        command.args(&around[1..]);
        command.arg(run.get_program()).args(run.get_args());
        command.envs(run.get_envs().filter_map(|(key, value)| Some((key, value?))));
        self.started(command).await
    }

    async fn started(&self, command: Command) -> Running {
        let running = Running::start(command);
        self.records.until_begun(0).await;
        running
    }

    /// Runs the second command, which waits for the first one, and judges the records of both.
    async fn second_follows(&self) {
        let mut second = Running::start(self.run(self.db.uri(), &["--wait", "50s"], SHORT));
        assert_eq!(second.code().await, Some(0));
        self.records.assert_one_at_a_time(2);
    }
}

#[tokio::test]
async fn run_is_killed() {
    for _ in 0..repetitions() {
        tokio::join!(
            run_is_killed_alone(),
            both_are_killed(),
            timeout_kills_run(),
            the_outer_one_of_two_runs_is_killed(),
            run_is_killed_in_a_pipeline(),
        );
    }
}

async fn run_is_killed_alone() {
    let scene = Scene::new().await;
    let first = scene.first(ENDLESS).await;
    let guardian = first.guardian().await;
    first.signal(Signal::KILL);
    scene.second_follows().await;
    until_empty(guardian).await;
}

/// The command ends together with `run`, without the guardian.
async fn both_are_killed() {
    let scene = Scene::new().await;
    let first = scene.first(ENDLESS).await;
    let guardian = first.guardian().await;
    send(guardian, Signal::STOP);
    first.signal(Signal::KILL);
    send(guardian, Signal::KILL);
    scene.second_follows().await;
}

async fn timeout_kills_run() {
    let scene = Scene::new().await;
    // The command must have begun before, on a slow machine too.
    let _first = scene.first_under(&["timeout", "-s", "KILL", "6"], ENDLESS).await;
    scene.second_follows().await;
}

async fn the_outer_one_of_two_runs_is_killed() {
    let scene = Scene::new().await;
    let program = [env!("CARGO_BIN_EXE_mongolock"), "--database", scene.db.name()];
    let outer = ["run", "outer", "--expiry", "5s", "--"];
    let around = [&program[..], &outer[..]].concat();
    let first = scene.first_under(&around, ENDLESS).await;
    let guardian = first.guardian().await;
    first.signal(Signal::KILL);
    scene.second_follows().await;
    until_empty(guardian).await;
}

/// The rest of a pipeline sees the end of its input at once, so that no process that lives on has the output.
async fn run_is_killed_in_a_pipeline() {
    let scene = Scene::new().await;
    let ended = scene.records.file("ended");
    let pipeline = "echo $$; { exec \"$@\"; } | cat; echo ended >\"$0\"";
    let around = ["sh", "-c", pipeline, must(ended.to_str().ok_or("a path"))];
    let first = scene.first_under(&around, ENDLESS).await;
    let shell = first.id();
    let run = eventually(BEFORE_EXPIRY, "the program in the pipeline", || async move {
        let all = processes();
        let mut leaders = all.iter().filter(|other| other.group == other.id);
        let is_run = |leader: &&Process| {
            all.iter()
                .any(|run| run.id == leader.parent && run.parent == shell)
        };
        leaders.find(is_run).map(|guardian| guardian.parent)
    });
    send(must(run.await), Signal::KILL);
    let has_ended = || async { ended.exists().then_some(()) };
    must(eventually(Duration::from_secs(4), "the end of the pipeline", has_ended).await);
    scene.second_follows().await;
}

/// The guardian lives, and the command may live or not.
#[tokio::test]
async fn run_is_killed_between_its_spawns() {
    for pause in 0..repetitions().max(5) {
        let scene = Scene::new().await;
        let first = Running::start(scene.run(scene.db.uri(), &[], ENDLESS));
        let guardian = first.guardian().await;
        sleep(Duration::from_millis(must(u64::try_from(pause % 10)))).await;
        first.signal(Signal::KILL);
        let begun = Instant::now();
        until_empty(guardian).await;
        let took = begun.elapsed();
        // The end of the lease is not waited for.
        assert!(took < BEFORE_EXPIRY, "{took:?}");
    }
}

/// The guardian has ended by itself when `run` goes on, so nobody else would end the command.
#[tokio::test]
async fn run_is_stopped_between_its_spawns() {
    for _ in 0..repetitions() {
        let (scene, mut first) = stopped_before_its_command().await;
        let mut second = Running::start(scene.run(scene.db.uri(), &["--wait", "50s"], SHORT));
        assert_eq!(second.code().await, Some(0));
        first.signal(Signal::CONT);
        assert_eq!(first.code().await, Some(124));
        scene.records.assert_one_at_a_time(1);
    }
}

/// A `run` that was stopped after it has started its guardian, and before it starts its command.
async fn stopped_before_its_command() -> (Scene, Running) {
    for _ in 0..20 {
        let scene = Scene::new().await;
        let first = Running::start(scene.run(scene.db.uri(), &[], ENDLESS));
        until_child(first.id());
        stop(first.id()).await;
        if count_of_group(first.guardian().await) == 1 {
            return (scene, first);
        }
    }
    panic!("the command was faster each time");
}

/// Waits until the main thread of a process has a child, without a pause: the guardian needs a few milliseconds to start, and
/// then `run` starts its command.
fn until_child(id: i32) {
    let children = format!("/proc/{id}/task/{id}/children");
    let begun = Instant::now();
    while fs::read_to_string(&children).unwrap_or_default().is_empty() {
        assert!(begun.elapsed() < AMPLE, "`run` starts no guardian");
    }
}

fn count_of_group(group: i32) -> usize {
    let all = processes().into_iter();
    all.filter(|process| process.group == group).count()
}

/// The stub that becomes the command is in the group too late for the guardian.
#[tokio::test]
async fn a_command_does_not_start_after_its_limit() {
    let db = test_db().await;
    let start = |kill_at: &str| {
        let parent = std::process::id().to_string();
        let arguments = ["exec-command", &parent, kill_at, "--", "echo", "started"];
        output(mongolock(&db, &arguments))
    };
    let (code, out, said) = start("1");
    assert_eq!((code, out.as_str()), (Some(124), ""));
    assert!(said.contains("the lock has ended"), "{said}");
    let (code, out, _) = start(&u64::MAX.to_string());
    assert_eq!((code, out.as_str()), (Some(0), "started\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_is_stopped() {
    for _ in 0..repetitions() {
        tokio::join!(
            run_is_stopped_with("recording -1"),
            // The command ignores SIGTERM.
            run_is_stopped_with("trap '' TERM; recording -1"),
            a_stopped_command_gets_its_signals(),
            a_stopped_guardian_is_continued(),
            both_are_stopped_until(true),
            both_are_stopped_until(false),
            the_network_is_cut(),
        );
    }
}

async fn run_is_stopped_with(body: &'static str) {
    let scene = Scene::new().await;
    let mut first = scene.first(body).await;
    first.signal(Signal::STOP);
    scene.second_follows().await;
    first.signal(Signal::CONT);
    assert_eq!(first.code().await, Some(124));
}

/// A stopped command must be continued to end.
async fn a_stopped_command_gets_its_signals() {
    let scene = Scene::new().await;
    let ended = scene.records.file("ended");
    let trap = format!("trap 'echo >{}; exit' TERM", ended.display());
    let body = format!("record; {trap}; kill -STOP $$; recording -1");
    let mut first = scene.first(&body).await;
    first.signal(Signal::STOP);
    scene.second_follows().await;
    assert!(ended.exists(), "SIGTERM comes before SIGKILL");
    first.signal(Signal::CONT);
    assert_eq!(first.code().await, Some(124));
}

async fn a_stopped_guardian_is_continued() {
    let scene = Scene::new().await;
    let mut first = scene.first(ENDLESS).await;
    let guardian = first.guardian().await;
    send(guardian, Signal::STOP);
    let continued = eventually(BEFORE_EXPIRY, "the guardian to go on", || async move {
        // A stop that is still pending would come after this look.
        let has_stopped = !has_pending(guardian, Signal::STOP);
        let all = processes();
        let guardian = all.iter().find(|process| process.id == guardian)?;
        (has_stopped && guardian.state != "T").then_some(())
    });
    must(continued.await);
    assert!(!first.has_ended());
    first.signal(Signal::STOP);
    scene.second_follows().await;
    first.signal(Signal::CONT);
    assert_eq!(first.code().await, Some(124));
}

/// Nobody is left who could end the command in time, as the help says. The first of the two that continues does it at once.
async fn both_are_stopped_until(guardian_continues: bool) {
    let scene = Scene::new().await;
    let mut first = scene.first(ENDLESS).await;
    let guardian = first.guardian().await;
    // `run` would continue the guardian, so it is stopped first.
    stop(first.id()).await;
    stop(guardian).await;
    let mut second = Running::start(scene.run(scene.db.uri(), &["--wait", "50s"], SHORT));
    assert_eq!(second.code().await, Some(0), "the lease has expired");
    assert!(count_of_group(guardian) > 1, "the command lives");
    if guardian_continues {
        send(guardian, Signal::CONT);
    } else {
        first.signal(Signal::CONT);
    }
    until_empty(guardian).await;
    first.signal(Signal::CONT);
    assert_eq!(first.code().await, Some(124));
}

async fn the_network_is_cut() {
    let scene = Scene::new().await;
    let proxy = must(scene.db.proxy().await);
    let mut first = scene.started(scene.run(&proxy.uri(), &[], ENDLESS)).await;
    proxy.freeze();
    scene.second_follows().await;
    assert_eq!(first.code().await, Some(124));
}

#[tokio::test]
async fn the_guardian_is_killed() {
    for _ in 0..repetitions() {
        tokio::join!(
            the_guardian_is_killed_under(&[]),
            // A command that has made a group of its own is killed by `run`, with its children.
            the_guardian_is_killed_under(&["timeout", "60"]),
        );
    }
}

async fn the_guardian_is_killed_under(around: &[&str]) {
    let scene = Scene::new().await;
    let run = scene.run_under(around, scene.db.uri(), &[], ENDLESS);
    let mut first = scene.started(run).await;
    send(first.guardian().await, Signal::KILL);
    scene.second_follows().await;
    assert_eq!(first.code().await, Some(125));
}

/// The child would outlive the command by far.
#[tokio::test]
async fn a_child_of_the_command_is_left() {
    for _ in 0..repetitions() {
        let scene = Scene::new().await;
        let body = "(trap '' TERM; recording -1) & sleep 0.2; exit 3";
        let mut first = scene.first(body).await;
        scene.second_follows().await;
        assert_eq!(first.code().await, Some(3));
    }
}

#[tokio::test]
async fn a_hang_up_is_ignored_under_nohup() {
    for _ in 0..repetitions() {
        let scene = Scene::new().await;
        let nohup = ["sh", "-c", "trap '' HUP; exec \"$@\"", "nohup"];
        let mut first = scene.first_under(&nohup, "recording 50; exit 7").await;
        let guardian = guardian_of(first.id()).await;
        first.signal(Signal::HUP);
        send(-guardian, Signal::HUP);
        scene.second_follows().await;
        assert_eq!(first.code().await, Some(7), "the command has ended by itself");
    }
}
