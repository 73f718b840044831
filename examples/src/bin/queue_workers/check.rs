//! What has become of the messages.

use std::collections::BTreeSet;

use mongolock_examples::turns::Turns;

use crate::queue::Message;
use crate::record::Record;
use crate::worker::Batch;

/// The problems of a type, unless all its messages are done and in the file, once, complete and in order, under rising
/// tokens, and several processes have appended them in turn.
pub(crate) fn check(
    data_type: &str,
    messages: &[Message],
    file: &str,
    turns: &Turns<String, Batch>,
) -> Option<String> {
    let (records, damaged) = Record::read_all(file);
    let wanted: BTreeSet<_> = messages.iter().map(|it| (it.sequence, &it.text)).collect();
    let written: Vec<_> = records.iter().map(|it| (it.sequence, &it.text)).collect();
    let found: BTreeSet<_> = written.iter().copied().collect();
    let overlaps = turns.overlaps().find(|(own, _)| *own == data_type);
    let counts = [
        (
            "not done",
            messages.iter().filter(|message| !message.done).count(),
        ),
        ("missing", wanted.difference(&found).count()),
        ("repeated", written.len() - found.len()),
        ("damaged", damaged + found.difference(&wanted).count()),
        (
            "disordered",
            written.windows(2).filter(|pair| pair[1].0 < pair[0].0).count(),
        ),
        ("overlaps", overlaps.map_or(0, |(_, pairs)| pairs)),
    ];
    let counts = counts.iter().filter(|(_, count)| *count > 0);
    let mut problems: Vec<String> = counts.map(|(what, count)| format!("{what} {count}")).collect();
    problems.extend(token_problem(&records).map(str::to_owned));
    if processes(data_type, turns) < 2 {
        problems.push("only one process".to_owned());
    }
    (!problems.is_empty()).then(|| format!("{data_type} ({})", problems.join(", ")))
}

/// The number of processes that have begun a batch of a type.
pub(crate) fn processes(data_type: &str, turns: &Turns<String, Batch>) -> usize {
    let begun = turns.begun().iter().filter(|(own, _)| own == data_type);
    begun
        .map(|(_, batch)| batch.process)
        .collect::<BTreeSet<u32>>()
        .len()
}

fn token_problem(records: &[Record]) -> Option<&'static str> {
    let tokens = || records.iter().map(|record| record.token);
    if records.is_empty() || tokens().any(|token| token.is_none()) {
        Some("no tokens")
    } else {
        (!tokens().is_sorted()).then_some("falling tokens")
    }
}

#[cfg(test)]
mod tests {
    use mongolock::FencingToken;
    use mongolock_examples::turns::{Event, Hold};

    use super::*;

    fn record(sequence: u32, token: i64) -> Record {
        Record {
            sequence,
            token: Some(FencingToken::from(token)),
            text: format!("message {sequence}"),
        }
    }

    fn file(records: &[&Record]) -> String {
        let pieces = records.iter().flat_map(|record| record.pieces().unwrap());
        String::from_utf8(pieces.flatten().collect()).unwrap()
    }

    /// The failure of a file that is to have three messages. A positive number is the beginning of a batch of that
    /// process, a negative one is its end.
    fn failure(file: &str, batches: &[i32]) -> Option<String> {
        let message = |sequence| Message {
            data_type: "orders".to_owned(),
            sequence,
            text: record(sequence, 0).text,
            done: true,
        };
        let mut turns = Turns::default();
        for number in batches {
            let process = number.unsigned_abs();
            turns.add(Event {
                resource: "orders".to_owned(),
                body: Batch {
                    process,
                    first: 1,
                    last: 1,
                },
                end: (*number < 0).then(Hold::default),
            });
        }
        let messages = [1, 2, 3].map(message);
        check("orders", &messages, file, &turns)
    }

    const IN_TURN: [i32; 4] = [1, -1, 2, -2];

    #[test]
    fn each_problem_is_found_and_named() {
        let [first, second, third] = [record(1, 5), record(2, 5), record(3, 9)];
        let mut altered = second.clone();
        altered.text = "message Z".to_owned();
        let mut unlocked = second.clone();
        unlocked.token = None;
        let complete = file(&[&first, &second, &third]);
        assert_eq!(failure(&complete, &IN_TURN), None);
        let torn = complete.replacen("message 2\"}\n", "messag", 1);
        for (file, problems) in [
            (file(&[&first, &third]), "missing 1"),
            (file(&[&first, &second, &second, &third]), "repeated 1"),
            (file(&[&first, &altered, &third]), "missing 1, damaged 1"),
            (torn, "missing 2, damaged 1"),
            (file(&[&second, &first, &third]), "disordered 1"),
            (file(&[&first, &second, &record(3, 4)]), "falling tokens"),
            (file(&[&first, &unlocked, &third]), "no tokens"),
            (String::new(), "missing 3, no tokens"),
        ] {
            let found = failure(&file, &IN_TURN);
            assert_eq!(found, Some(format!("orders ({problems})")), "{file}");
        }
        // S4.1, S4.9: one process after the other, and more than one of them.
        for (batches, problem) in [
            (&[1, 2, -1, -2], "overlaps 1"),
            (&[1, -1, 1, -1], "only one process"),
        ] {
            let found = failure(&complete, batches);
            assert_eq!(found, Some(format!("orders ({problem})")));
        }
    }
}
