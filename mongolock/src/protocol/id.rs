//! The 16 bytes of the uuid in a `lockId`:
//!
//! | bytes | a claim | a detached lease |
//! |---|---|---|
//! | 0 to 5 | the mark of the provider | from the text of the handle |
//! | 6 | version 4 and the [`IdKind`] | version 8 and the [`IdKind`] |
//! | 7 | the time slot of the provider in milliseconds | from the text of the handle |
//! | 8 | the variant and a signature, which few ids of other programs have | the variant |
//! | 9 to 15 | random for each claim | from the text of the handle |
//!
//! An id with another layout belongs to another program.

use sha2::{Digest, Sha256};
use uuid::Uuid;
use uuid::fmt::Hyphenated;

use super::text::claim_in;
use super::value::LockId;

/// The variant of a uuid, and the signature.
const SIGN: u8 = 0x80 | 0x2d;

const CLAIM: u8 = 4;
const DETACHED: u8 = 8;

/// The uuid of a claim, or that of a detached lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Id([u8; 16]);

/// The kind of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum IdKind {
    Single = 0,
    /// A claim of a set, or the id that all names of a detached set have.
    Set = 1,
    Permit = 2,
    /// The claim that has resumed a detached lease.
    Resumed = 3,
}

impl Id {
    /// The id of a new claim, for tests.
    #[cfg(test)]
    pub(crate) fn new(mark: [u8; 6], kind: IdKind, time_slot: u8) -> Self {
        let random = Uuid::new_v4().as_u64_pair().1;
        Self::drawn(mark, kind, time_slot, random)
    }

    /// The id of a new claim with the lower 56 of these random bits. They come from the operating system, because a copied process
    /// must not repeat an earlier id.
    pub(crate) fn drawn(mark: [u8; 6], kind: IdKind, time_slot: u8, random: u64) -> Self {
        let mut bytes = [0; 16];
        bytes[..6].copy_from_slice(&mark);
        bytes[6] = CLAIM << 4 | kind as u8;
        bytes[7] = time_slot;
        bytes[8..].copy_from_slice(&random.to_be_bytes());
        bytes[8] = SIGN;
        Self(bytes)
    }

    /// The mark of the provider that has made the claim.
    pub(crate) fn mark(self) -> [u8; 6] {
        let mut mark = [0; 6];
        mark.copy_from_slice(&self.0[..6]);
        mark
    }

    /// The time slot that this provider needs, in milliseconds.
    pub(crate) fn time_slot(self) -> u8 {
        self.0[7]
    }

    /// The id of the detached lease whose handle has this text. The text cannot be computed from the id.
    pub(crate) fn of_handle(text: &str, is_of_set: bool) -> Self {
        let digest: [u8; 32] = Sha256::digest(text).into();
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&digest[..16]);
        let kind = if is_of_set { IdKind::Set } else { IdKind::Single };
        bytes[6] = DETACHED << 4 | kind as u8;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        Self(bytes)
    }

    /// The id in a `lockId`, also in a mark and during a minimum hold; `None` after a release and for another program.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (_, uuid) = claim_in(text).rsplit_once('#')?;
        let bytes = Uuid::try_parse(uuid).ok()?.into_bytes();
        let is_ours = match bytes[6] >> 4 {
            CLAIM => bytes[8] == SIGN,
            DETACHED => bytes[8] >> 6 == 0b10,
            _ => false,
        };
        is_ours.then_some(Self(bytes))
    }

    /// The `lockId` of this owner.
    pub(crate) fn text(self, owner: &str) -> LockId {
        let mut text = String::with_capacity(owner.len() + 1 + Hyphenated::LENGTH);
        text.push_str(owner);
        text.push('#');
        let mut buffer = Uuid::encode_buffer();
        text.push_str(Uuid::from_bytes(self.0).hyphenated().encode_lower(&mut buffer));
        text.into()
    }

    /// Whether no process renews the lease.
    pub(crate) fn is_detached(self) -> bool {
        self.0[6] >> 4 == DETACHED
    }

    /// Whether all names of a detached set have it.
    pub(crate) fn is_of_detached_set(self) -> bool {
        self.is_detached() && self.is_of(IdKind::Set)
    }

    /// Whether a detached lease was resumed with it.
    pub(crate) fn is_resumed(self) -> bool {
        !self.is_detached() && self.is_of(IdKind::Resumed)
    }

    /// Whether the id shows that a lease was detached or resumed, so that its appearance is not an acquisition.
    pub(crate) fn has_changed_hands(self) -> bool {
        self.is_detached() || self.is_resumed()
    }

    fn is_of(self, kind: IdKind) -> bool {
        self.0[6] & 0xf == kind as u8
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn an_id_keeps_what_it_was_made_of_and_no_two_are_alike() {
        let kinds = [IdKind::Single, IdKind::Set, IdKind::Permit, IdKind::Resumed];
        let mut ids = HashSet::new();
        for kind in kinds.into_iter().cycle().take(1000) {
            let id = Id::new([1, 2, 3, 4, 5, 6], kind, 25);
            let text = id.text("a#b");
            assert!(text.starts_with("a#b#01020304-0506-4"), "{text}");
            for text in [&*text, &format!("done:{text}"), &format!("kept:{text}")] {
                assert_eq!(Id::parse(text), Some(id));
            }
            let uuid = Uuid::from_bytes(id.0);
            assert_eq!(uuid.get_version_num(), 4);
            assert_eq!(uuid.get_variant(), uuid::Variant::RFC4122);
            assert_eq!(id.is_resumed(), kind == IdKind::Resumed);
            assert_eq!(id.has_changed_hands(), id.is_resumed());
            assert!(!id.is_detached() && !id.is_of_detached_set() && ids.insert(id));
        }
    }

    #[test]
    fn the_id_of_a_detached_lease_comes_from_the_whole_text_of_its_handle() {
        let id = Id::of_handle("text", false);
        assert_eq!(id, Id::of_handle("text", false));
        assert_ne!(id, Id::of_handle("texT", false));
        for number in 0..1000 {
            for is_of_set in [false, true] {
                let id = Id::of_handle(&number.to_string(), is_of_set);
                assert!(id.is_detached() && id.has_changed_hands() && !id.is_resumed());
                assert_eq!(id.is_of_detached_set(), is_of_set);
                assert_eq!(Id::parse(&id.text("host#1")), Some(id));
            }
        }
    }

    #[test]
    fn the_ids_of_other_programs_are_foreign() {
        for text in [
            "",
            "owner#1",
            "0b8e3f3a-6d0c-4a53-ada4-5f0f6a5c3c11",
            "owner#0b8e3f3a-6d0c-4a53-a3a4-5f0f6a5c3c11",
            "owner#0b8e3f3a-6d0c-7a53-ada4-5f0f6a5c3c11",
        ] {
            assert_eq!(Id::parse(text), None, "{text:?}");
        }
    }
}
