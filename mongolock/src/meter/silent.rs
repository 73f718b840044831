//! The metrics without the feature `metrics`: empty.

use std::time::Duration;

use super::{AcquireOutcome, CommandKind};
use crate::LossReason;

pub(crate) struct Meter;

#[derive(Clone)]
pub(crate) struct LockMeter;

pub(crate) struct CommandMeter;

#[expect(clippy::unused_self, reason = "the same methods as with the feature")]
impl Meter {
    pub(crate) fn new() -> Self {
        Self
    }

    #[inline]
    pub(crate) fn of(&self, _label: Option<&'static str>) -> LockMeter {
        LockMeter
    }
}

#[expect(clippy::unused_self, reason = "the same methods as with the feature")]
impl LockMeter {
    #[inline]
    pub(crate) fn wait_begins(&self) {}

    #[inline]
    pub(crate) fn wait_ends(&self, _outcome: AcquireOutcome, _waited: Duration) {}

    #[inline]
    pub(crate) fn hold_begins(&self) {}

    #[inline]
    pub(crate) fn hold_ends(&self, _held: Duration) {}

    #[inline]
    pub(crate) fn lost(&self, _reason: LossReason) {}

    #[inline]
    pub(crate) fn handed_over(&self) {}

    #[inline]
    pub(crate) fn renewed(&self, _age: Duration) {}
}

#[expect(clippy::unused_self, reason = "the same methods as with the feature")]
impl CommandMeter {
    pub(crate) fn new() -> Self {
        Self
    }

    #[inline]
    pub(crate) fn count(&self, _kind: CommandKind, _is_ok: bool) {}
}

#[inline]
pub(crate) fn stale_write() {}
