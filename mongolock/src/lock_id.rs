//! The id of a claim in the lock's document: `<owner>#<uuid>`.

use std::sync::Arc;

use uuid::Uuid;
use uuid::fmt::Hyphenated;

/// The id of this owner's claim with this random UUID.
pub(crate) fn new(owner: &str, uuid: Uuid) -> Arc<str> {
    let mut id = String::with_capacity(owner.len() + 1 + Hyphenated::LENGTH);
    id.push_str(owner);
    id.push('#');
    let mut text = Uuid::encode_buffer();
    id.push_str(uuid.hyphenated().encode_lower(&mut text));
    id.into()
}

/// The owner in an id: the part before the last `#`. An owner may contain a `#`, the part after it does not. `None`
/// after a release, and for a claim of another program.
pub(crate) fn owner(id: &str) -> Option<&str> {
    id.rsplit_once('#').map(|(owner, _)| owner)
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
    }
}
