//! The messages between `run` and its guardian, all of one size, on a socket.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;

use super::deadline::Limits;
use crate::clock::BootTime;

/// A kind, and two times.
const SIZE: usize = 17;

/// The bytes that are read with one call.
const READ: usize = 64 * SIZE;

/// A message between `run` and its guardian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Message {
    /// To the guardian: the lease was renewed, and the command may live until these limits.
    Until(Limits),
    /// To the guardian: the lock is lost.
    Kill,
    /// To `run`: the guardian kills the command at these limits.
    Accepted(Limits),
    /// To `run`: the guardian has sent SIGTERM, since the first limit has passed.
    Terminated,
    /// To `run`: the guardian sends SIGKILL now.
    Killing,
}

/// One end of the socket. No call waits.
pub(super) struct Channel {
    socket: UnixStream,
    /// The beginning of a message whose end has not arrived.
    rest: Vec<u8>,
    /// The end of a message of which the socket has taken only the beginning, or a message of which it has taken nothing.
    unsent: Vec<u8>,
}

/// What has arrived on a [`Channel`].
pub(super) struct Received {
    pub(super) messages: Vec<Message>,
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
    pub(super) fn send(&mut self, message: Message) -> io::Result<()> {
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
    pub(super) fn receive(&mut self) -> Received {
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

fn bytes(message: Message) -> [u8; SIZE] {
    let (kind, limits) = match message {
        Message::Until(limits) => (b'u', Some(limits)),
        Message::Kill => (b'k', None),
        Message::Accepted(limits) => (b'a', Some(limits)),
        Message::Terminated => (b't', None),
        Message::Killing => (b'K', None),
    };
    let (term_at, kill_at) = limits.map_or((0, 0), |limits| (limits.term_at.0, limits.kill_at.0));
    let mut bytes = [kind; SIZE];
    bytes[1..9].copy_from_slice(&term_at.to_le_bytes());
    bytes[9..].copy_from_slice(&kill_at.to_le_bytes());
    bytes
}

fn message(bytes: &[u8]) -> Option<Message> {
    let moment = |bytes: &[u8]| Some(BootTime(u64::from_le_bytes(bytes.try_into().ok()?)));
    let limits = Limits {
        term_at: moment(bytes.get(1..9)?)?,
        kill_at: moment(bytes.get(9..)?)?,
    };
    Some(match bytes[0] {
        b'u' => Message::Until(limits),
        b'k' => Message::Kill,
        b'a' => Message::Accepted(limits),
        b't' => Message::Terminated,
        b'K' => Message::Killing,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(number: u64) -> Limits {
        Limits {
            term_at: BootTime(number),
            kill_at: BootTime(number + 1),
        }
    }

    #[test]
    fn messages_arrive_in_their_order_and_whole() {
        let (one, other) = UnixStream::pair().unwrap();
        let (mut one, mut other) = (Channel::new(one).unwrap(), Channel::new(other).unwrap());
        let orders = [
            Message::Until(limits(7)),
            Message::Kill,
            Message::Until(limits(u64::MAX - 1)),
        ];
        for order in orders {
            one.send(order).unwrap();
        }
        let received = other.receive();
        assert_eq!(received.messages, orders);
        assert!(!received.has_ended);
        other.send(Message::Accepted(limits(7))).unwrap();
        assert_eq!(one.receive().messages, [Message::Accepted(limits(7))]);
        drop(one);
        assert!(other.receive().has_ended);
        assert!(other.send(Message::Terminated).is_err());
    }

    #[test]
    fn a_newer_message_replaces_one_that_was_refused_whole() {
        let (one, other) = UnixStream::pair().unwrap();
        let (mut one, mut other) = (Channel::new(one).unwrap(), Channel::new(other).unwrap());
        let older = Message::Until(limits(7));
        one.unsent = bytes(older).to_vec();
        one.send(Message::Kill).unwrap();
        assert_eq!(other.receive().messages, [Message::Kill]);
        // The other end has the first three bytes.
        one.socket.write_all(&bytes(older)[..3]).unwrap();
        one.unsent = bytes(older)[3..].to_vec();
        one.send(Message::Kill).unwrap();
        one.send(Message::Kill).unwrap();
        assert_eq!(other.receive().messages, [older, Message::Kill]);
    }

    /// A guardian that is stopped for long must not make `run` wait, and misses no part of a message.
    #[test]
    fn a_full_socket_refuses_and_goes_on_whole() {
        let (one, other) = UnixStream::pair().unwrap();
        let (mut one, mut other) = (Channel::new(one).unwrap(), Channel::new(other).unwrap());
        let mut sent = 0;
        while one.send(Message::Until(limits(sent))).is_ok() {
            sent += 1;
        }
        assert!(sent > 10, "{sent}");
        let first = other.receive().messages;
        assert_eq!(first.first(), Some(&Message::Until(limits(0))));
        one.send(Message::Kill).unwrap();
        one.send(Message::Kill).unwrap();
        assert_eq!(other.receive().messages.last(), Some(&Message::Kill));
    }
}
