//! The id of a claim in the lock's document: `<owner>#<uuid>`. Its UUID says what kind of claim it is:
//!
//! | claim | version | byte 14 | byte 15 |
//! |---|---|---|---|
//! | of one lock | 4 | any other | any other |
//! | of several locks | 4 | any other | [`OF_SET`] |
//! | of a lease that was resumed | 4 | [`OF_RESUMED`] | as above |
//! | of a detached lease | 8 | any | as above |

use std::sync::Arc;

use sha2::{Digest, Sha256};
use uuid::fmt::Hyphenated;
use uuid::{Builder, Uuid};

/// The beginning of a `lockId` that is a mark and no claim: it says that work is done, and no holder relies on it.
pub(crate) const MARK_PREFIX: &str = "done:";

/// The beginning of a `lockId` that was released before the end of its minimum hold, which keeps the lock taken.
pub(crate) const KEPT_PREFIX: &str = "kept:";

/// The last byte of the UUID of claims on several locks; the UUIDs of other claims end with another byte.
pub(crate) const OF_SET: u8 = 0x5e;

/// The last byte but one of the UUID of a claim by which a detached lease was resumed; other random UUIDs have another byte
/// there.
pub(crate) const OF_RESUMED: u8 = 0xd7;

/// The version of the UUID of a detached lease.
const DETACHED_VERSION: usize = 8;

/// The id of a detached lease with this owner whose handle has this text. The text cannot be found from the id.
pub(crate) fn detached(owner: &str, text: &str, is_set: bool) -> Arc<str> {
    let digest: [u8; 32] = Sha256::digest(text).into();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    if is_set {
        bytes[15] = OF_SET;
    } else if bytes[15] == OF_SET {
        bytes[15] = !OF_SET;
    }
    new(owner, Builder::from_custom_bytes(bytes).into_uuid())
}

/// The UUID in an id or in a mark; `None` after a release, and for a claim of another program.
fn uuid(id: &str) -> Option<Uuid> {
    let (_, uuid) = id.rsplit_once('#')?;
    Uuid::try_parse(uuid).ok()
}

/// Whether an id is that of claims on several locks.
pub(crate) fn is_set(id: &str) -> bool {
    uuid(id).is_some_and(|uuid| uuid.as_bytes()[15] == OF_SET)
}

/// Whether an id is that of a detached lease, which no process renews.
pub(crate) fn is_detached(id: &str) -> bool {
    uuid(id).is_some_and(|uuid| uuid.get_version_num() == DETACHED_VERSION)
}

/// Whether an id is that of a claim by which a detached lease was resumed.
pub(crate) fn is_resumed(id: &str) -> bool {
    let is_resumed =
        |uuid: Uuid| uuid.get_version_num() != DETACHED_VERSION && uuid.as_bytes()[14] == OF_RESUMED;
    uuid(id).is_some_and(is_resumed)
}

/// Whether an id shows that a lease was detached or resumed: the lock was not acquired then.
pub(crate) fn has_changed_hands(id: &str) -> bool {
    is_detached(id) || is_resumed(id)
}

/// The id of this owner's claim with this random UUID.
pub(crate) fn new(owner: &str, uuid: Uuid) -> Arc<str> {
    let mut id = String::with_capacity(owner.len() + 1 + Hyphenated::LENGTH);
    id.push_str(owner);
    id.push('#');
    let mut text = Uuid::encode_buffer();
    id.push_str(uuid.hyphenated().encode_lower(&mut text));
    id.into()
}

/// The owner in an id, in a mark or during a minimum hold: the part before the last `#`. An owner may contain a `#`, the
/// part after it does not. `None` after a release, and for a claim of another program.
pub(crate) fn owner(id: &str) -> Option<&str> {
    let claim = id
        .strip_prefix(MARK_PREFIX)
        .or_else(|| id.strip_prefix(KEPT_PREFIX));
    claim.unwrap_or(id).rsplit_once('#').map(|(owner, _)| owner)
}

/// The claim or the mark that has the lock; empty after a release, also while a minimum hold keeps the lock taken.
pub(crate) fn taken_by(id: &str) -> &str {
    if id.starts_with(KEPT_PREFIX) { "" } else { id }
}

/// Whether an id is that of a claim that has the lock.
pub(crate) fn is_claim(id: &str) -> bool {
    !(taken_by(id).is_empty() || is_mark(id))
}

/// What a claim leaves that is released during its minimum hold.
pub(crate) fn kept_of(id: &str) -> String {
    format!("{KEPT_PREFIX}{id}")
}

/// Whether an id is the mark of work that is done.
pub(crate) fn is_mark(id: &str) -> bool {
    id.starts_with(MARK_PREFIX)
}

/// The mark that a claim leaves when its work is done.
pub(crate) fn mark_of(id: &str) -> String {
    format!("{MARK_PREFIX}{id}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_a_detached_lease_comes_from_the_whole_text_of_its_handle() {
        let id = detached("host#1:2", "text", false);
        assert_eq!(owner(&id), Some("host#1:2"));
        assert_eq!(id, detached("host#1:2", "text", false));
        assert_ne!(id, detached("host#1:2", "texT", false));
        for number in 0..1000 {
            let text = number.to_string();
            for of_set in [false, true] {
                let id = detached("owner", &text, of_set);
                assert!(is_detached(&id) && has_changed_hands(&id), "{id}");
                assert_eq!(is_set(&id), of_set, "{id}");
            }
        }
    }

    #[test]
    fn an_id_of_another_program_has_not_changed_hands() {
        for id in ["", "owner#1", "0b8e3f3a-6d0c-8a53-a3a4-5f0f6a5cd711"] {
            assert!(
                !is_detached(id) && !has_changed_hands(id) && !is_set(id),
                "{id:?}"
            );
        }
    }

    #[test]
    fn an_id_has_its_owner() {
        let id = new("host#1:2", Uuid::nil());
        assert_eq!(&*id, "host#1:2#00000000-0000-0000-0000-000000000000");
        assert_eq!(owner(&id), Some("host#1:2"));
        assert_eq!(owner(""), None);
        let mark = mark_of(&id);
        assert!(is_mark(&mark) && !is_mark(&id) && !is_mark(""));
        assert_eq!(owner(&mark), Some("host#1:2"));
        let kept = kept_of(&id);
        assert_eq!((owner(&kept), taken_by(&kept)), (Some("host#1:2"), ""));
        assert_eq!((taken_by(&id), taken_by(&mark)), (&*id, &*mark));
        assert!(is_claim(&id) && ![&mark, &kept, ""].into_iter().any(is_claim));
    }
}
