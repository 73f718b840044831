//! The ids in documents: the `lockId` of a hold, and the `_id` of a permit. The library writes them, and its public
//! interface does not have all of them.

/// The character between the name of a semaphore and the number of a permit.
const SEPARATOR: char = '\u{1f}';

/// The character after the separator: the ids of all permits are less than the name of the semaphore and this.
const AFTER_SEPARATOR: char = ' ';

/// The beginning of a `lockId` that is not a hold: the mark of finished work.
const DONE: &str = "done:";

/// Whether a `lockId` is the mark of finished work.
pub(crate) fn is_done(lock_id: &str) -> bool {
    lock_id.starts_with(DONE)
}

/// The beginning of the `_id`s of all permits of a semaphore.
pub(crate) fn any_permit(semaphore: &str) -> String {
    format!("{semaphore}{SEPARATOR}")
}

/// The least text that is greater than the ids of all permits of a semaphore.
pub(crate) fn after_permits(semaphore: &str) -> String {
    format!("{semaphore}{AFTER_SEPARATOR}")
}

/// The name of the lock with this `_id`, or that of the semaphore and the number of the permit.
pub(crate) fn name_and_permit(id: &str) -> (&str, Option<u32>) {
    let permit = id.rsplit_once(SEPARATOR);
    let permit = permit.and_then(|(semaphore, number)| Some((semaphore, Some(number.parse().ok()?))));
    permit.unwrap_or((id, None))
}
