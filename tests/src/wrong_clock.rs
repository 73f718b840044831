//! Processes whose wall clock is wrong.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tokio::task::spawn_blocking;

use crate::wait::{AMPLE, eventually};
use crate::{Server, ServerOptions, find_mongod, must};

/// Compiles a library that shifts the wall clock of a process by the seconds of `MONGOLOCK_CLOCK_SHIFT`, and leaves its
/// monotonic clock alone, if `LD_PRELOAD` names it.
pub async fn wrong_clock(directory: &Path) -> PathBuf {
    let library = directory.join("wrong_clock.so");
    let mut compiler = Command::new("cc");
    compiler
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .arg(&library)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/wrong_clock.c"));
    let built = must(spawn_blocking(move || compiler.status()).await);
    let built = built.expect("a C compiler is installed, which the TLS library needs as well");
    assert!(built.success());
    library
}

/// Starts a server of which the process that starts first has a clock that is ahead by this time, in full seconds. The clock is right
/// after a [restart](crate::Node::restart).
pub async fn one_clock_ahead(mut options: ServerOptions, directory: &Path, ahead: Duration) -> Server {
    let shim = wrong_clock(directory).await;
    let mongod = must(find_mongod().await);
    // Only one process can create the directory.
    let script = format!(
        "#!/bin/sh\nif [ \"$1\" != --version ] && mkdir '{first}' 2>/dev/null; then\n  export LD_PRELOAD='{shim}' \
         MONGOLOCK_CLOCK_SHIFT={shift}\nfi\nexec '{mongod}' \"$@\"\n",
        first = directory.join("ahead").display(),
        shim = shim.display(),
        shift = ahead.as_secs(),
        mongod = mongod.display(),
    );
    let wrapper = directory.join("mongod");
    must(fs::write(&wrapper, script));
    must(fs::set_permissions(&wrapper, Permissions::from_mode(0o755)));
    // A child that another test starts at this moment may have the file open for writing until it runs its program.
    let runs = || async { Command::new(&wrapper).arg("--version").output().ok() };
    must(eventually(AMPLE, "the program with the wrong clock", runs).await);
    options.binary = Some(wrapper);
    must(Server::start(options).await)
}
