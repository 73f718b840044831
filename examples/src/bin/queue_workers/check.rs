//! What has become of the messages.

use std::collections::BTreeSet;

use mongolock_examples::turns::Turns;

use crate::queue::Message;
use crate::record::Record;
use crate::worker::Batch;

/// What can be wrong with the messages of a type.
const PROBLEMS: [&str; 5] = [
    "missing",    // messages that are not in the file
    "repeated",   // records of messages that are in the file already
    "damaged",    // lines of the file that are no record of a message
    "disordered", // records with a smaller number than the record before
    "overlaps",   // pairs of batches at the same time
];

/// The findings about one type.
#[derive(Debug)]
pub(crate) struct TypeCheck {
    data_type: String,
    messages: usize,
    /// Messages that are marked as done in the queue.
    done: usize,
    /// How often there is each of the [`PROBLEMS`].
    problems: [usize; 5],
    /// Whether the fencing tokens "rise" or "fall" along the file, or some or all records have "none".
    tokens: &'static str,
    /// Processes that have begun a batch.
    processes: usize,
}

impl TypeCheck {
    pub(crate) fn new(
        data_type: &str,
        messages: &[Message],
        file: &str,
        turns: &Turns<String, Batch>,
    ) -> Self {
        let (records, damaged) = Record::read_all(file);
        let wanted: BTreeSet<_> = messages.iter().map(|it| (it.sequence, &it.text)).collect();
        let written: Vec<_> = records.iter().map(|it| (it.sequence, &it.text)).collect();
        let found: BTreeSet<_> = written.iter().copied().collect();
        let missing = wanted.difference(&found).count();
        let repeated = written.len() - found.len();
        let damaged = damaged + found.difference(&wanted).count();
        let disordered = written.windows(2).filter(|pair| pair[1].0 < pair[0].0).count();
        let overlaps = turns.overlaps().find(|(own, _)| *own == data_type);
        let begun = turns.begun().iter().filter(|(own, _)| own == data_type);
        let processes: BTreeSet<u32> = begun.map(|(_, batch)| batch.process).collect();
        Self {
            data_type: data_type.to_owned(),
            messages: messages.len(),
            done: messages.iter().filter(|message| message.done).count(),
            problems: [
                missing,
                repeated,
                damaged,
                disordered,
                overlaps.map_or(0, |(_, pairs)| pairs),
            ],
            tokens: tokens(&records),
            processes: processes.len(),
        }
    }

    /// What is wrong, unless all messages are in the file, once, complete and in order, and several processes have
    /// appended them in turn.
    pub(crate) fn failure(&self) -> Option<String> {
        let problems = PROBLEMS.iter().zip(self.problems).filter(|(_, count)| *count > 0);
        let mut problems: Vec<String> = problems.map(|(what, count)| format!("{what} {count}")).collect();
        if self.done < self.messages {
            problems.push(format!("done {} of {}", self.done, self.messages));
        }
        if self.tokens != "rise" {
            problems.push(format!("tokens {}", self.tokens));
        }
        if self.processes < 2 {
            problems.push(format!("processes {}", self.processes));
        }
        (!problems.is_empty()).then(|| format!("{} ({})", self.data_type, problems.join(", ")))
    }

    fn row(&self) -> String {
        let done = format!("{} of {}", self.done, self.messages);
        let problems = PROBLEMS.iter().zip(self.problems);
        let problems: Vec<String> = problems
            .map(|(what, count)| format!("{count:>0$}", what.len()))
            .collect();
        format!(
            "{:<9}  {done:<12}  {}  {:>9}  {}",
            self.data_type,
            problems.join("  "),
            self.processes,
            self.tokens
        )
    }
}

/// A line for each type.
pub(crate) fn table(checks: &[TypeCheck]) -> String {
    let rows: Vec<String> = checks.iter().map(TypeCheck::row).collect();
    let problems = PROBLEMS.join("  ");
    format!(
        "\ntype       done          {problems}  processes  tokens\n{}",
        rows.join("\n")
    )
}

fn tokens(records: &[Record]) -> &'static str {
    let tokens = || records.iter().map(|record| record.token);
    if records.is_empty() || tokens().any(|token| token.is_none()) {
        "none"
    } else if tokens().is_sorted() {
        "rise"
    } else {
        "fall"
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
            turns.add(Event {
                resource: "orders".to_owned(),
                body: Batch::of(number.unsigned_abs()),
                end: (*number < 0).then(Hold::none),
            });
        }
        let messages = [1, 2, 3].map(message);
        TypeCheck::new("orders", &messages, file, &turns).failure()
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
            (file(&[&first, &second, &record(3, 4)]), "tokens fall"),
            (file(&[&first, &unlocked, &third]), "tokens none"),
            (String::new(), "missing 3, tokens none"),
        ] {
            let found = failure(&file, &IN_TURN);
            assert_eq!(found, Some(format!("orders ({problems})")), "{file}");
        }
        // S4.1, S4.9: one process after the other, and more than one of them.
        for (batches, problem) in [(&[1, 2, -1, -2], "overlaps 1"), (&[1, -1, 1, -1], "processes 1")] {
            let found = failure(&complete, batches);
            assert_eq!(found, Some(format!("orders ({problem})")));
        }
    }
}
