//! The arguments of the attribute: their names, a typical value and the values of a choice.

use crate::similar;

/// The name of an argument of the attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arg {
    Name,
    Duration(DurationKey),
    AcquireTimeout,
    Once,
    OnceAt,
    Permits,
    OnBusy,
    OnLost,
    Release,
    Provider,
    Crate,
}

/// An argument whose value is always a duration; `acquire_timeout` also accepts `none`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DurationKey {
    Expiry,
    MinHold,
    MaxHold,
    OncePer,
}

impl Arg {
    /// Every argument, in the order in which messages list them and in which the rules check them.
    pub(crate) const ALL: [Self; 14] = [
        Self::Name,
        Self::Duration(DurationKey::Expiry),
        Self::AcquireTimeout,
        Self::Duration(DurationKey::MinHold),
        Self::Duration(DurationKey::MaxHold),
        Self::Duration(DurationKey::OncePer),
        Self::Once,
        Self::OnceAt,
        Self::Permits,
        Self::OnBusy,
        Self::OnLost,
        Self::Release,
        Self::Provider,
        Self::Crate,
    ];

    /// The argument's name as users write it.
    pub(crate) fn as_str(self) -> &'static str {
        self.example().split_once(" = ").map_or("", |(key, _)| key)
    }

    /// The argument with a typical value.
    pub(crate) fn example(self) -> &'static str {
        match self {
            Self::Name => "name = \"report:<id>\"",
            Self::Duration(DurationKey::Expiry) => "expiry = \"30s\"",
            Self::AcquireTimeout => "acquire_timeout = \"10s\"",
            Self::Duration(DurationKey::MinHold) => "min_hold = \"1m\"",
            Self::Duration(DurationKey::MaxHold) => "max_hold = \"1h\"",
            Self::Duration(DurationKey::OncePer) => "once_per = \"1d\"",
            Self::Once => "once = true",
            Self::OnceAt => "once_at = tick",
            Self::Permits => "permits = 5",
            Self::OnBusy => "on_busy = \"skip\"",
            Self::OnLost => "on_lost = \"continue\"",
            Self::Release => "release = \"background\"",
            Self::Provider => "provider = self.provider",
            Self::Crate => "crate = my_crate::mongolock",
        }
    }

    /// The values that a choice accepts, its usual default first; no other argument has such a list.
    pub(crate) fn choices(self) -> &'static [&'static str] {
        match self {
            Self::OnBusy => &["wait", "skip", "fail"],
            Self::OnLost => &["cancel", "continue"],
            Self::Release => &["awaited", "background"],
            _ => &[],
        }
    }

    /// The choice that accepts this value.
    pub(crate) fn with_choice(value: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|key| key.choices().contains(&value))
    }

    /// The argument with exactly this name.
    pub(crate) fn find(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|key| key.as_str() == word)
    }

    /// The argument that a misspelt name, or one of another library, probably means.
    pub(crate) fn meant(word: &str) -> Option<Self> {
        let synonym = Self::synonym(word).map(|(key, _)| key);
        synonym.or_else(|| Self::nearest(word))
    }

    /// The argument that has this name in other libraries, with a typical value.
    pub(crate) fn synonym(word: &str) -> Option<(Self, &'static str)> {
        let folded: String = word.chars().filter(char::is_ascii_alphanumeric).collect();
        let once_per = Self::Duration(DurationKey::OncePer);
        let key = match folded.to_lowercase().as_str() {
            "ttl" | "lease" | "leasetime" | "leaseduration" | "lockatmostfor" => {
                Self::Duration(DurationKey::Expiry)
            }
            "timeout" | "wait" | "waittimeout" | "maxwait" => Self::AcquireTimeout,
            "lockatleastfor" => Self::Duration(DurationKey::MinHold),
            "key" | "resource" | "lockname" => Self::Name,
            "limit" | "concurrency" | "concurrent" | "maxconcurrent" | "maxconcurrency"
            | "concurrencylimit" | "maxparallel" | "maxpermits" | "slots" => Self::Permits,
            "tick" | "at" | "scheduledat" | "scheduledtime" => Self::OnceAt,
            "daily" | "onceaday" | "period" | "every" => once_per,
            "hourly" => return Some((once_per, "once_per = \"1h\"")),
            "weekly" => return Some((once_per, "once_per = \"7d\"")),
            _ => return None,
        };
        Some((key, key.example()))
    }

    /// The argument that a misspelt name probably means.
    pub(crate) fn nearest(word: &str) -> Option<Self> {
        similar::nearest(word, Self::ALL.map(Self::as_str)).and_then(Self::find)
    }
}
