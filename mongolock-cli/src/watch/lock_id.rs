//! What the id of a hold in a lock's document says: `<owner>#<uuid>`, after the prefix of a mark. See ARCHITECTURE.md.

/// The beginning of an id that is the mark of finished work.
const MARK: &str = "done:";

/// The number of characters of a UUID with hyphens.
const LENGTH: usize = 36;

/// The character of a UUID with its version, and the version of detached leases.
const VERSION: usize = 14;
const DETACHED: &str = "8";

/// The characters of a UUID with its byte 14, and that byte in the ids of holds that have resumed a lease.
const BYTE_14: usize = 32;
const RESUMED: &str = "d7";

pub(super) fn is_mark(id: &str) -> bool {
    id.starts_with(MARK)
}

/// The owner in an id or in a mark.
pub(super) fn owner(id: &str) -> Option<&str> {
    let claim = id.strip_prefix(MARK).unwrap_or(id);
    claim.rsplit_once('#').map(|(owner, _)| owner)
}

/// Whether it is the id of a detached lease.
pub(super) fn is_detached(id: &str) -> bool {
    has(id, VERSION, DETACHED)
}

/// Whether it is the id of a hold that has resumed a detached lease.
pub(super) fn is_resumed(id: &str) -> bool {
    has(id, BYTE_14, RESUMED) && !is_detached(id)
}

/// Whether the UUID has this text at this place. A mark is no hold.
fn has(id: &str, place: usize, text: &str) -> bool {
    let uuid = id.rsplit_once('#').map_or("", |(_, uuid)| uuid);
    !is_mark(id) && uuid.len() == LENGTH && uuid.get(place..).is_some_and(|rest| rest.starts_with(text))
}
