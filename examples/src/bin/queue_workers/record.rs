//! A message in a file: a line of JSON, which shows whether it is complete.

use mongolock::FencingToken;
use serde::{Deserialize, Serialize};

use crate::queue::Message;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Record {
    pub(crate) sequence: u32,
    /// The fencing token under which it was appended; `None` without the lock.
    pub(crate) token: Option<FencingToken>,
    pub(crate) text: String,
}

impl Record {
    pub(crate) fn new(message: &Message, token: Option<FencingToken>) -> Self {
        let (sequence, text) = (message.sequence, message.text.clone());
        Self {
            sequence,
            token,
            text,
        }
    }

    /// The four small writes of the record. One write would do: this is a program that writes carelessly.
    pub(crate) fn pieces(&self) -> anyhow::Result<Vec<Vec<u8>>> {
        let line = serde_json::to_string(self)? + "\n";
        let pieces = line.as_bytes().chunks(line.len().div_ceil(4));
        Ok(pieces.map(<[u8]>::to_vec).collect())
    }

    /// The complete records of a file, in order, and the number of lines that are no record: an incomplete one, or one
    /// of two writers at the same time.
    pub(crate) fn read_all(file: &str) -> (Vec<Self>, usize) {
        let lines = file.split_inclusive('\n');
        // A line without its end is incomplete, even if it is JSON.
        let record = |line: &str| serde_json::from_str(line.strip_suffix('\n')?).ok();
        let found: Vec<Option<Self>> = lines.map(record).collect();
        let damaged = found.iter().filter(|record| record.is_none()).count();
        (found.into_iter().flatten().collect(), damaged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(sequence: u32, text: &str) -> Record {
        Record {
            sequence,
            token: Some(FencingToken::from(1_763_700_000_000_000)),
            text: text.to_owned(),
        }
    }

    /// The file after these pieces.
    fn file<'a>(pieces: impl IntoIterator<Item = &'a Vec<u8>>) -> String {
        String::from_utf8(pieces.into_iter().flatten().copied().collect()).unwrap()
    }

    #[test]
    fn records_are_read_as_they_were_written() {
        let records = vec![
            record(1, "3 articles"),
            record(2, ""),
            record(3, "\n{\"sequence\":4,\"token\":null,\"text\":\"\"}\n"),
            record(4, "déjà vu"),
        ];
        let pieces: Vec<_> = records
            .iter()
            .flat_map(|record| record.pieces().unwrap())
            .collect();
        assert_eq!(pieces.len(), 16);
        assert_eq!(Record::read_all(&file(&pieces)), (records, 0));
        assert_eq!(Record::read_all(""), (vec![], 0));
    }

    #[test]
    fn an_incomplete_record_is_damage_and_does_not_hide_the_next_line() {
        let (whole, torn) = (record(1, "whole"), record(2, "torn").pieces().unwrap());
        let pieces = whole.pieces().unwrap();
        for length in 1..4 {
            let end = file(pieces.iter().chain(&torn[..length]));
            assert_eq!(Record::read_all(&end), (vec![whole.clone()], 1));
            let begin = file(torn[..length].iter().chain(&vec![b"\n".to_vec()]).chain(&pieces));
            assert_eq!(Record::read_all(&begin), (vec![whole.clone()], 1));
        }
    }

    #[test]
    fn every_mixture_of_two_records_is_damage() {
        let (one, other) = (
            record(1, "ours").pieces().unwrap(),
            record(2, "theirs").pieces().unwrap(),
        );
        // Each mask says at which of the eight places a piece of the first record is.
        let mixtures =
            (0_u8..=255).filter(|mask| mask.count_ones() == 4 && ![0b1111, 0b1111_0000].contains(mask));
        for mask in mixtures {
            let (mut ours, mut theirs) = (one.iter(), other.iter());
            let pieces = (0..8).filter_map(|place| match mask >> place & 1 {
                1 => ours.next(),
                _ => theirs.next(),
            });
            let mixed = file(pieces);
            assert!(Record::read_all(&mixed).1 > 0, "{mixed}");
        }
    }
}
