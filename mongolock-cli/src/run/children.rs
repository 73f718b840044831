//! The two children of `run`: how they start and end.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, getpid, waitid};

use super::group::Group;
use super::messages::Channel;
use super::terminal::Foreground;
use crate::clock::BootTime;

/// How a child has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    Exited(u8),
    Killed(i32),
}

/// A change of a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChildChange {
    /// It has ended. It stays a zombie until it is reaped, so that its id belongs to no other process.
    Ended(Status),
    /// A signal has stopped it.
    Stopped,
}

/// Starts the guardian, which leads a group of its own.
pub(super) fn start_guardian(foreground: Option<&Foreground>) -> io::Result<(Group, Channel)> {
    let (own, others) = UnixStream::pair()?;
    let mut command = this_program()?;
    command.arg("guard-command");
    if let Some(foreground) = foreground {
        let own = foreground.own().as_raw_nonzero().to_string();
        command.args(["--terminal", &own]);
    }
    // The guardian shares nothing with the command: a reader of the output waits only for the command, no variable is
    // shown twice, and no directory is kept in use.
    command
        .env_clear()
        .current_dir("/")
        .stdin(OwnedFd::from(others))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0);
    let group = Group::of(start(command)?);
    Ok((group, Channel::new(own)?))
}

/// Starts the command in a group. At `kill_at` or later it does not start: the guardian may have killed the group, and
/// itself, before the command was in it. The calling thread must live as long as this process: on Linux the command gets
/// SIGKILL when the thread ends.
pub(super) fn start_command(
    command: &[OsString],
    environment: &[(&str, Option<String>)],
    group: Group,
    kill_at: BootTime,
) -> io::Result<Pid> {
    let mut program = this_program()?;
    program
        .arg("exec-command")
        .arg(getpid().as_raw_nonzero().to_string())
        .arg(kill_at.0.to_string())
        .arg("--")
        .args(command)
        .process_group(group.leader().as_raw_nonzero().get());
    for (key, value) in environment {
        match value {
            Some(value) => program.env(key, value),
            None => program.env_remove(key),
        };
    }
    start(program)
}

fn start(mut command: Command) -> io::Result<Pid> {
    let child = command.spawn()?;
    let id = i32::try_from(child.id()).map_err(io::Error::other)?;
    Pid::from_raw(id).ok_or_else(|| io::Error::other("a process has no id"))
}

/// The latest change of a child; `None` if there is none.
pub(super) fn change_of(child: Pid) -> Option<ChildChange> {
    let looked =
        WaitIdOptions::EXITED | WaitIdOptions::STOPPED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let status = waitid(WaitId::Pid(child), looked).ok().flatten()?;
    if status.stopped() {
        // The kernel reports a stop until this process has acknowledged it.
        let noted = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
        let _ = waitid(WaitId::Pid(child), noted);
        return Some(ChildChange::Stopped);
    }
    Some(ChildChange::Ended(ended(&status)))
}

fn ended(status: &WaitIdStatus) -> Status {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Status::Exited(u8::try_from(code & 0xff).unwrap_or(u8::MAX)),
        (None, Some(signal)) => Status::Killed(signal),
        (None, None) => Status::Killed(Signal::KILL.as_raw()),
    }
}

/// Reaps a child that has ended; its id may belong to another process from now on. Returns whether it has ended.
pub(super) fn reap(child: Pid) -> bool {
    let ended = waitid(WaitId::Pid(child), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
    !matches!(ended, Ok(None))
}

/// This program. On Linux it is found even if its file was replaced meanwhile.
fn this_program() -> io::Result<Command> {
    let path = if cfg!(target_os = "linux") {
        PathBuf::from("/proc/self/exe")
    } else {
        std::env::current_exe()?
    };
    let mut command = Command::new(path);
    command.arg0("mongolock");
    Ok(command)
}
