//! The kinds of holds, and what differs between them.

use mongolock::LockProvider;

use super::target::{Handle, Target, Threads};

/// What a test acquires.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    Lock,
    SetOfOne,
    Set,
    /// The only permit of a semaphore.
    Permit,
    /// A lock whose lease was detached, and which its process has resumed.
    Resumed,
}

pub(crate) const HOLDS: &[Kind] = &[Kind::Lock, Kind::SetOfOne, Kind::Set, Kind::Permit, Kind::Resumed];

/// The kinds that one call acquires, and that can run a body.
pub(crate) const CALLS: &[Kind] = &[Kind::Lock, Kind::SetOfOne, Kind::Set, Kind::Permit];

/// What a test expects of a kind.
pub(crate) struct Expectation {
    pub(crate) names: &'static [&'static str],
    pub(crate) has_token: bool,
    /// The commands of an acquisition without competitors, of a try that finds it held, and of a resumption or an extension.
    pub(crate) asks: &'static [&'static str],
    /// The commands of a release or a detachment.
    pub(crate) ends: &'static [&'static str],
}

impl Kind {
    pub(crate) const fn expects(self) -> Expectation {
        let lock = Expectation {
            names: &["lock"],
            has_token: true,
            asks: &["findAndModify"],
            ends: &["findAndModify"],
        };
        match self {
            Self::Lock => lock,
            Self::SetOfOne => Expectation {
                names: &["one"],
                ..lock
            },
            Self::Set => Expectation {
                names: &["a", "b", "c"],
                asks: &["update", "find"],
                ends: &["update"],
                ..lock
            },
            // A miss says all of a semaphore that has one permit.
            Self::Permit => Expectation {
                names: &["permit"],
                has_token: false,
                ..lock
            },
            Self::Resumed => Expectation {
                names: &["resumed"],
                ..lock
            },
        }
    }

    /// What this provider acquires under these names, or the first of them.
    pub(super) fn named(self, provider: &LockProvider, names: &[&str], threads: Threads) -> Target {
        let handle = match self {
            Self::Lock => Handle::Lock(provider.lock(names[0])),
            Self::SetOfOne | Self::Set => Handle::Set(provider.lock_all(names)),
            Self::Permit => Handle::Permit(provider.semaphore(names[0], 1)),
            Self::Resumed => Handle::Resumed(names[0].to_owned()),
        };
        Target::new(provider, handle, threads)
    }

    /// What a caller acquires. Each caller has the names of a set in another order.
    pub(crate) fn of(self, provider: &LockProvider, threads: Threads) -> Target {
        let mut names = self.expects().names.to_vec();
        fastrand::shuffle(&mut names);
        self.named(provider, &names, threads)
    }

    /// What excludes a part of it: each lock of a set, and another set with the last of them.
    pub(super) fn parts(self, provider: &LockProvider, threads: &Threads) -> Vec<Target> {
        let (Self::SetOfOne | Self::Set) = self else {
            return vec![self.of(provider, threads.clone())];
        };
        let names = self.expects().names;
        let lock = |name: &&str| Self::Lock.named(provider, &[name], threads.clone());
        let last = names[names.len() - 1];
        let outside = format!("Outside of {last}");
        let overlapping = Self::Set.named(provider, &[&outside, last], threads.clone());
        names.iter().map(lock).chain([overlapping]).collect()
    }
}
