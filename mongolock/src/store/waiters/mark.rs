use std::sync::Arc;

use uuid::Uuid;

use crate::protocol::{Id, Kind};

/// The length of a mark: the text of the first six bytes of a UUID.
const LENGTH: usize = 13;

/// What tells a provider from all others. Owners do not: two providers of one host may have the same.
///
/// It is random, and it is the beginning of every UUID in the provider's `lockId`s (`<owner>#<uuid>`), so that an event
/// or a document with a `lockId` tells which provider has the lock.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ProviderMark {
    /// The mark as it stands in documents.
    text: Arc<str>,
    bytes: [u8; 6],
}

impl ProviderMark {
    pub(crate) fn random() -> Self {
        let uuid = Uuid::new_v4();
        let [bytes @ .., _, _, _, _, _, _, _, _, _, _] = uuid.into_bytes();
        Self {
            text: Arc::from(&uuid.to_string()[..LENGTH]),
            bytes,
        }
    }

    #[cfg(any(test, feature = "next"))]
    pub(crate) fn bytes(&self) -> [u8; 6] {
        self.bytes
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// A new `lockId` of this provider, which is never used again.
    pub(crate) fn new_lock_id(&self, owner: &str, kind: Kind) -> Arc<str> {
        Id::new(self.bytes, kind, 0).text(owner)
    }

    /// Whether the `lockId` is that of a claim of this provider.
    pub(crate) fn is_in(&self, lock_id: &str) -> bool {
        Self::in_lock_id(lock_id) == Some(self.as_str())
    }

    /// The mark in a `lockId`; `None` after a release, for a detached lease, and for the claim of another program.
    pub(crate) fn in_lock_id(lock_id: &str) -> Option<&str> {
        let (_, uuid) = lock_id.rsplit_once('#')?;
        let id = Id::parse(lock_id)?;
        uuid.get(..LENGTH).filter(|_| !id.is_detached())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::lock_id;

    #[test]
    fn every_id_of_a_provider_has_its_mark_and_no_two_are_alike() {
        let (ours, theirs) = (ProviderMark::random(), ProviderMark::random());
        assert_ne!(ours, theirs);
        let mut ids = HashSet::new();
        for kind in [Kind::Single, Kind::Set, Kind::Permit, Kind::Resumed] {
            for _ in 0..100 {
                let id = ours.new_lock_id("a#b", kind);
                assert!(ours.is_in(&id) && !theirs.is_in(&id), "{id}");
                assert!(ours.is_in(&lock_id::mark_of(&id)), "{id}");
                assert!(id.starts_with("a#b#"), "{id}");
                assert!(ids.insert(id));
            }
        }
    }

    #[test]
    fn an_id_of_another_program_has_no_mark() {
        for id in [
            "",
            "0b8e3f3a-6d0c-4a53-a3a4-5f0f6a5c3c11",
            "owner#1",
            "a#ä0b8e3f3a-6d0c-4a53",
            "a#0b8e3f3a-6d0c-4a53-a3a4-5f0f6a5c3c11",
            &lock_id::detached("owner", "text", false),
        ] {
            assert_eq!(ProviderMark::in_lock_id(id), None, "{id}");
        }
    }
}
