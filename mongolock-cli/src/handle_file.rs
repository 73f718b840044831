//! Files with the handle of a detached lease. Everyone who can read one can use the lock, so only its owner can read
//! it.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use mongolock::LeaseHandle;

use crate::failure::Failure;
use crate::input;
use crate::output::names_of;

/// The rights to a new file: its owner reads and writes it.
const PRIVATE: u32 = 0o600;

/// A file for the handle of a lease that is to be detached. It is removed when this is dropped before it was kept.
pub(crate) struct NewFile {
    path: PathBuf,
    file: File,
    is_kept: bool,
}

impl NewFile {
    /// Creates the file, which must not exist.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(PRIVATE);
        Ok(Self {
            file: options.open(path)?,
            path: path.to_owned(),
            is_kept: false,
        })
    }

    /// Writes the handle, so that it survives a crash of the machine.
    pub(crate) fn write(&mut self, handle: &LeaseHandle) -> io::Result<()> {
        writeln!(self.file, "{}", handle.text())?;
        self.file.sync_all()?;
        sync_directory(&self.path)?;
        if self.is_deleted() {
            return Err(io::Error::other("another program has deleted the file"));
        }
        Ok(())
    }

    /// Whether the file has no name any more: a file at its path is another one.
    fn is_deleted(&self) -> bool {
        self.file.metadata().is_ok_and(|file| file.nlink() == 0)
    }

    pub(crate) fn keep(mut self) {
        self.is_kept = true;
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.is_kept && !self.is_deleted() {
            // The failed command reports the reason; a remaining file has a handle without a lease.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// A handle that was read, and its file.
pub(crate) struct Stored {
    pub(crate) handle: LeaseHandle,
    path: PathBuf,
}

impl Stored {
    /// Reads a handle from a file, or from standard input if the path is `-`.
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let handle = input::text(path)?.parse()?;
        // A new handle replaces the target of a link, and not the link.
        let path = match fs::canonicalize(path) {
            Ok(whole) if !input::is_standard(path) => whole,
            _ => path.to_owned(),
        };
        Ok(Self { handle, path })
    }

    /// Checks that a new handle can be written, before the lease of this one is changed.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let shown = self.path.display();
        // A pipe would not have a reader for the new handle, and must not be replaced by a file.
        if !self.path.is_file() {
            return Err(Failure::new(format!(
                "{shown} is no file, so the lease was not resumed"
            )));
        }
        let opened = OpenOptions::new().write(true).open(&self.path).map(drop);
        // It is deleted again when it is dropped.
        let opened = opened.or_else(|_| NewFile::create(&self.new_path()).map(drop));
        opened.map_err(Failure::io(format_args!(
            "cannot write {shown}, so the lease was not resumed"
        )))
    }

    /// The text for a handle that has no lease.
    pub(crate) fn no_lease(&self) -> String {
        let names = names_of(&self.handle);
        format!("the detached lease of {names} has ended, or was resumed")
    }

    /// Writes another handle into the file. At any time the file has one of the two, unless it cannot be replaced
    /// because it is mounted, or because its directory accepts no other file. Then the handle is written over the old
    /// one.
    pub(crate) fn replace(&self, handle: &LeaseHandle) -> io::Result<()> {
        self.replace_whole(handle).or_else(|_| self.overwrite(handle))
    }

    fn replace_whole(&self, handle: &LeaseHandle) -> io::Result<()> {
        let path = self.new_path();
        // A process that was killed may have left this file. Only the holder of the lease writes it.
        let _ = fs::remove_file(&path);
        let mut new = NewFile::create(&path)?;
        new.write(handle)?;
        fs::rename(&path, &self.path)?;
        new.keep();
        sync_directory(&self.path)
    }

    /// The file that replaces the present one.
    fn new_path(&self) -> PathBuf {
        let mut name = OsString::from(&self.path);
        name.push(".new");
        PathBuf::from(name)
    }

    fn overwrite(&self, handle: &LeaseHandle) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).open(&self.path)?;
        let text = format!("{}\n", handle.text());
        file.write_all(text.as_bytes())?;
        file.set_len(text.len() as u64)?;
        file.sync_all()
    }

    /// Deletes the file, unless another command has written another handle into it meanwhile. Standard input has none.
    pub(crate) fn delete(&self) -> Result<(), Failure> {
        let is_own = || Self::read(&self.path).is_ok_and(|now| now.handle == self.handle);
        if input::is_standard(&self.path) || !is_own() {
            return Ok(());
        }
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                let path = self.path.display();
                Err(Failure::new(format!("cannot delete {path}: {error}")))
            }
            _ => Ok(()),
        }
    }
}

/// The entry of a file is written with its directory.
fn sync_directory(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}
