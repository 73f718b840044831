//! The id of a claim in the lock's document: `<owner>#<uuid>`.

use std::sync::Arc;

use uuid::Uuid;
use uuid::fmt::Hyphenated;

/// The beginning of a `lockId` that is a mark and no claim: it says that work is done, and no holder relies on it.
pub(crate) const MARK_PREFIX: &str = "done:";

/// The id of this owner's claim with this random UUID.
pub(crate) fn new(owner: &str, uuid: Uuid) -> Arc<str> {
    let mut id = String::with_capacity(owner.len() + 1 + Hyphenated::LENGTH);
    id.push_str(owner);
    id.push('#');
    let mut text = Uuid::encode_buffer();
    id.push_str(uuid.hyphenated().encode_lower(&mut text));
    id.into()
}

/// The owner in an id or in a mark: the part before the last `#`. An owner may contain a `#`, the part after it does not.
/// `None` after a release, and for a claim of another program.
pub(crate) fn owner(id: &str) -> Option<&str> {
    let claim = id.strip_prefix(MARK_PREFIX).unwrap_or(id);
    claim.rsplit_once('#').map(|(owner, _)| owner)
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
    fn an_id_has_its_owner() {
        let id = new("host#1:2", Uuid::nil());
        assert_eq!(&*id, "host#1:2#00000000-0000-0000-0000-000000000000");
        assert_eq!(owner(&id), Some("host#1:2"));
        assert_eq!(owner(""), None);
        let mark = mark_of(&id);
        assert!(is_mark(&mark) && !is_mark(&id) && !is_mark(""));
        assert_eq!(owner(&mark), Some("host#1:2"));
    }
}
