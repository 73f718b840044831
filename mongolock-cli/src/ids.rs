//! What the ids in documents say: the `lockId` of a hold, and the `_id` of a lock or permit. The library writes them, and its
//! public interface does not have all of it.

/// The lock of `record`, by which one of several recorders works.
pub(crate) const RECORDER: &str = "mongolock:recorder";

/// What stands between the name of a semaphore and the number of a permit. A wait for any permit ends with it.
const SEPARATOR: char = '\u{1f}';

/// The character after the separator: the ids of all permits are less than the name of the semaphore and this.
const AFTER_SEPARATOR: char = ' ';

/// The beginning of a `lockId` that is no hold: the mark of finished work.
const DONE: &str = "done:";

/// The beginning of a `lockId` that was released, and keeps the lock taken until the end of its minimum hold.
const KEPT: &str = "kept:";

/// The length of the mark of a process: the first half of the UUID in a `lockId`.
const MARK: usize = 18;

/// The owner in a `lockId`; all of it for the hold of another program.
pub(crate) fn owner(lock_id: &str) -> &str {
    lock_id.rsplit_once('#').map_or(lock_id, |(owner, _)| owner)
}

/// The mark of the process in a `lockId`; `None` for the hold of another program.
pub(crate) fn mark(lock_id: &str) -> Option<&str> {
    let (_, uuid) = lock_id.rsplit_once('#')?;
    uuid.get(..MARK)
}

/// Whether a `lockId` is that of a hold: neither of a released lock nor of finished work.
pub(crate) fn is_hold(lock_id: &str) -> bool {
    !(lock_id.is_empty() || is_done(lock_id) || lock_id.starts_with(KEPT))
}

/// Whether a `lockId` is the mark of finished work.
pub(crate) fn is_done(lock_id: &str) -> bool {
    lock_id.starts_with(DONE)
}

/// The `lockId` of the hold, which the mark of finished work has in it.
pub(crate) fn hold(lock_id: &str) -> &str {
    lock_id.strip_prefix(DONE).unwrap_or(lock_id)
}

/// The name by which callers wait for any permit of a semaphore; the ids of its permits begin with it.
pub(crate) fn any_permit(semaphore: &str) -> String {
    format!("{semaphore}{SEPARATOR}")
}

/// Whether callers wait by this name for a permit.
pub(crate) fn is_any_permit(awaited: &str) -> bool {
    awaited.ends_with(SEPARATOR)
}

/// The name that users know, of one by which callers wait.
pub(crate) fn shown(awaited: &str) -> &str {
    awaited.strip_suffix(SEPARATOR).unwrap_or(awaited)
}

/// The least text that is greater than the ids of all permits of a semaphore.
pub(crate) fn after_permits(semaphore: &str) -> String {
    format!("{semaphore}{AFTER_SEPARATOR}")
}

/// The `_id` of a lock, or of a permit of a semaphore.
pub(crate) fn document(name: &str, permit: Option<u32>) -> String {
    match permit {
        Some(number) => format!("{name}{SEPARATOR}{number}"),
        None => name.to_owned(),
    }
}

/// The name by which callers wait for the lock or permit with this `_id`, and the number of the permit.
pub(crate) fn awaited(id: &str) -> (String, Option<u32>) {
    let permit = id.rsplit_once(SEPARATOR);
    let permit = permit.and_then(|(semaphore, number)| Some((semaphore, number.parse().ok()?)));
    permit.map_or_else(
        || (id.to_owned(), None),
        |(semaphore, number)| (any_permit(semaphore), Some(number)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_id_names_its_owner_and_its_process() {
        let id = "web#1:7#01234567-89ab-4cde-8f01-23456789abcd";
        assert_eq!((owner(id), mark(id)), ("web#1:7", Some("01234567-89ab-4cde")));
        assert_eq!((owner("script"), mark("script")), ("script", None));
        assert_eq!(mark("script#1"), None);
        assert!(is_done("done:anna#1") && !is_done("anna#done:"));
        assert!(is_hold("anna#1") && !["", "done:anna#1", "kept:anna#1"].into_iter().any(is_hold));
        assert_eq!((hold("done:anna#1"), hold("anna#1")), ("anna#1", "anna#1"));
    }

    #[test]
    fn the_id_of_a_permit_has_its_number() {
        let id = document("export", Some(12));
        assert_eq!(awaited(&id), (any_permit("export"), Some(12)));
        assert_eq!(awaited(&document("export", None)), ("export".to_owned(), None));
        assert!(is_any_permit(&any_permit("export")) && !is_any_permit(&id));
        assert_eq!(
            (shown(&any_permit("export")), shown("export")),
            ("export", "export")
        );
        assert!(any_permit("export") < id && id < after_permits("export"));
    }
}
