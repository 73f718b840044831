//! What is on its way between processes and the server.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::core::{Fault, FaultKind, Key, Saw, Time};
use crate::protocol::{Name, Reply, Row, RowOrder};

/// Who is notified: a caller in one of its rounds, and of what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Cell {
    pub(crate) caller: u8,
    pub(crate) round: u8,
    pub(crate) role: Role,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Role {
    /// Its call, and then its hold.
    Call,
    /// The end of its hold.
    End,
    /// The outcome of its transaction.
    Commit,
}

#[derive(Debug, Clone)]
pub(crate) struct Message {
    pub(crate) process: usize,
    /// The command that it is or replies to.
    pub(crate) flight: Key,
    /// When that was sent, and before when it takes effect, or never.
    pub(crate) sent: Time,
    pub(crate) until: Time,
    /// The callers that have begun later, as bits: its reply says nothing to them.
    pub(crate) too_old_for: u8,
    /// The driver has sent it twice, and this copy has no reply.
    pub(crate) is_copy: bool,
    pub(crate) body: Body,
}

#[derive(Debug, Clone)]
pub(crate) enum Body {
    /// With a hash of its rows, which have none.
    Rows(Arc<[Row]>, RowOrder, u64),
    Looks(Arc<[Name]>),
    /// `learns`: the number of a forced release. This is the reply to a renewal of its claim, which the server got after it.
    Ran {
        result: Result<Arc<[Reply]>, Fault>,
        learns: Option<u16>,
    },
    Looked(Result<Arc<[Saw]>, Fault>),
    Watch(u32, Option<Arc<[Name]>>),
}

impl Message {
    /// By what is sorted what is on its way: the order in which it was sent says nothing.
    pub(crate) fn order(&self) -> (u8, usize, Key, bool) {
        let kind = match self.body {
            Body::Rows(..) | Body::Looks(_) => 0,
            Body::Ran { .. } | Body::Looked(_) => 1,
            Body::Watch(..) => 2,
        };
        (kind, self.process, self.flight, self.is_copy)
    }

    pub(crate) fn is_command(&self) -> bool {
        matches!(self.body, Body::Rows(..) | Body::Looks(_))
    }

    pub(crate) fn is_reply(&self) -> bool {
        matches!(self.body, Body::Ran { .. } | Body::Looked(_))
    }

    /// The reply with this fault.
    pub(crate) fn failed(&self, kind: FaultKind, may_be_applied: bool) -> Self {
        let fault = fault(kind, may_be_applied);
        let body = match &self.body {
            Body::Looks(_) | Body::Looked(_) => Body::Looked(Err(fault)),
            _ => Body::Ran {
                result: Err(fault),
                learns: None,
            },
        };
        Self { body, ..self.clone() }
    }
}

pub(crate) fn fault(kind: FaultKind, may_be_applied: bool) -> Fault {
    Fault {
        kind,
        may_be_applied,
        error: Arc::new(std::fmt::Error),
    }
}

impl Hash for Message {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.process, self.flight, self.sent, self.until).hash(state);
        (self.too_old_for, self.is_copy).hash(state);
        std::mem::discriminant(&self.body).hash(state);
        match &self.body {
            Body::Rows(_, _, rows) => rows.hash(state),
            Body::Looks(_) => {}
            Body::Ran { result, learns } => (result, learns).hash(state),
            Body::Looked(result) => result.hash(state),
            Body::Watch(number, _) => number.hash(state),
        }
    }
}
