//! The previous version of the library, which knows of no line, among processes of this one.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mongolock_tests::{AMPLE, TestDb, test_db};
use tokio::process::Command;
use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout};

use crate::LONG_EXPIRY;
use crate::actor::{Actor, Part, database_of};
use crate::patient;
use crate::worker;

/// The last commit before processes waited in line.
const PREVIOUS: &str = "ac8eb0208659f1ada36fb5309f7030afb960ea8c";

/// The program that runs the tasks of `worker.rs` with the previous version; it ends with its standard input.
const PROGRAM: &str = r#"//! Runs the tasks of a worker.
mod worker;

#[tokio::main]
async fn main() {
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(0);
    });
    let of = |name: &str| std::env::var(name).unwrap();
    let client = mongodb::Client::with_uri_str(of("MONGOLOCK_ACTOR_URI")).await.unwrap();
    let database = client.database(&of("MONGOLOCK_ACTOR_DATABASE"));
    let provider = mongolock::LockProvider::new(&database);
    worker::work(provider, database, 4).await;
}
"#;

/// The number of tasks of each process.
const TASKS: usize = 4;

/// The number of turns that each task must have.
const TURNS: usize = 3;

/// The target directory of the build that runs, and the folder of its profile.
fn target() -> (PathBuf, String) {
    let this = std::env::current_exe().unwrap();
    let profile = this.ancestors().nth(2).unwrap();
    let name = profile.file_name().unwrap().to_string_lossy().into_owned();
    (profile.parent().unwrap().to_owned(), name)
}

/// Writes the sources of the previous version below the target directory; `None` without the history of the repository.
async fn sources(target: &Path) -> Option<PathBuf> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let sources = target.join("previous");
    fs::create_dir_all(&sources).unwrap();
    let archive = sources.join("archive.tar");
    let mut git = Command::new("git");
    git.arg("-C").arg(&repository).args(["archive", "--output"]);
    let archived = git.arg(&archive).arg(PREVIOUS).output().await;
    if !archived.is_ok_and(|output| output.status.success()) {
        return None;
    }
    let mut tar = Command::new("tar");
    // The times of the archive are those of the commit, so that an unchanged file is not compiled again.
    let unpacked = tar
        .arg("-xf")
        .arg(&archive)
        .arg("-C")
        .arg(&sources)
        .status()
        .await;
    assert!(unpacked.unwrap().success());
    // The dependencies are those of this build: they are there, and compiled.
    fs::copy(repository.join("Cargo.lock"), sources.join("Cargo.lock")).unwrap();
    // Cargo tells packages apart by name and version: with the same version its files would replace those of this build.
    change(&sources.join("Cargo.toml"), |text| {
        text.replacen("\nversion = \"0.1.0\"", "\nversion = \"0.0.1\"", 1)
            .replace("\"=0.1.0\"", "\"=0.0.1\"")
    });
    let target = "[[test]]\nname = \"previous_worker\"\npath = \"previous/main.rs\"\nharness = false\n";
    change(&sources.join("tests/Cargo.toml"), |text| {
        text.replace("autotests = false", "autotests = false\nautobins = false") + "\n" + target
    });
    let folder = sources.join("tests/previous");
    fs::create_dir_all(&folder).unwrap();
    write_if_new(&folder.join("main.rs"), PROGRAM);
    write_if_new(&folder.join("worker.rs"), include_str!("worker.rs"));
    Some(sources)
}

fn change(file: &Path, by: impl FnOnce(String) -> String) {
    let before = fs::read_to_string(file).unwrap();
    let after = by(before.clone());
    assert_ne!(before, after, "{}", file.display());
    fs::write(file, after).unwrap();
}

fn write_if_new(file: &Path, text: &str) {
    if fs::read_to_string(file).ok().as_deref() != Some(text) {
        fs::write(file, text).unwrap();
    }
}

/// Builds the program in the target directory of this build, so that only the library itself is compiled again: the
/// driver is there with the same features if the same packages are selected. The examples are the only ones that use
/// this crate, so it tells whether the whole workspace was built.
async fn program(target: &Path, profile: &str, sources: &Path) -> PathBuf {
    let has_examples = fs::read_dir(target.join(profile).join("deps"))
        .unwrap()
        .any(|file| {
            file.unwrap()
                .file_name()
                .to_string_lossy()
                .starts_with("libreqwest-")
        });
    let selected: &[&str] = if has_examples {
        &["--workspace"]
    } else {
        &["-p", "mongolock-tests"]
    };
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(sources).arg("test").args(selected);
    cargo.args(["--test", "previous_worker", "--no-run", "--offline"]);
    cargo
        .args(["--message-format", "json", "--target-dir"])
        .arg(target);
    // Some build scripts run again when these change, and the driver would be compiled again after them.
    for (name, _) in std::env::vars_os() {
        let of_this_package = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_CRATE_NAME", "CARGO_BIN_"];
        if of_this_package
            .iter()
            .any(|prefix| name.to_string_lossy().starts_with(prefix))
        {
            cargo.env_remove(name);
        }
    }
    if profile == "release" {
        cargo.arg("--release");
    }
    let built = cargo.output().await.unwrap();
    let errors = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "{errors}");
    let messages = String::from_utf8_lossy(&built.stdout).into_owned();
    let program = messages
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["target"]["name"] == "previous_worker")
        .find_map(|message| message["executable"].as_str().map(PathBuf::from));
    program.expect("cargo names the program")
}

/// The program, which all tests of a run share; `None` without the history of the repository.
async fn built() -> Option<&'static PathBuf> {
    static PROGRAM: OnceCell<Option<PathBuf>> = OnceCell::const_new();
    let building = async || {
        let (target, profile) = target();
        let Some(sources) = sources(&target).await else {
            println!("skipped: the previous version is not in the history of this repository");
            return None;
        };
        let begun = Instant::now();
        let program = program(&target, &profile, &sources).await;
        println!("built in {:?}", begun.elapsed());
        Some(program)
    };
    PROGRAM.get_or_init(building).await.as_ref()
}

/// A part of a process of this version, and not a test.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn take_turns() {
    if let Some(Part { database, .. }) = Part::given().await {
        worker::work(patient(&database), database, TASKS).await;
    }
}

/// The turns of one process, as far as its lines tell.
struct Worker {
    actor: Actor,
    turns: [usize; TASKS],
    tokens: HashSet<i64>,
    longest: Duration,
}

impl Worker {
    fn new(actor: Actor) -> Self {
        Self {
            actor,
            turns: [0; TASKS],
            tokens: HashSet::new(),
            longest: Duration::ZERO,
        }
    }

    /// Reads lines until each task has had its turns.
    async fn until_served(&mut self) {
        while self.turns.iter().any(|turns| *turns < TURNS) {
            let (word, rest) = self.actor.next().await;
            assert_eq!(word, "turn", "{rest}");
            let values: Vec<i64> = rest.split(' ').map(|value| value.parse().unwrap()).collect();
            self.turns[usize::try_from(values[0]).unwrap()] += 1;
            assert!(self.tokens.insert(values[1]), "token {} is used twice", values[1]);
            let waited = Duration::from_millis(values[2].unsigned_abs());
            self.longest = self.longest.max(waited);
        }
    }
}

fn previous(program: &Path, db: &TestDb) -> Worker {
    let mut command = Command::new(program);
    command.envs(database_of(db)).kill_on_drop(true);
    Worker::new(Actor::spawn(command))
}

/// Nobody is forgotten and nobody is together with another one, whichever version a process has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_of_the_previous_version_takes_part() {
    let Some(program) = built().await else { return };
    let db = test_db().await;
    worker::prepare(db.database()).await;
    let mut workers = vec![previous(program, &db)];
    for _ in 0..3 {
        let part = "previous_version::take_turns";
        workers.push(Worker::new(Actor::start(part, &db, LONG_EXPIRY, &[])));
    }
    let mut serving = tokio::task::JoinSet::new();
    for mut worker in workers {
        serving.spawn(async move {
            worker.until_served().await;
            // It goes on beside those that are not served yet.
            worker
        });
    }
    let served = timeout(AMPLE * 2, serving.join_all()).await;
    let served = served.expect("each task of each process has its turns");
    let mut tokens = HashSet::new();
    for worker in &served {
        println!("{:?}, longest wait {:?}", worker.turns, worker.longest);
        for token in &worker.tokens {
            assert!(tokens.insert(token), "token {token} is used twice");
        }
    }
}

/// The turns that a process has with each of the forms that the previous version does not know.
const OTHER_TURNS: usize = 3;

/// A part, and not a test: a process that takes the same lock as one of a set and as the lock of work that may succeed only
/// once, and permits of a semaphore of the same name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn take_turns_in_other_forms() {
    let Some(Part { database, .. }) = Part::given().await else {
        return;
    };
    let provider = patient(&database);
    let both = async {
        for _ in 0..OTHER_TURNS {
            let set = provider.lock_all(["beside", worker::NAME]).acquire_timeout(None);
            let guard = set.acquire().await.unwrap();
            let token = guard.fencing_token_of(worker::NAME).unwrap();
            worker::be_inside(&database, 0, token.get()).await;
            guard.release().await.unwrap();
        }
    };
    let once = async {
        let lock = provider.lock(worker::NAME).once_per(Duration::from_secs(1));
        let mut turns = 0;
        while turns < OTHER_TURNS {
            // A period without the lock ends with a time-out, and one whose work is done at once.
            if let Ok(guard) = lock.acquire().await {
                worker::be_inside(&database, 1, guard.fencing_token().get()).await;
                guard.done().await.unwrap();
                turns += 1;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let permits = async {
        let semaphore = provider.semaphore(worker::NAME, 2);
        for _ in 0..OTHER_TURNS {
            let (first, second) = (semaphore.acquire().await, semaphore.acquire().await);
            assert!(semaphore.try_acquire().await.unwrap().is_none());
            first.unwrap().release().await.unwrap();
            second.unwrap().release().await.unwrap();
        }
    };
    tokio::join!(both, once, permits);
    provider.shutdown().await;
    println!("@ served");
}

/// The previous version knows neither sets nor marks, and finds the lock held by them; a semaphore of the lock's name is
/// independent of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sets_marks_and_permits_exclude_the_previous_version_where_they_must() {
    let Some(program) = built().await else { return };
    let db = test_db().await;
    worker::prepare(db.database()).await;
    let mut earlier = previous(program, &db);
    let part = "previous_version::take_turns_in_other_forms";
    let mut present = Actor::start(part, &db, LONG_EXPIRY, &[]);
    let in_other_forms = async {
        loop {
            let (word, rest) = present.next().await;
            assert_ne!(word, "breach", "{rest}");
            if word == "served" {
                return;
            }
        }
    };
    let both = async { tokio::join!(earlier.until_served(), in_other_forms) };
    timeout(AMPLE * 2, both)
        .await
        .expect("each process has its turns");
}
