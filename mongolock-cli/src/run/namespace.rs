//! The ids in `/proc`: those of the PID namespace that it was mounted in, which may be outside that of this process
//! (`unshare --pid --fork` without `--mount-proc`).

use std::fs;
use std::io;
use std::os::fd::AsRawFd;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// The namespace of this process in `/proc`.
pub(super) struct Namespace {
    /// The id of this process in `/proc`.
    own_id: i32,
    /// The number of namespaces between that of `/proc` and that of this process, which is included; 0 if they are the same.
    depth: usize,
}

impl Namespace {
    pub(super) fn find() -> io::Result<Self> {
        let status = fs::read_to_string("/proc/self/status")?;
        let own_id = numbers(&status, "Pid:").next();
        Ok(Self {
            own_id: own_id.ok_or_else(|| io::Error::other("/proc tells no id of this process"))?,
            // Kernels without namespaces do not have the line.
            depth: numbers(&status, "NSpid:").count().saturating_sub(1),
        })
    }

    /// The id of this process in `/proc`.
    pub(super) fn own_id(&self) -> i32 {
        self.own_id
    }

    /// The ids of a process and of its group in the namespace of this process; `None` if the process is not in it.
    pub(super) fn in_own_namespace(&self, id: i32, group: i32) -> io::Result<Option<(i32, i32)>> {
        if self.depth == 0 {
            return Ok(Some((id, group)));
        }
        let status = fs::read_to_string(format!("/proc/{id}/status"))?;
        let ids = numbers(&status, "NSpid:").nth(self.depth);
        let ids = ids.zip(numbers(&status, "NSpgid:").nth(self.depth));
        // It may have these ids in another namespace of the same depth.
        Ok(ids.filter(|(own, _)| is_same(*own, id)))
    }
}

/// Whether the process with this id in the namespace of this process has that id in `/proc`.
fn is_same(id: i32, in_proc: i32) -> bool {
    let Some(pid) = Pid::from_raw(id) else {
        return false;
    };
    let descriptor = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(descriptor) => descriptor,
        // With an older kernel or without free descriptors it is unknown: it is safer to count one process too many.
        Err(error) => return error != Errno::SRCH,
    };
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", descriptor.as_raw_fd()));
    info.map_or(true, |info| numbers(&info, "Pid:").next() == Some(in_proc))
}

/// The numbers in the line that begins with a key.
fn numbers<'a>(text: &'a str, key: &str) -> impl Iterator<Item = i32> + 'a {
    let line = text.lines().find_map(|line| line.strip_prefix(key));
    let words = line.unwrap_or_default().split_whitespace();
    words.map_while(|word| word.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_line() {
        let status = "Name:\tPid: 7\nPid:\t41\nNSpid:\t41\t3\n";
        assert_eq!(numbers(status, "Pid:").collect::<Vec<_>>(), [41]);
        assert_eq!(numbers(status, "NSpid:").collect::<Vec<_>>(), [41, 3]);
        assert_eq!(numbers(status, "NSpgid:").count(), 0);
    }

    #[test]
    fn a_process_is_found_by_both_of_its_ids() {
        let namespace = Namespace::find().unwrap();
        let own = rustix::process::getpid().as_raw_nonzero().get();
        assert!(is_same(own, namespace.own_id()));
        assert!(!is_same(own, namespace.own_id() + 1));
    }
}
