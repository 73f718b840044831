use std::sync::Arc;

use uuid::{Builder, Uuid};

use crate::lock_id::{self, OF_RESUMED, OF_SET};

/// The length of a mark: the text of the first half of a UUID.
const LENGTH: usize = 18;

/// What tells a provider from all others. Owners do not: two providers of one host may have the same.
///
/// It is random, and it is the first half of every UUID in the provider's `lockId`s (`<owner>#<uuid>`), so that an event
/// or a document with a `lockId` tells which provider has the lock.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ProviderMark {
    /// The mark as it stands in documents.
    text: Arc<str>,
    bytes: [u8; 8],
}

impl ProviderMark {
    pub(crate) fn random() -> Self {
        let (bytes, _) = Uuid::new_v4().as_u64_pair();
        let bytes = bytes.to_be_bytes();
        let uuid = with_second_half(bytes, [0; 8]).to_string();
        Self {
            text: Arc::from(&uuid[..LENGTH]),
            bytes,
        }
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// A new `lockId` of this provider, which is never used again.
    pub(crate) fn new_lock_id(&self, owner: &str) -> Arc<str> {
        self.new_id(owner, None, None)
    }

    /// A new `lockId` for the claims on all names of a set, which is never used again.
    pub(crate) fn new_set_id(&self, owner: &str) -> Arc<str> {
        self.new_id(owner, None, Some(OF_SET))
    }

    /// A new `lockId` by which a detached lease is resumed. It is used again only to give that lease back.
    pub(crate) fn new_resumed_id(&self, owner: &str, is_set: bool) -> Arc<str> {
        self.new_id(owner, Some(OF_RESUMED), is_set.then_some(OF_SET))
    }

    /// A new `lockId` whose UUID ends with these two bytes; without a value a byte is random, and not that of another kind.
    fn new_id(&self, owner: &str, byte_14: Option<u8>, byte_15: Option<u8>) -> Arc<str> {
        let mut second_half = random_half();
        while second_half[6] == OF_RESUMED || second_half[7] == OF_SET {
            second_half = random_half();
        }
        second_half[6] = byte_14.unwrap_or(second_half[6]);
        second_half[7] = byte_15.unwrap_or(second_half[7]);
        lock_id::new(owner, with_second_half(self.bytes, second_half))
    }

    /// Whether the `lockId` is that of a claim of this provider.
    pub(crate) fn is_in(&self, lock_id: &str) -> bool {
        Self::in_lock_id(lock_id) == Some(self.as_str())
    }

    /// The mark in a `lockId`; `None` after a release, for a detached lease, and for the claim of another program.
    pub(crate) fn in_lock_id(lock_id: &str) -> Option<&str> {
        let (_, uuid) = lock_id.rsplit_once('#')?;
        Uuid::try_parse(uuid).ok()?;
        uuid.get(..LENGTH).filter(|_| !lock_id::is_detached(lock_id))
    }
}

fn random_half() -> [u8; 8] {
    let (_, half) = Uuid::new_v4().as_u64_pair();
    half.to_be_bytes()
}

/// The random UUID with these halves; version and variant are set, which the first half of a random UUID already has.
fn with_second_half(first: [u8; 8], second: [u8; 8]) -> Uuid {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&first);
    bytes[8..].copy_from_slice(&second);
    Builder::from_random_bytes(bytes).into_uuid()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_id_of_a_provider_has_its_mark_and_no_two_are_alike() {
        let (ours, theirs) = (ProviderMark::random(), ProviderMark::random());
        assert_ne!(ours, theirs);
        let mut ids = HashSet::new();
        for _ in 0..1000 {
            let id = ours.new_lock_id("a#b");
            assert_eq!(ProviderMark::in_lock_id(&id), Some(ours.as_str()), "{id}");
            assert!(id.starts_with("a#b#"), "{id}");
            let uuid = Uuid::try_parse(id.rsplit_once('#').unwrap().1).unwrap();
            assert_eq!(
                (uuid.get_version_num(), uuid.get_variant()),
                (4, uuid::Variant::RFC4122)
            );
            assert!(!lock_id::is_set(&id) && !lock_id::has_changed_hands(&id), "{id}");
            assert!(ids.insert(id));
            let id = ours.new_set_id("a#b");
            assert_eq!(ProviderMark::in_lock_id(&id), Some(ours.as_str()), "{id}");
            assert!(lock_id::is_set(&id) && !lock_id::has_changed_hands(&id), "{id}");
            assert!(ids.insert(id));
            for is_set in [false, true] {
                let id = ours.new_resumed_id("a#b", is_set);
                assert_eq!(ProviderMark::in_lock_id(&id), Some(ours.as_str()), "{id}");
                assert!(
                    lock_id::has_changed_hands(&id) && !lock_id::is_detached(&id),
                    "{id}"
                );
                assert_eq!(lock_id::is_set(&id), is_set, "{id}");
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
            &lock_id::detached("owner", "text", false),
        ] {
            assert_eq!(ProviderMark::in_lock_id(id), None, "{id}");
        }
        let marked = "done:a#0b8e3f3a-6d0c-4a53-a3a4-5f0f6a5c3c11";
        assert_eq!(ProviderMark::in_lock_id(marked), Some("0b8e3f3a-6d0c-4a53"));
    }
}
