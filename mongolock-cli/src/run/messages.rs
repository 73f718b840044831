//! The messages between `run` and its guardian, all of one size, on a socket.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;

use super::deadline::Limits;
use crate::clock::Moment;

/// A kind, and two times.
const SIZE: usize = 17;

/// The bytes that are read with one call.
const READ: usize = 64 * SIZE;

/// A message from `run` to the guardian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// The lease was renewed: the command may run until these limits.
    Until(Limits),
    /// The lock is lost.
    Kill,
}

/// A message from the guardian to `run`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Report {
    /// It kills the command at these limits.
    Accepted(Limits),
    /// It has sent SIGTERM, since the first limit has passed.
    Terminated,
    /// It sends SIGKILL now.
    Killing,
}

/// A message in the form of the socket.
pub(super) trait Message: Sized {
    fn parts(self) -> (u8, Option<Limits>);
    fn from_parts(kind: u8, limits: Limits) -> Option<Self>;
}

impl Message for Order {
    fn parts(self) -> (u8, Option<Limits>) {
        match self {
            Self::Until(limits) => (b'u', Some(limits)),
            Self::Kill => (b'k', None),
        }
    }

    fn from_parts(kind: u8, limits: Limits) -> Option<Self> {
        match kind {
            b'u' => Some(Self::Until(limits)),
            b'k' => Some(Self::Kill),
            _ => None,
        }
    }
}

impl Message for Report {
    fn parts(self) -> (u8, Option<Limits>) {
        match self {
            Self::Accepted(limits) => (b'a', Some(limits)),
            Self::Terminated => (b't', None),
            Self::Killing => (b'k', None),
        }
    }

    fn from_parts(kind: u8, limits: Limits) -> Option<Self> {
        match kind {
            b'a' => Some(Self::Accepted(limits)),
            b't' => Some(Self::Terminated),
            b'k' => Some(Self::Killing),
            _ => None,
        }
    }
}

/// One end of the socket. No call waits.
pub(super) struct Channel {
    socket: UnixStream,
    /// The beginning of a message whose end has not arrived.
    rest: Vec<u8>,
    /// The end of a message of which the socket has taken only the beginning, or a message of which it has taken nothing.
    unsent: Vec<u8>,
}

/// The messages that have arrived on a [`Channel`].
pub(super) struct Received<M> {
    pub(super) messages: Vec<M>,
    /// Whether the other end is closed: its process has ended.
    pub(super) has_ended: bool,
}

impl Channel {
    pub(super) fn new(socket: UnixStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket,
            rest: Vec::new(),
            unsent: Vec::new(),
        })
    }

    pub(super) fn socket(&self) -> &UnixStream {
        &self.socket
    }

    /// Sends a message, unless the socket is full or the other end is closed: the other process does not read then.
    pub(super) fn send(&mut self, message: impl Message) -> io::Result<()> {
        // A message before this one that was cut must be completed, or all later ones would be misread. This one is lost
        // then; the sender sends its newest state again. An older message of which nothing was sent is out of date.
        let is_cut = (1..SIZE).contains(&self.unsent.len());
        if !is_cut {
            self.unsent = bytes(message).to_vec();
        }
        let sent = self.socket.write(&self.unsent)?;
        self.unsent.drain(..sent);
        Ok(())
    }

    /// All messages that have arrived.
    pub(super) fn receive<M: Message>(&mut self) -> Received<M> {
        let has_ended = self.read_all();
        let whole = self.rest.len() / SIZE * SIZE;
        let messages = self.rest.drain(..whole).collect::<Vec<u8>>();
        Received {
            messages: messages.chunks_exact(SIZE).filter_map(message).collect(),
            has_ended,
        }
    }

    /// Reads the bytes that have arrived, and returns whether no more will arrive.
    fn read_all(&mut self) -> bool {
        let mut buffer = [0; READ];
        loop {
            match self.socket.read(&mut buffer) {
                Ok(0) => return true,
                Ok(read) => self.rest.extend_from_slice(&buffer[..read]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return true,
            }
        }
    }
}

fn bytes(message: impl Message) -> [u8; SIZE] {
    let (kind, limits) = message.parts();
    let (term_at, kill_at) = limits.map_or((0, 0), |limits| (limits.term_at.0, limits.kill_at.0));
    let mut bytes = [kind; SIZE];
    bytes[1..9].copy_from_slice(&term_at.to_le_bytes());
    bytes[9..].copy_from_slice(&kill_at.to_le_bytes());
    bytes
}

fn message<M: Message>(bytes: &[u8]) -> Option<M> {
    let moment = |bytes: &[u8]| Some(Moment(u64::from_le_bytes(bytes.try_into().ok()?)));
    let limits = Limits {
        term_at: moment(bytes.get(1..9)?)?,
        kill_at: moment(bytes.get(9..)?)?,
    };
    M::from_parts(bytes[0], limits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(number: u64) -> Limits {
        Limits {
            term_at: Moment(number),
            kill_at: Moment(number + 1),
        }
    }

    #[test]
    fn messages_arrive_in_their_order_and_whole() {
        let (one, other) = UnixStream::pair().unwrap();
        let (mut one, mut other) = (Channel::new(one).unwrap(), Channel::new(other).unwrap());
        let orders = [
            Order::Until(limits(7)),
            Order::Kill,
            Order::Until(limits(u64::MAX - 1)),
        ];
        for order in orders {
            one.send(order).unwrap();
        }
        let received = other.receive::<Order>();
        assert_eq!(received.messages, orders);
        assert!(!received.has_ended);
        other.send(Report::Accepted(limits(7))).unwrap();
        assert_eq!(one.receive::<Report>().messages, [Report::Accepted(limits(7))]);
        drop(one);
        assert!(other.receive::<Order>().has_ended);
        assert!(other.send(Report::Terminated).is_err());
    }

    #[test]
    fn a_newer_message_replaces_one_that_was_refused_whole() {
        let (one, other) = UnixStream::pair().unwrap();
        let (mut one, mut other) = (Channel::new(one).unwrap(), Channel::new(other).unwrap());
        let older = Order::Until(limits(7));
        one.unsent = bytes(older).to_vec();
        one.send(Order::Kill).unwrap();
        assert_eq!(other.receive::<Order>().messages, [Order::Kill]);
        // The other end has the first three bytes.
        one.socket.write_all(&bytes(older)[..3]).unwrap();
        one.unsent = bytes(older)[3..].to_vec();
        one.send(Order::Kill).unwrap();
        one.send(Order::Kill).unwrap();
        assert_eq!(other.receive::<Order>().messages, [older, Order::Kill]);
    }

    /// A guardian that is stopped for long must not make `run` wait, and misses no part of a message.
    #[test]
    fn a_full_socket_refuses_and_goes_on_whole() {
        let (one, other) = UnixStream::pair().unwrap();
        let (mut one, mut other) = (Channel::new(one).unwrap(), Channel::new(other).unwrap());
        let mut sent = 0;
        while one.send(Order::Until(limits(sent))).is_ok() {
            sent += 1;
        }
        assert!(sent > 10, "{sent}");
        let first = other.receive::<Order>().messages;
        assert_eq!(first.first(), Some(&Order::Until(limits(0))));
        one.send(Order::Kill).unwrap();
        one.send(Order::Kill).unwrap();
        assert_eq!(other.receive::<Order>().messages.last(), Some(&Order::Kill));
    }
}
