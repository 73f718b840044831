//! What has become of the messages.

use std::collections::{BTreeMap, BTreeSet};

use mongolock_examples::turns::Turns;

use crate::queue::Message;
use crate::record::Record;
use crate::worker::Event;

/// The batches, from their events in the order in which they were sent.
#[derive(Debug, Default)]
pub(crate) struct Batches {
    turns: Turns<String, u32>,
    of_types: BTreeMap<String, OfType>,
    in_parallel: usize,
}

/// The batches of one type.
#[derive(Debug, Default)]
struct OfType {
    /// Pairs of batches at the same time.
    overlaps: usize,
    /// The processes that have made a batch.
    processes: BTreeSet<u32>,
}

impl Batches {
    pub(crate) fn add(&mut self, event: &Event) {
        match event {
            Event::Begin { process, data_type } => self.turns.begin(data_type.clone(), *process),
            Event::End(batch) => {
                let overlaps = self.turns.end(&batch.data_type, &batch.process);
                let own = self.of_types.entry(batch.data_type.clone()).or_default();
                own.overlaps += overlaps.same;
                own.processes.insert(batch.process);
                self.in_parallel += overlaps.other;
            }
            // The time at which its work has ended is not known.
            Event::GivenUp {
                process, data_type, ..
            } => drop(self.turns.end(data_type, process)),
        }
    }

    /// Pairs of batches of different types at the same time.
    pub(crate) fn in_parallel(&self) -> usize {
        self.in_parallel
    }
}

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
    /// Processes that have made a batch.
    processes: usize,
}

impl TypeCheck {
    pub(crate) fn new(data_type: &str, messages: &[Message], file: &str, batches: &Batches) -> Self {
        let (records, damaged) = Record::read_all(file);
        let wanted: BTreeSet<_> = messages.iter().map(|it| (it.sequence, &it.text)).collect();
        let written: Vec<_> = records.iter().map(|it| (it.sequence, &it.text)).collect();
        let found: BTreeSet<_> = written.iter().copied().collect();
        let own = batches.of_types.get(data_type);
        let missing = wanted.difference(&found).count();
        let repeated = written.len() - found.len();
        let damaged = damaged + found.difference(&wanted).count();
        let disordered = written.windows(2).filter(|pair| pair[1].0 < pair[0].0).count();
        let overlaps = own.map_or(0, |own| own.overlaps);
        Self {
            data_type: data_type.to_owned(),
            messages: messages.len(),
            done: messages.iter().filter(|message| message.done).count(),
            problems: [missing, repeated, damaged, disordered, overlaps],
            tokens: tokens(&records),
            processes: own.map_or(0, |own| own.processes.len()),
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
    use std::time::Duration;

    use mongolock::FencingToken;

    use super::*;
    use crate::worker::Batch;

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

    fn begin(process: u32, data_type: &str) -> Event {
        Event::Begin {
            process,
            data_type: data_type.to_owned(),
        }
    }

    fn end(process: u32, data_type: &str) -> Event {
        Event::End(Batch {
            process,
            data_type: data_type.to_owned(),
            messages: (1, 1),
            token: None,
            waited: Duration::ZERO,
            held: Duration::ZERO,
        })
    }

    /// The findings about a file that is to have three messages.
    fn check(file: &str, events: &[Event]) -> TypeCheck {
        let message = |sequence| Message {
            data_type: "orders".to_owned(),
            sequence,
            text: record(sequence, 0).text,
            done: true,
        };
        let messages: Vec<Message> = (1..=3).map(message).collect();
        let mut batches = Batches::default();
        for event in events {
            batches.add(event);
        }
        TypeCheck::new("orders", &messages, file, &batches)
    }

    fn in_turn() -> [Event; 4] {
        [
            begin(1, "orders"),
            end(1, "orders"),
            begin(2, "orders"),
            end(2, "orders"),
        ]
    }

    fn complete() -> String {
        file(&[&record(1, 5), &record(2, 5), &record(3, 9)])
    }

    #[test]
    fn a_complete_file_written_in_turns_passes() {
        let found = check(&complete(), &in_turn());
        assert_eq!((found.failure(), found.processes, found.done), (None, 2, 3));
    }

    #[test]
    fn each_damage_is_found_and_named() {
        let [first, second, third] = [record(1, 5), record(2, 5), record(3, 9)];
        let altered = Record {
            text: "message Z".to_owned(),
            ..second.clone()
        };
        let unlocked = Record {
            token: None,
            ..second.clone()
        };
        let torn = complete().replacen("message 2\"}\n", "messag", 1);
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
            let failure = check(&file, &in_turn()).failure();
            assert_eq!(failure, Some(format!("orders ({problems})")), "{file}");
        }
        let mut undone = check(&complete(), &in_turn());
        undone.done = 2;
        assert_eq!(undone.failure().as_deref(), Some("orders (done 2 of 3)"));
    }

    /// S4.1, S4.9: one process after the other, and more than one of them.
    #[test]
    fn overlaps_and_the_work_of_a_single_process_fail() {
        let [begin_1, end_1, begin_2, end_2] = in_turn();
        let found = check(&complete(), &[begin_1, begin_2, end_1, end_2]);
        assert_eq!(found.failure().as_deref(), Some("orders (overlaps 1)"));
        let events = [
            begin(1, "orders"),
            begin(2, "invoices"),
            end(2, "invoices"),
            end(1, "orders"),
        ];
        let found = check(&complete(), &events);
        assert_eq!(found.failure().as_deref(), Some("orders (processes 1)"));
    }

    #[test]
    fn only_different_types_are_parallel_and_a_batch_without_an_end_counts_nothing() {
        let given_up = Event::GivenUp {
            process: 1,
            data_type: "orders".to_owned(),
            reason: String::new(),
        };
        let mut batches = Batches::default();
        for event in [
            begin(1, "orders"),
            begin(2, "orders"),
            begin(3, "invoices"),
            end(3, "invoices"),
            end(2, "orders"),
            given_up,
        ] {
            batches.add(&event);
        }
        assert_eq!(batches.in_parallel(), 1);
        assert_eq!(batches.of_types["orders"].overlaps, 0);
    }
}
