//! Becomes the command, in a process that ends together with `run`.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::getppid;

use crate::cli::ExecArguments;
use crate::clock::BootTime;
use crate::exit::{self, Exit};
use crate::failure::Failure;
use crate::text::escaped;

/// Replaces this process by the command; it returns only if that fails.
pub(crate) fn exec(arguments: &ExecArguments) -> Result<Exit, Failure> {
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .map_err(Failure::io("cannot tie the command to this program"))?;
    // The parent may have ended before the call, which then has no effect.
    if getppid().map(|parent| parent.as_raw_nonzero().get()) != Some(arguments.parent) {
        return Ok(Exit::Code(exit::FAILED));
    }
    // This process is in the group now. Either the guardian still exists and kills it in time, or the limit has passed.
    if BootTime::now() >= BootTime(arguments.kill_at) {
        return Err(Failure::new("the lock has ended before the command could start").code(exit::LOST));
    }
    let (program, rest) = arguments
        .command
        .split_first()
        .ok_or_else(|| Failure::new("no command is given"))?;
    let error = Command::new(program).args(rest).exec();
    let code = match error.kind() {
        ErrorKind::NotFound => exit::NOT_FOUND,
        _ => exit::NOT_EXECUTABLE,
    };
    Err(Failure::new(format!("cannot run {}: {error}", shown(program))).code(code))
}

fn shown(program: &OsStr) -> String {
    escaped(&program.to_string_lossy()).into_owned()
}
