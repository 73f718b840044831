use std::cmp::Ordering;
use std::sync::Arc;

/// The name of a lock, which is the `_id` of its document.
pub(crate) type Name = Arc<str>;

/// The text of a `lockId`.
pub(crate) type LockId = Arc<str>;

/// Milliseconds: a time of the server's clock since 1970, or a length of time.
pub(crate) type Ms = i64;

/// The value of a field: the library's own types, and any other one that a damaged document or another program can have.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) enum Value {
    /// The field does not exist.
    #[default]
    Missing,
    /// Null.
    Null,
    Int(i32),
    Long(i64),
    Double(f64),
    Text(Arc<str>),
    Date(Ms),
    /// Any other type: the bytes of a BSON document that has only this value.
    Other(Arc<[u8]>),
}

/// The index of the type byte in a BSON document.
const TYPE_BYTE: usize = 4;

/// The types that MongoDB sorts after dates: regular expressions, timestamps, code, pointers and the greatest key.
const AFTER_DATES: [u8; 6] = [0x0b, 0x0c, 0x0d, 0x0f, 0x11, 0x7f];

impl Value {
    pub(crate) fn text(&self) -> Option<&Arc<str>> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn date(&self) -> Option<Ms> {
        match self {
            Self::Date(date) => Some(*date),
            _ => None,
        }
    }

    pub(crate) fn long(&self) -> Option<i64> {
        match self {
            Self::Long(number) => Some(*number),
            _ => None,
        }
    }

    pub(super) fn is_nothing(&self) -> bool {
        matches!(self, Self::Missing | Self::Null)
    }

    /// The order of this value and a date by MongoDB's rules.
    pub(super) fn compare(&self, date: Ms) -> Ordering {
        match self {
            Self::Date(own) => own.cmp(&date),
            Self::Other(bytes) if AFTER_DATES.contains(&bytes[TYPE_BYTE]) => Ordering::Greater,
            _ => Ordering::Less,
        }
    }

    /// Whether it is a number.
    pub(super) fn is_number(&self) -> bool {
        matches!(self, Self::Int(_) | Self::Long(_) | Self::Double(_))
    }
}
