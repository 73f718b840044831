use crate::LockError;
use crate::few::Few;
use crate::meter::CommandKind;
use crate::protocol::Reply;

/// The replies to rows in their order; the error is that of the query about several of them. It says nothing about the rows
/// themselves, which the command before it may have applied, however the query has failed.
pub(crate) type Replies = Result<Few<Result<Reply, LockError>>, LockError>;

/// What became of a command; the outer error is that of the command itself.
pub(crate) type Ran = Result<Replies, LockError>;

/// How a command is sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sending {
    /// What metrics call it.
    pub(super) kind: CommandKind,
    pub(super) waits: Waits,
    /// Whether the outcome of each row has to be known.
    pub(crate) tells_each: bool,
    /// Whether the next command of its kind makes a pause after a rejection for overload.
    pub(super) pauses: bool,
    /// Whether it ends a claim for which no caller waits.
    #[cfg_attr(not(test), expect(dead_code, reason = "only the simulation reads it"))]
    pub(crate) is_background: bool,
}

/// How long the reply to a command is waited for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Waits {
    /// Until its reply, for as long as its connection can be alive.
    Reply,
    /// Until its limit at the server, and a little longer.
    Limit,
    /// The same as [`Self::Reply`], also after a shutdown and for a refused database: an operator waits for it.
    Always,
}

impl Sending {
    /// Acquires locks, or resumes a detached lease.
    pub(super) const CLAIM: Self = Self {
        kind: CommandKind::Acquire,
        waits: Waits::Reply,
        tells_each: true,
        pauses: true,
        is_background: false,
    };
    pub(super) const RENEWAL: Self = Self {
        kind: CommandKind::Renew,
        waits: Waits::Limit,
        pauses: false,
        ..Self::CLAIM
    };
    /// Extends a detached lease.
    pub(super) const EXTENSION: Self = Self {
        waits: Waits::Reply,
        ..Self::RENEWAL
    };
    /// Releases the claims of one hold.
    pub(super) const RELEASE: Self = Self {
        kind: CommandKind::Release,
        tells_each: false,
        ..Self::RENEWAL
    };
    /// Ends claims that are no longer needed.
    pub(super) const IN_BACKGROUND: Self = Self {
        is_background: true,
        ..Self::RELEASE
    };
    /// Releases the claims of different calls.
    pub(super) const RELEASES: Self = Self {
        kind: CommandKind::Release,
        ..Self::EXTENSION
    };
    pub(super) const MARK: Self = Self::RELEASES;
    pub(super) const DETACHMENT: Self = Self {
        pauses: true,
        ..Self::RELEASES
    };
    pub(super) const OPERATOR: Self = Self {
        kind: CommandKind::Admin,
        waits: Waits::Always,
        pauses: false,
        ..Self::CLAIM
    };
}
