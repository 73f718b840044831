//! The texts of a `lockId`: a claim `<owner>#<uuid>`, the same with a prefix, nothing after a release, or the id of another
//! program.

/// The beginning of a `lockId` that is a mark and no claim: it says that work is done, and no holder relies on it.
pub(crate) const MARK_PREFIX: &str = "done:";

/// The beginning of a `lockId` that was released before the end of its minimum hold, which keeps the lock taken.
pub(crate) const KEPT_PREFIX: &str = "kept:";

/// The claim in an id, in a mark or in the text that a minimum hold keeps.
pub(crate) fn claim_in(id: &str) -> &str {
    let claim = id
        .strip_prefix(MARK_PREFIX)
        .or_else(|| id.strip_prefix(KEPT_PREFIX));
    claim.unwrap_or(id)
}

/// The owner in an id, in a mark or during a minimum hold: the part before the last `#`. An owner may contain a `#`, the
/// part after it does not. `None` after a release, and for a claim of another program.
pub(crate) fn owner(id: &str) -> Option<&str> {
    claim_in(id).rsplit_once('#').map(|(owner, _)| owner)
}

/// The claim or the mark that has the lock; empty after a release, also while a minimum hold keeps the lock taken.
pub(crate) fn taken_by(id: &str) -> &str {
    if id.starts_with(KEPT_PREFIX) { "" } else { id }
}

/// Whether an id is that of a claim that has the lock.
pub(crate) fn is_claim(id: &str) -> bool {
    !(taken_by(id).is_empty() || is_mark(id))
}

/// The text that a claim leaves if it is released during its minimum hold.
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
    fn an_id_has_its_owner() {
        let id = "host#1:2#00000000-0000-0000-0000-000000000000";
        assert_eq!(owner(id), Some("host#1:2"));
        assert_eq!(owner(""), None);
        let mark = mark_of(id);
        assert!(is_mark(&mark) && !is_mark(id) && !is_mark(""));
        assert_eq!(owner(&mark), Some("host#1:2"));
        let kept = kept_of(id);
        assert_eq!((owner(&kept), taken_by(&kept)), (Some("host#1:2"), ""));
        assert_eq!((taken_by(id), taken_by(&mark)), (id, &*mark));
        assert!(is_claim(id) && ![&mark, &kept, ""].into_iter().any(is_claim));
    }
}
