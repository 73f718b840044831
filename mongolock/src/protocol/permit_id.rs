//! The documents of permits. Permit k of a semaphore is an ordinary lock whose `_id` is the semaphore's name, a separator
//! and k; no user's lock can have it, because names with control characters are refused.

use std::sync::Arc;

/// The largest number of permits: a query over all of them must stay small.
pub(crate) const MOST_PERMITS: u32 = 1000;

/// The character between the name of a semaphore and the number of a permit.
const SEPARATOR: char = '\u{1f}';

/// The character after the separator: all ids that begin with a name and the separator are less than the name and this.
const AFTER_SEPARATOR: char = ' ';

/// The `_id` of the document of a permit.
pub(crate) fn new(semaphore: &str, number: u32) -> Arc<str> {
    Arc::from(format!("{semaphore}{SEPARATOR}{number}"))
}

/// The name that means all permits of a semaphore: the name of their room in this process. No document of a lock has
/// it.
pub(crate) fn group(semaphore: &str) -> Arc<str> {
    Arc::from(format!("{semaphore}{SEPARATOR}"))
}

/// Whether the name means all permits of a semaphore.
pub(crate) fn is_group(name: &str) -> bool {
    name.ends_with(SEPARATOR)
}

/// The least text that is greater than the ids of all permits of a semaphore.
pub(crate) fn end_of_ids(semaphore: &str) -> String {
    format!("{semaphore}{AFTER_SEPARATOR}")
}

/// The semaphore and the number of the permit that has this `_id`; `None` for any other lock.
pub(crate) fn parts(id: &str) -> Option<(&str, u32)> {
    let (semaphore, digits) = id.rsplit_once(SEPARATOR)?;
    let number: u32 = digits.parse().ok()?;
    // Each permit has exactly one id: `+1` and `01` are not valid numbers.
    (number.to_string() == digits).then_some((semaphore, number))
}

/// The number of the permit that has this `_id`; `None` for any other lock.
pub(crate) fn number(id: &str) -> Option<u32> {
    parts(id).map(|(_, number)| number)
}

/// The name that users know of a document: for a permit that of its semaphore.
pub(crate) fn name(id: &str) -> &str {
    parts(id).map_or(id, |(semaphore, _)| semaphore)
}

/// The same, or for the name that means all permits of a semaphore that of the semaphore.
pub(crate) fn shown(id: &str) -> &str {
    name(id).strip_suffix(SEPARATOR).unwrap_or(name(id))
}

/// The name under which calls wait for a lock: a call for a permit takes any permit of its semaphore.
pub(crate) fn awaited(id: &str) -> &str {
    match parts(id) {
        Some((semaphore, _)) => &id[..semaphore.len() + SEPARATOR.len_utf8()],
        None => id,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_the_name_and_the_number() {
        for (name, number) in [("export", 0), ("export:Ä", 999), ("a b", u32::MAX)] {
            let id = new(name, number);
            assert_eq!(parts(&id), Some((name, number)));
            assert_eq!((shown(&id), shown(&group(name)), shown(name)), (name, name, name));
            assert_eq!(awaited(&id), &*group(name));
            assert!(is_group(awaited(&id)) && !is_group(&id));
            assert!(*group(name) <= *id && *id < *end_of_ids(name));
        }
    }

    #[test]
    fn other_locks_are_no_permits() {
        for other in ["export", "export\u{1f}", "export\u{1f}01", "export\u{1f}+1"] {
            assert_eq!(parts(other), None, "{other:?}");
            assert_eq!(awaited(other), other);
        }
    }
}
