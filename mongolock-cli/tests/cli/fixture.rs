//! Starts the program, and finds its processes.

use std::fs;
use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use mongodb::bson::doc;
use mongolock::{LockProvider, LockState};
use mongolock_tests::{AMPLE, BEFORE_EXPIRY, LentServer, TestDb, eventually, must, until};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

/// How often a condition is looked at.
const LOOK: Duration = Duration::from_millis(5);

/// The program with these arguments, on the locks of a test.
pub(crate) fn mongolock(db: &TestDb, arguments: &[&str]) -> Command {
    at(db.uri(), db, arguments)
}

/// The program with another connection string.
pub(crate) fn at(uri: &str, db: &TestDb, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mongolock"));
    command
        .args(["--database", db.name()])
        .args(arguments)
        .env("MONGODB_URI", uri)
        .stdin(Stdio::null());
    command
}

/// The output of a program that ends by itself.
pub(crate) fn output(mut command: Command) -> (Option<i32>, String, String) {
    let output = must(command.output());
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// Runs a program, which ends with this code and says these words. Returns all that it has printed and said.
#[track_caller]
pub(crate) fn ends(command: Command, wanted: i32, words: &str) -> String {
    let (code, out, said) = output(command);
    let all = format!("{out}{said}");
    assert_eq!(code, Some(wanted), "{all}");
    assert!(all.contains(words), "{words}: {all}");
    all
}

/// A provider on the locks of a test, of another process.
pub(crate) async fn provider(db: &TestDb) -> LockProvider {
    LockProvider::new(&must(db.connect_again().await))
}

/// The same with this owner.
pub(crate) async fn owner(db: &TestDb, name: &str) -> LockProvider {
    must(provider(db).await.to_builder().owner(name).build())
}

/// The state of a lock that was acquired.
pub(crate) async fn state(db: &TestDb, name: &str) -> LockState {
    let info = must(provider(db).await.admin().get(name).await);
    info.expect("it was acquired").state
}

/// A server whose user `anna` may do these things with the locks, and the connection string of that user.
pub(crate) async fn restricted(db: &TestDb, actions: &[&str]) -> (LentServer, String) {
    let server = must(LentServer::with_users().await);
    let app = must(server.client().await).database(db.name());
    let resource = doc! { "db": db.name(), "collection": "distributed_locks" };
    let role = doc! { "createRole": "reader", "roles": [],
    "privileges": [{ "resource": resource, "actions": actions }] };
    must(app.run_command(role).await);
    let user = doc! { "createUser": "anna", "pwd": "S3cr3t", "roles": ["reader"] };
    must(app.run_command(user).await);
    let address = server.node().address();
    let name = db.name();
    let uri = format!("mongodb://anna:S3cr3t@{address}/{name}?directConnection=true");
    (server, uri)
}

/// A program that runs. It is killed when the value is dropped.
pub(crate) struct Running {
    child: Child,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
        use std::os::unix::process::CommandExt;
        restore_default_signals();
        // What it sends to its own group must not hit the tests.
        let child = must(command.process_group(0).spawn());
        Self { child }
    }

    /// Starts a program that makes a session of its own, which the leader of a group cannot do.
    pub(crate) fn start_in_group_of_parent(mut command: Command) -> Self {
        restore_default_signals();
        let child = must(command.spawn());
        Self { child }
    }

    pub(crate) fn id(&self) -> i32 {
        must(i32::try_from(self.child.id()))
    }

    pub(crate) fn signal(&self, signal: Signal) {
        send(self.id(), signal);
    }

    /// Waits until it has ended.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        let child = &mut self.child;
        for _ in 0..AMPLE.as_millis() / LOOK.as_millis() {
            if let Some(status) = must(child.try_wait()) {
                return status;
            }
            sleep(LOOK).await;
        }
        panic!("the program has not ended within {AMPLE:?}");
    }

    /// The code that it has ended with.
    pub(crate) async fn code(&mut self) -> Option<i32> {
        self.ended().await.code()
    }

    /// What it has said on standard error, which must be a pipe. It waits for the end of the program.
    pub(crate) fn said(&mut self) -> String {
        let mut said = String::new();
        let mut error = self.child.stderr.take().expect("standard error is a pipe");
        must(error.read_to_string(&mut said));
        said
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        must(self.child.try_wait()).is_some()
    }

    /// Waits for the guardian of a `run`, which leads the group of its command.
    pub(crate) async fn guardian(&self) -> i32 {
        guardian_of(self.id()).await
    }
}

/// Gives the programs under test the default action of signals that these tests ignore themselves: a shell that runs the
/// tests in the background has them ignore SIGINT and SIGQUIT. A signal that is handled here has its default action in a
/// new program. It needs a runtime.
fn restore_default_signals() {
    let status = must(fs::read_to_string("/proc/self/status"));
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored
        .and_then(|set| u64::from_str_radix(set.trim(), 16).ok())
        .unwrap_or(0);
    for wanted in [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM] {
        if ignored & (1 << (wanted.as_raw() - 1)) != 0 {
            // The handler stays when the stream is dropped.
            drop(must(signal(SignalKind::from_raw(wanted.as_raw()))));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits for the guardian of the `run` with this id.
pub(crate) async fn guardian_of(run: i32) -> i32 {
    let found = eventually(AMPLE, "the guardian", || async move {
        processes().into_iter().find_map(|process| {
            let is_guardian = process.parent == run && process.group == process.id;
            is_guardian.then_some(process.id)
        })
    });
    must(found.await)
}

/// Sends a signal to a process, or to a group if the id is negative, unless it has ended.
pub(crate) fn send(id: i32, signal: Signal) {
    let pid = |id| Pid::from_raw(id).expect("it is the id of a process");
    let _ = if id < 0 {
        kill_process_group(pid(-id), signal)
    } else {
        kill_process(pid(id), signal)
    };
}

/// Whether a signal to a process has had no effect yet.
pub(crate) fn has_pending(id: i32, signal: Signal) -> bool {
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:"));
    let pending = pending.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    pending.unwrap_or(0) & (1 << (signal.as_raw() - 1)) != 0
}

/// A process of the machine.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) id: i32,
    pub(crate) state: String,
    pub(crate) parent: i32,
    pub(crate) group: i32,
}

/// The processes of the machine that are no zombies.
pub(crate) fn processes() -> Vec<Process> {
    let entries = must(fs::read_dir("/proc"));
    let stats = entries.filter_map(|entry| fs::read_to_string(entry.ok()?.path().join("stat")).ok());
    let all = stats.filter_map(|stat| {
        let (id, rest) = stat.split_once(" (")?;
        let fields: Vec<&str> = rest.rsplit_once(')')?.1.split_whitespace().collect();
        Some(Process {
            id: id.parse().ok()?,
            state: fields[0].to_owned(),
            parent: fields[1].parse().ok()?,
            group: fields[2].parse().ok()?,
        })
    });
    all.filter(|process| process.state != "Z").collect()
}

/// Stops a process, and waits until it has stopped.
pub(crate) async fn stop(id: i32) {
    send(id, Signal::STOP);
    until("the stop of the process", async || {
        let all = processes();
        all.iter().any(|process| process.id == id && process.state == "T")
    })
    .await;
}

/// Waits until no process of a group lives.
pub(crate) async fn until_empty(group: i32) {
    until("the end of the group", async || {
        let all = processes();
        all.iter().all(|process| process.group != group)
    })
    .await;
}

/// Asserts that lines of `--json` have no other fields than these.
#[track_caller]
pub(crate) fn assert_fields(lines: &[Value], known: &str) {
    let is_known = |field: &String| known.split(' ').any(|known| known == field);
    for line in lines {
        let fields = line.as_object().expect("it is an object");
        assert!(fields.keys().all(is_known), "{line}");
    }
}

/// How often a test of faults is repeated.
pub(crate) fn repetitions() -> usize {
    let set = std::env::var("MONGOLOCK_REPEAT").ok();
    set.map_or(1, |number| must(number.parse()))
}

/// Waits until so many processes wait for locks of this test: each reads a change stream until it has ended.
pub(crate) async fn until_waiting(db: &TestDb, number: usize) {
    let admin = must(db.without_stable_api().await).client().database("admin");
    let reading = doc! { "ns": format!("{}.distributed_locks", db.name()), "op": "getmore" };
    let pipeline = [doc! { "$currentOp": {} }, doc! { "$match": reading }];
    let command = doc! { "aggregate": 1, "pipeline": pipeline.to_vec(), "cursor": {} };
    let reached = || async {
        let reply = admin.run_command(command.clone()).await.ok()?;
        let found = reply.get_document("cursor").ok()?.get_array("firstBatch").ok()?;
        (found.len() == number).then_some(())
    };
    must(eventually(BEFORE_EXPIRY, "this number of processes that wait", reached).await);
}
