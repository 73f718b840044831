mod escape;
mod integer;
mod lock_name;
mod rendered;
mod rendering;

pub use self::escape::escape;
pub use self::integer::{SignedInteger, UnsignedInteger};
pub(crate) use self::lock_name::whole;
pub use self::lock_name::{IntoLockName, LockName, declared_lock_name};
pub(crate) use self::rendered::RenderedName;
pub use self::rendering::{NameBuilder, NameValue};

#[cfg(test)]
mod tests {
    use super::rendered::{Flaw, MAX_BYTES};
    use super::*;
    use crate::LockError;

    fn check(name: &str) -> Result<(), LockError> {
        RenderedName::new(name).check()
    }

    #[test]
    fn the_longest_name_passes_and_a_longer_one_is_refused() {
        assert!(check(&"n".repeat(MAX_BYTES)).is_ok());
        let error = check(&"n".repeat(MAX_BYTES + 1)).unwrap_err().to_string();
        let is_told = error.contains("longer than 1024 bytes") && error.len() < 300;
        assert!(is_told, "{error}");
        let long = RenderedName::new("n".repeat(MAX_BYTES + 1)).at(std::time::UNIX_EPOCH);
        let error = long.check().unwrap_err().to_string();
        assert!(error.contains("nnn") && error.contains("longer than"), "{error}");
    }

    #[test]
    fn empty_names_control_characters_and_white_space_at_the_ends_are_refused() {
        let permit = crate::permit_id::new("export", 0);
        for bad in ["", "a\nb", "\u{7f}", "a\u{85}b", &permit] {
            let error = check(bad);
            assert!(matches!(error, Err(LockError::InvalidName { .. })), "{bad:?}");
        }
        for bad in [" a", "a ", "\u{a0}a", "a\u{3000}", " "] {
            let error = check(bad).unwrap_err().to_string();
            assert!(error.contains("begins or ends with white space"), "{error}");
        }
        assert!(check("Bericht:Ä/ß 1").is_ok());
        assert_eq!(whole(" a ").unwrap(), " a ", "operators can use any name");
    }

    #[test]
    fn a_character_is_never_cut() {
        let name = RenderedName::new("n".repeat(MAX_BYTES - 2) + "😀");
        assert_eq!(name.text.len(), MAX_BYTES - 2);
        assert!(matches!(name.check(), Err(LockError::InvalidName { .. })));
    }

    #[test]
    fn text_after_the_end_is_not_kept() {
        let name = NameBuilder::new(MAX_BYTES).text(&"n".repeat(MAX_BYTES - 1));
        let name = name.text("😀").text("a").value("id", "").finish();
        assert_eq!(name.text.len(), MAX_BYTES - 1);
        assert_eq!(name.flaw.as_deref(), Some(&Flaw::TooLong));
    }
}
