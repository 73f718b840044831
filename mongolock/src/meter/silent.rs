//! The metrics without the feature `metrics`: empty.

#![expect(clippy::unused_self, reason = "the methods are those with the feature")]

use super::{CommandKind, Measure};

#[derive(Default)]
pub(crate) struct Meter(());

#[derive(Clone)]
pub(crate) struct LockMeter;

#[derive(Default)]
pub(crate) struct CommandMeter(());

impl Meter {
    #[inline]
    pub(crate) fn of(&self, _label: Option<&'static str>) -> LockMeter {
        LockMeter
    }
}

impl LockMeter {
    #[inline]
    pub(crate) fn record(&self, _measure: Measure) {}
}

impl CommandMeter {
    #[inline]
    pub(crate) fn count(&self, _kind: CommandKind, _is_ok: bool) {}
}

#[inline]
pub(crate) fn stale_write() {}
