//! How a message stands in a file: a record that shows whether it is whole.
//!
//! ```text
//! begin 17 token 1763700000000000 length 29
//! orders, number 17: 4 articles
//! end 17
//! ```

/// One message, and the fencing token of the hold under which it was appended: 0 without a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) sequence: u32,
    pub(crate) token: i64,
    pub(crate) text: String,
}

/// What was found in a file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Contents {
    /// The records that are whole, in their order.
    pub(crate) records: Vec<Record>,
    /// The places between them that are no record: torn, or written by two at once.
    pub(crate) damaged: usize,
}

impl Record {
    /// The small writes that make up the record. One write would do: this is the program that writes carelessly.
    pub(crate) fn pieces(&self) -> [Vec<u8>; 4] {
        let Self {
            sequence,
            token,
            text,
        } = self;
        let (first, second) = text.as_bytes().split_at(text.len() / 2);
        [
            format!("begin {sequence} token {token} length {}\n", text.len()).into_bytes(),
            first.to_vec(),
            second.to_vec(),
            format!("\nend {sequence}\n").into_bytes(),
        ]
    }

    /// The record that `file` begins with, and what comes after it.
    fn read(file: &str) -> Option<(Self, &str)> {
        let (header, rest) = file.split_once('\n')?;
        let words: Vec<&str> = header.split(' ').collect();
        let ["begin", sequence, "token", token, "length", length] = words[..] else {
            return None;
        };
        let (text, rest) = rest.split_at_checked(length.parse().ok()?)?;
        let rest = rest.strip_prefix(&format!("\nend {sequence}\n"))?;
        let record = Self {
            sequence: sequence.parse().ok()?,
            token: token.parse().ok()?,
            text: text.to_owned(),
        };
        Some((record, rest))
    }
}

impl Contents {
    /// Reads a whole file. After a place that is no record it goes on at the next line that could begin one.
    pub(crate) fn read(mut file: &str) -> Self {
        let mut contents = Self::default();
        while !file.is_empty() {
            if let Some((record, rest)) = Record::read(file) {
                contents.records.push(record);
                file = rest;
            } else {
                contents.damaged += 1;
                file = file.find("\nbegin ").map_or("", |end| &file[end + 1..]);
            }
        }
        contents
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(sequence: u32, text: &str) -> Record {
        Record {
            sequence,
            token: 1_763_700_000_000_000,
            text: text.to_owned(),
        }
    }

    /// The file after these pieces.
    fn file<'a>(pieces: impl IntoIterator<Item = &'a Vec<u8>>) -> String {
        String::from_utf8(pieces.into_iter().flatten().copied().collect()).unwrap()
    }

    #[test]
    fn records_survive_the_file() {
        let records = vec![
            record(1, "3 articles"),
            record(2, ""),
            record(3, "\nend 3\nbegin 4 token 1 length 0\n"),
            record(4, "déjà vu"),
        ];
        let pieces: Vec<_> = records.iter().flat_map(Record::pieces).collect();
        assert_eq!(Contents::read(&file(&pieces)), Contents { records, damaged: 0 });
        assert_eq!(Contents::read(""), Contents::default());
    }

    #[test]
    fn a_record_that_ends_too_early_is_no_record() {
        let (first, torn) = (record(1, "whole"), record(2, "torn"));
        let [header, left, right, _] = torn.pieces();
        for end in [vec![&header], vec![&header, &left], vec![&header, &left, &right]] {
            let whole = first.pieces();
            let found = Contents::read(&file(whole.iter().chain(end.iter().copied())));
            assert_eq!((found.records.len(), found.damaged), (1, 1), "{end:?}");

            // And it does not hide what comes after it.
            let found = Contents::read(&file(end.into_iter().chain(&vec![b"\n".to_vec()]).chain(&whole)));
            assert_eq!(
                (found.records.as_slice(), found.damaged),
                (std::slice::from_ref(&first), 1)
            );
        }
    }

    #[test]
    fn every_mixture_of_two_records_is_noticed() {
        let (one, other) = (record(1, "ours").pieces(), record(2, "theirs").pieces());
        // Each mask says at which of the eight places a piece of the first record stands.
        let mixtures =
            (0_u8..=255).filter(|mask| mask.count_ones() == 4 && ![0b1111, 0b1111_0000].contains(mask));
        for mask in mixtures {
            let (mut ours, mut theirs) = (one.iter(), other.iter());
            let pieces = (0..8).filter_map(|place| match mask >> place & 1 {
                1 => ours.next(),
                _ => theirs.next(),
            });
            let mixed = file(pieces);
            assert!(Contents::read(&mixed).damaged > 0, "{mixed}");
        }
    }
}
