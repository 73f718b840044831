//! What has become of the messages of a type.

use std::collections::BTreeSet;

use crate::batches::Batch;
use crate::queue::Message;
use crate::record::Contents;

/// The verdict on one type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) data_type: String,
    pub(crate) messages: usize,
    /// Messages that are marked as done in the queue.
    pub(crate) done: usize,
    /// Messages that are not in the file.
    pub(crate) missing: usize,
    /// Records of messages that were in the file before.
    pub(crate) repeated: usize,
    /// Places in the file that are no record of a message.
    pub(crate) damaged: usize,
    /// Records with a smaller number than the one before.
    pub(crate) disordered: usize,
    pub(crate) tokens: Tokens,
    /// Pairs of batches of this type that were worked at at the same time.
    pub(crate) overlaps: usize,
    /// Processes that worked at this type.
    pub(crate) processes: usize,
}

/// How the fencing tokens went, along the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tokens {
    Rose,
    Fell,
    /// Some or all records were appended without a lock, or there are none.
    Missing,
}

impl Verdict {
    pub(crate) fn new(data_type: &str, messages: &[Message], file: &str, batches: &[Batch]) -> Self {
        let own: Vec<&Batch> = batches
            .iter()
            .filter(|batch| batch.data_type == data_type)
            .collect();
        let contents = Contents::read(file);
        let wanted: BTreeSet<_> = messages.iter().map(|it| (it.sequence, &it.text)).collect();
        let written: Vec<_> = contents
            .records
            .iter()
            .map(|it| (it.sequence, &it.text))
            .collect();
        let found: BTreeSet<_> = written.iter().copied().collect();
        Self {
            data_type: data_type.to_owned(),
            messages: messages.len(),
            done: messages.iter().filter(|message| message.done).count(),
            missing: wanted.difference(&found).count(),
            repeated: written.len() - found.len(),
            damaged: contents.damaged + found.difference(&wanted).count(),
            disordered: written.windows(2).filter(|pair| pair[1].0 < pair[0].0).count(),
            tokens: Tokens::of(&contents),
            overlaps: pairs(&own).filter(|(one, other)| one.overlaps(other)).count(),
            processes: own
                .iter()
                .map(|batch| batch.process)
                .collect::<BTreeSet<_>>()
                .len(),
        }
    }

    /// All messages are in the file, once, whole and in order, and one process after the other has put them there.
    pub(crate) fn is_right(&self) -> bool {
        self.done == self.messages
            && self.missing + self.repeated + self.damaged + self.disordered + self.overlaps == 0
            && self.tokens == Tokens::Rose
            && self.processes > 1
    }
}

impl Tokens {
    fn of(contents: &Contents) -> Self {
        let tokens: Vec<i64> = contents.records.iter().map(|record| record.token).collect();
        if tokens.is_empty() || tokens.contains(&0) {
            Self::Missing
        } else if tokens.is_sorted() {
            Self::Rose
        } else {
            Self::Fell
        }
    }
}

/// How often batches of two types were worked at at the same time.
pub(crate) fn side_by_side(batches: &[Batch]) -> usize {
    let batches: Vec<&Batch> = batches.iter().collect();
    let other_type = |one: &Batch, other: &Batch| one.data_type != other.data_type;
    pairs(&batches)
        .filter(|(one, other)| other_type(one, other) && one.overlaps(other))
        .count()
}

/// Every two of them.
fn pairs<'a>(batches: &'a [&'a Batch]) -> impl Iterator<Item = (&'a Batch, &'a Batch)> {
    let later = |index: usize| batches[index + 1..].iter();
    let with_later =
        move |(index, one): (usize, &'a &'a Batch)| later(index).map(move |other| (*one, *other));
    batches.iter().enumerate().flat_map(with_later)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Record;

    fn record(sequence: u32, token: i64) -> Record {
        Record {
            sequence,
            token,
            text: format!("message {sequence}"),
        }
    }

    fn file(records: &[Record]) -> String {
        let bytes = records.iter().flat_map(Record::pieces).flatten().collect();
        String::from_utf8(bytes).unwrap()
    }

    /// The verdict on a file that is to have three messages.
    fn judge(file: &str, batches: &[Batch]) -> Verdict {
        let messages: Vec<Message> = (1..=3)
            .map(|sequence| Message {
                data_type: "orders".to_owned(),
                sequence,
                text: record(sequence, 0).text,
                done: true,
            })
            .collect();
        Verdict::new("orders", &messages, file, batches)
    }

    fn in_turn() -> [Batch; 2] {
        [
            Batch::new("orders", 1, 10, Some(20)),
            Batch::new("orders", 2, 20, Some(30)),
        ]
    }

    fn whole() -> [Record; 3] {
        [record(1, 5), record(2, 5), record(3, 9)]
    }

    #[test]
    fn a_whole_file_written_in_turns_is_right() {
        let verdict = judge(&file(&whole()), &in_turn());
        let right = Verdict {
            data_type: "orders".to_owned(),
            messages: 3,
            done: 3,
            missing: 0,
            repeated: 0,
            damaged: 0,
            disordered: 0,
            tokens: Tokens::Rose,
            overlaps: 0,
            processes: 2,
        };
        assert_eq!(verdict, right);
        assert!(verdict.is_right());
    }

    #[test]
    fn each_damage_is_found_and_named() {
        let [first, second, third] = whole();
        let altered = Record {
            text: "message Z".to_owned(),
            ..second.clone()
        };
        let late = Record {
            token: 4,
            ..third.clone()
        };
        let unlocked = Record {
            token: 0,
            ..second.clone()
        };
        let torn = file(&whole()).replace("message 2\n", "messag");
        let found = |file: &str| {
            let verdict = judge(file, &in_turn());
            assert!(!verdict.is_right(), "{file}");
            let Verdict {
                missing,
                repeated,
                damaged,
                disordered,
                tokens,
                ..
            } = verdict;
            (missing, repeated, damaged, disordered, tokens)
        };
        let of = |records: &[&Record]| file(&records.iter().copied().cloned().collect::<Vec<_>>());
        assert_eq!(found(&of(&[&first, &third])), (1, 0, 0, 0, Tokens::Rose));
        assert_eq!(
            found(&of(&[&first, &second, &second, &third])),
            (0, 1, 0, 0, Tokens::Rose)
        );
        assert_eq!(
            found(&of(&[&first, &altered, &third])),
            (1, 0, 1, 0, Tokens::Rose)
        );
        assert_eq!(found(&torn), (1, 0, 1, 0, Tokens::Rose));
        assert_eq!(found(&of(&[&second, &first, &third])), (0, 0, 0, 1, Tokens::Rose));
        assert_eq!(found(&of(&[&first, &second, &late])), (0, 0, 0, 0, Tokens::Fell));
        assert_eq!(
            found(&of(&[&first, &unlocked, &third])),
            (0, 0, 0, 0, Tokens::Missing)
        );
        assert_eq!(found(""), (3, 0, 0, 0, Tokens::Missing));
    }

    /// S4.1, S4.9: the same type one after the other, by more than one process.
    #[test]
    fn work_at_the_same_time_and_work_by_one_alone_are_not_right() {
        let text = file(&whole());
        let [first, second] = in_turn();
        let beside = Batch::new("orders", 2, 15, Some(25));
        let verdict = judge(&text, &[first.clone(), beside]);
        assert!(verdict.overlaps == 1 && !verdict.is_right());
        let other_type = Batch::new("invoices", 2, 10, Some(20));
        let verdict = judge(&text, &[first, other_type]);
        assert!(verdict.overlaps == 0 && verdict.processes == 1 && !verdict.is_right());
        let mut verdict = judge(&text, &[Batch::new("orders", 1, 5, None), second]);
        assert!(verdict.is_right(), "one was killed");
        verdict.done = 2;
        assert!(!verdict.is_right());
    }

    #[test]
    fn only_different_types_count_as_side_by_side() {
        let batches = [
            Batch::new("orders", 1, 10, Some(20)),
            Batch::new("orders", 2, 15, Some(25)),
            Batch::new("invoices", 3, 18, Some(22)),
            Batch::new("invoices", 1, 22, Some(24)),
            Batch::new("payments", 2, 30, Some(40)),
        ];
        assert_eq!(side_by_side(&batches), 3);
        assert_eq!(side_by_side(&batches[4..]), 0);
    }
}
