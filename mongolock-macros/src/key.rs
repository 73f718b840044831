//! The arguments of the attribute: their names, and what a typical value looks like.

use crate::similar;

/// The arguments that exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Key {
    Name,
    Expiry,
    RenewInterval,
    AcquireTimeout,
    MinHold,
    MaxHold,
    OnBusy,
    OnLost,
    Provider,
    Crate,
}

impl Key {
    pub(crate) const ALL: [Self; 10] = [
        Self::Name,
        Self::Expiry,
        Self::RenewInterval,
        Self::AcquireTimeout,
        Self::MinHold,
        Self::MaxHold,
        Self::OnBusy,
        Self::OnLost,
        Self::Provider,
        Self::Crate,
    ];

    pub(crate) fn as_str(self) -> &'static str {
        self.example().split_once(" = ").map_or("", |(key, _)| key)
    }

    /// The argument with a typical value.
    pub(crate) fn example(self) -> &'static str {
        match self {
            Self::Name => "name = \"report:<id>\"",
            Self::Expiry => "expiry = \"30s\"",
            Self::RenewInterval => "renew_interval = \"10s\"",
            Self::AcquireTimeout => "acquire_timeout = \"10s\"",
            Self::MinHold => "min_hold = \"1m\"",
            Self::MaxHold => "max_hold = \"1h\"",
            Self::OnBusy => "on_busy = \"skip\"",
            Self::OnLost => "on_lost = \"continue\"",
            Self::Provider => "provider = self.provider",
            Self::Crate => "crate = my_crate::mongolock",
        }
    }

    pub(crate) fn find(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|key| key.as_str() == word)
    }

    pub(crate) fn nearest(word: &str) -> Option<Self> {
        similar::nearest(word, Self::ALL.map(Self::as_str)).and_then(Self::find)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_leads_back_to_its_key() {
        for key in Key::ALL {
            assert_eq!(Key::find(key.as_str()), Some(key));
            assert_eq!(Key::nearest(key.as_str()), Some(key));
        }
    }
}
