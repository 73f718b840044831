//! The id of a claim in the lock's document: `<owner>#<uuid>`.

use std::sync::Arc;

use uuid::Uuid;
use uuid::fmt::Hyphenated;

/// A new id of this owner.
pub(crate) fn new(owner: &str) -> Arc<str> {
    let mut id = String::with_capacity(owner.len() + 1 + Hyphenated::LENGTH);
    id.push_str(owner);
    id.push('#');
    let mut text = Uuid::encode_buffer();
    id.push_str(Uuid::new_v4().hyphenated().encode_lower(&mut text));
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
    fn an_id_has_its_owner_and_is_never_used_again() {
        let (first, second) = (new("host#1:2"), new("host#1:2"));
        assert_ne!(first, second);
        assert_eq!(owner(&first), Some("host#1:2"));
        assert_eq!(first.len(), "host#1:2".len() + 37);
        assert_eq!(owner(""), None);
    }
}
