//! The texts that a placeholder can give: exactly those that rendering gives, so that a proof about them holds for all
//! names, and an overlap can be shown.

use std::fmt::Write;

/// A placeholder as the set of texts that it can give.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hole {
    /// The placeholder as written; two of the same text have the same value.
    pub(crate) written: String,
    pub(crate) values: Values,
    /// The character that is escaped in the value, and `%` with it; `None` for the last placeholder of a template,
    /// whose value is not escaped.
    pub(crate) separator: Option<char>,
}

/// The values of a placeholder before they are escaped. None of them is empty, because an empty value is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Values {
    /// Any text.
    Any,
    /// `0|[1-9][0-9]*`, with the number of bits of the type; the size of a pointer counts as 64.
    Unsigned(u8),
    /// `0|-?[1-9][0-9]*`, with the number of bits of the type; the size of a pointer counts as 64.
    Signed(u8),
}

impl Values {
    /// The values of a primitive integer; any text for all other words.
    pub(crate) fn of_integer(word: &str) -> Self {
        match word {
            "u8" => Self::Unsigned(8),
            "u16" => Self::Unsigned(16),
            "u32" => Self::Unsigned(32),
            "u64" | "usize" => Self::Unsigned(64),
            "u128" => Self::Unsigned(128),
            "i8" => Self::Signed(8),
            "i16" => Self::Signed(16),
            "i32" => Self::Signed(32),
            "i64" | "isize" => Self::Signed(64),
            "i128" => Self::Signed(128),
            _ => Self::Any,
        }
    }

    /// Whether this text is one of the values. The language leaves out the bounds of the integers; a witness keeps
    /// them.
    pub(crate) fn contains(self, text: &str) -> bool {
        match self {
            Self::Any => !text.is_empty(),
            Self::Unsigned(bits) => text
                .parse::<u128>()
                .is_ok_and(|value| value.to_string() == text && value <= u128::MAX >> (128 - bits)),
            Self::Signed(bits) => text.parse::<i128>().is_ok_and(|value| {
                let bounds = i128::MIN >> (128 - bits)..=i128::MAX >> (128 - bits);
                value.to_string() == text && bounds.contains(&value)
            }),
        }
    }
}

/// How a character is written in a value whose separator this is: the character itself, or its escape.
pub(crate) fn escaped(character: char, separator: Option<char>) -> String {
    if separator.is_none_or(|separator| character != separator && character != '%') {
        return character.to_string();
    }
    let (mut escape, mut bytes) = (String::new(), [0; 4]);
    for byte in character.encode_utf8(&mut bytes).bytes() {
        // Writing to a string cannot fail.
        let _ = write!(escape, "%{byte:02X}");
    }
    escape
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bounds_of_integers_are_known() {
        for (word, inside, outside) in [
            ("u8", ["0", "255"], "256"),
            ("i8", ["-128", "127"], "-129"),
            ("u128", ["1", "340282366920938463463374607431768211455"], "-1"),
            ("i64", ["-9223372036854775808", "0"], "9223372036854775808"),
        ] {
            let values = Values::of_integer(word);
            assert!(inside.iter().all(|text| values.contains(text)), "{word}");
            for text in [outside, "", "00", "+1", "-0", "1a"] {
                assert!(!values.contains(text), "{word}: {text}");
            }
        }
        assert_eq!(Values::of_integer("String"), Values::Any);
    }
}
