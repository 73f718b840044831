//! The process group of the command, which the guardian leads.

use std::io;
#[cfg(target_os = "linux")]
use std::path::Path;

#[cfg(target_os = "linux")]
use rustix::io::Errno;
use rustix::process::{Pid, Signal, getpid, kill_process_group};

#[cfg(target_os = "linux")]
use super::namespace::Namespace;

/// In the line of a process, the number of its threads is the 20th field, and its group the 5th.
#[cfg(target_os = "linux")]
const THREADS_AFTER_GROUP: usize = 14;

/// A process of a group. Its ids are those of the PID namespace of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Process {
    id: i32,
    group: i32,
    /// Whether it is a child of this process.
    is_child: bool,
    is_zombie: bool,
}

/// The group of this process; `None` if the group is outside the PID namespace of this process, where it has no id.
pub(super) fn own_group() -> Option<Pid> {
    Pid::from_raw(nix::unistd::getpgrp().as_raw())
}

/// Whether this process leads its session. A session outside the PID namespace has no id there.
pub(super) fn is_session_leader() -> bool {
    let session = nix::unistd::getsid(None).map(nix::unistd::Pid::as_raw);
    session == Ok(getpid().as_raw_nonzero().get())
}

/// The group of the command. Its leader must not be reaped while this value is used: its id could belong to others then.
#[derive(Debug, Clone, Copy)]
pub(super) struct Group {
    leader: Pid,
}

impl Group {
    pub(super) fn of(leader: Pid) -> Self {
        Self { leader }
    }

    pub(super) fn leader(self) -> Pid {
        self.leader
    }

    /// Sends a signal to each process of the group, the guardian among them. It fails only if there is none.
    pub(super) fn signal(self, signal: Signal) {
        let _ = kill_process_group(self.leader, signal);
    }

    /// Asks the processes to end. A stopped process must be continued to end.
    pub(super) fn terminate(self) {
        self.signal(Signal::TERM);
        self.signal(Signal::CONT);
    }

    /// The number of running processes, without the guardian and without zombies.
    pub(super) fn living(self) -> io::Result<usize> {
        let leader = self.leader.as_raw_nonzero().get();
        let is_living =
            |process: &Process| process.group == leader && process.id != leader && !process.is_zombie;
        Ok(processes()?.iter().filter(|process| is_living(process)).count())
    }
}

/// The zombies among the children of this process.
pub(super) fn own_zombies() -> io::Result<Vec<Pid>> {
    let all = processes()?;
    let zombies = all.iter().filter(|process| process.is_child && process.is_zombie);
    Ok(zombies.filter_map(|process| Pid::from_raw(process.id)).collect())
}

/// The processes that can be seen.
#[cfg(target_os = "linux")]
fn processes() -> io::Result<Vec<Process>> {
    let namespace = Namespace::find()?;
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let entry = entry?;
        if entry
            .file_name()
            .to_str()
            .is_some_and(|name| name.parse::<i32>().is_ok())
        {
            match read(&entry.path(), &namespace) {
                Ok(process) => found.extend(process),
                Err(error) if is_left_out(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(found)
}

/// The process with this directory; `None` if it is not in the namespace of this process.
#[cfg(target_os = "linux")]
fn read(directory: &Path, namespace: &Namespace) -> io::Result<Option<Process>> {
    let stat = std::fs::read(directory.join("stat"))?;
    let Some(process) = process(&String::from_utf8_lossy(&stat), namespace.own_id()) else {
        return Ok(None);
    };
    let ids = namespace.in_own_namespace(process.id, process.group)?;
    Ok(ids.map(|(id, group)| Process { id, group, ..process }))
}

/// Whether the process has ended meanwhile, or belongs to another user. After another error, such as too many open
/// files, it may still run.
#[cfg(target_os = "linux")]
fn is_left_out(error: &io::Error) -> bool {
    let left_out = [Errno::NOENT, Errno::SRCH, Errno::ACCESS, Errno::PERM];
    Errno::from_io_error(error).is_some_and(|error| left_out.contains(&error))
}

/// A process, with this id of its own process, from its line `<id> (<name>) <state> <parent> <group> …`. A name may have spaces and parentheses. The state is
/// that of the main thread; the other threads may go on when it has ended.
#[cfg(target_os = "linux")]
fn process(stat: &str, own_id: i32) -> Option<Process> {
    let (id, rest) = stat.split_once(" (")?;
    let (_, fields) = rest.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    let has_ended = matches!(fields.next()?, "Z" | "X" | "x");
    let parent: i32 = fields.next()?.parse().ok()?;
    let group = fields.next()?.parse().ok()?;
    let threads: Option<u32> = fields.nth(THREADS_AFTER_GROUP)?.parse().ok();
    Some(Process {
        id: id.parse().ok()?,
        group,
        is_child: parent == own_id,
        is_zombie: has_ended && threads.is_some_and(|number| number <= 1),
    })
}

#[cfg(not(target_os = "linux"))]
fn processes() -> io::Result<Vec<Process>> {
    by_ps()
}

/// The processes that `ps` lists. Without any the list was not understood, because this process is one.
#[cfg(any(test, not(target_os = "linux")))]
fn by_ps() -> io::Result<Vec<Process>> {
    // On some systems a list such as `pid=,ppid=` is one column with a strange heading.
    let columns = ["pid=", "ppid=", "pgid=", "stat="].map(|column| ["-o", column]);
    let listed = std::process::Command::new("ps")
        .arg("-A")
        .args(columns.as_flattened())
        .output()?;
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    let found: Vec<Process> = text.lines().filter_map(line_of_ps).collect();
    if found.is_empty() {
        return Err(io::Error::other("`ps` lists no process"));
    }
    Ok(found)
}

/// A process from its line `<id> <parent> <group> <state>`.
#[cfg(any(test, not(target_os = "linux")))]
fn line_of_ps(line: &str) -> Option<Process> {
    let mut fields = line.split_whitespace();
    let mut number = || fields.next()?.parse().ok();
    let (id, parent, group) = (number()?, number()?, number()?);
    Some(Process {
        id,
        group,
        is_child: parent == getpid().as_raw_nonzero().get(),
        is_zombie: fields.next()?.starts_with('Z'),
    })
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_name_does_not_hide_the_fields() {
        let line = line("42 (a) Z 1 (b) S 7 41", 1);
        let found = process(&line, 7).unwrap();
        assert_eq!(
            (found.id, found.is_child, found.group, found.is_zombie),
            (42, true, 41, false)
        );
        assert!(!process(&line, 8).unwrap().is_child);
        assert_eq!(process("", 7), None);
    }

    /// The line of a process, with a number of threads.
    fn line(begin: &str, threads: u32) -> String {
        format!("{begin} 41 0 -1 4194560 90 0 0 0 0 0 0 0 20 0 {threads} 0 5131 0 0")
    }

    #[test]
    fn a_process_whose_main_thread_has_ended_is_a_zombie_only_without_other_threads() {
        let is_zombie = |state: &str, threads| {
            let line = line(&format!("43 (a) {state} 7 41"), threads);
            process(&line, 7).unwrap().is_zombie
        };
        assert!(is_zombie("Z", 1));
        assert!(is_zombie("X", 0));
        assert!(!is_zombie("Z", 2));
        assert!(!is_zombie("S", 1));
    }

    #[test]
    fn only_a_process_that_is_gone_or_hidden_is_left_out() {
        for errno in [Errno::NOENT, Errno::SRCH, Errno::ACCESS, Errno::PERM] {
            assert!(is_left_out(&errno.into()), "{errno}");
        }
        for errno in [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::IO] {
            assert!(!is_left_out(&errno.into()), "{errno}");
        }
    }

    #[test]
    fn ps_tells_the_same_of_this_process() {
        let own = rustix::process::getpid().as_raw_nonzero().get();
        let of =
            |found: io::Result<Vec<Process>>| found.unwrap().into_iter().find(|process| process.id == own);
        let listed = of(by_ps());
        assert!(listed.is_some());
        assert_eq!(listed, of(processes()));
        assert!(line_of_ps("  43  7 41 Z+").unwrap().is_zombie);
        assert_eq!(line_of_ps("  43"), None);
    }
}
