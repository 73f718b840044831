use crate::LockError;

/// The greatest length of a name in bytes: the name is an `_id` and stands in an index, and a longer one is almost
/// certainly a mistake.
pub(crate) const MAX_BYTES: usize = 1024;

/// Checks a rendered name against the rules for names.
pub(crate) fn check(name: &str) -> Result<(), LockError> {
    match broken_rule(name) {
        None => Ok(()),
        Some(reason) => Err(LockError::InvalidName {
            name: excerpt(name),
            reason,
        }),
    }
}

fn broken_rule(name: &str) -> Option<String> {
    if name.is_empty() {
        return Some("it is empty".into());
    }
    if name.len() > MAX_BYTES {
        return Some(format!("it has {} bytes, more than {MAX_BYTES}", name.len()));
    }
    name.chars()
        .find(|c| c.is_control())
        .map(|c| format!("it contains the control character {c:?}"))
}

/// The name, shortened for an error message, so that a very long one does not flood a log.
fn excerpt(name: &str) -> String {
    const SHOWN: usize = 120;
    match name.char_indices().nth(SHOWN) {
        Some((cut, _)) => format!("{}...", &name[..cut]),
        None => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_name_passes_and_a_longer_one_is_refused() {
        assert!(check(&"n".repeat(MAX_BYTES)).is_ok());
        let error = check(&"n".repeat(MAX_BYTES + 1)).unwrap_err().to_string();
        assert!(error.contains("1025 bytes") && error.len() < 300, "{error}");
    }

    #[test]
    fn empty_names_and_control_characters_are_refused() {
        for bad in ["", "a\nb", "\u{7f}", "a\u{85}b"] {
            assert!(
                matches!(check(bad), Err(LockError::InvalidName { .. })),
                "{bad:?}"
            );
        }
        assert!(check("Bericht:Ä/ß 1").is_ok());
    }
}
