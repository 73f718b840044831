//! What the program prints, in columns.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use mongolock_examples::duration::show;

use crate::BATCH;
use crate::check::{Tokens, Verdict};
use crate::options::Options;

/// The first lines.
pub(crate) fn heading(options: &Options) -> String {
    let Options {
        processes,
        messages,
        pause,
        ..
    } = options;
    let lock = if options.without_lock {
        "WITHOUT the lock"
    } else {
        "under the lock `file:<data_type>`"
    };
    format!(
        "{processes} processes append {messages} messages of each of {} types, {BATCH} at a time,\n\
         in small writes with a pause of {} after each, {lock}.\n\n\
         process  type       messages     fencing token      waited        held",
        options.types().len(),
        show(*pause),
    )
}

/// The line of a batch.
pub(crate) struct Line<'a> {
    pub(crate) process: u32,
    pub(crate) data_type: &'a str,
    pub(crate) messages: RangeInclusive<u32>,
    /// 0 without a lock.
    pub(crate) token: i64,
    pub(crate) waited: Duration,
    pub(crate) held: Duration,
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let messages = format!("{}-{}", self.messages.start(), self.messages.end());
        let token = match self.token {
            0 => "none".to_owned(),
            token => token.to_string(),
        };
        write!(
            f,
            "{:>7}  {:<9}  {messages:>8}  {token:>16}  {:>10}  {:>10}",
            self.process,
            self.data_type,
            show(self.waited),
            show(self.held)
        )
    }
}

/// The line of a batch that was given up.
pub(crate) fn lost_line(process: u32, data_type: &str, error: &anyhow::Error) -> String {
    format!("{process:>7}  {data_type:<9}  has lost its turn: {error:#}")
}

/// The line of a process that was killed.
pub(crate) fn killed_line(process: u32) -> String {
    format!("{process:>7}  is killed in the middle of a record of each type")
}

/// The last lines, and the exit status.
pub(crate) struct Summary<'a> {
    pub(crate) options: &'a Options,
    pub(crate) took: Duration,
    pub(crate) verdicts: Vec<Verdict>,
    /// How often batches of two types were worked at at the same time.
    pub(crate) side_by_side: usize,
    /// The processes that failed, with how they ended.
    pub(crate) failed: Vec<String>,
}

impl Summary<'_> {
    /// Nothing went wrong.
    pub(crate) fn is_right(&self) -> bool {
        self.failed.is_empty() && self.side_by_side > 0 && self.verdicts.iter().all(Verdict::is_right)
    }

    /// The types of which something went wrong.
    fn places(&self) -> String {
        let wrong = self.verdicts.iter().filter(|verdict| !verdict.is_right());
        let places: Vec<_> = wrong.map(|verdict| verdict.data_type.as_str()).collect();
        match places.len() {
            0 => String::new(),
            _ => format!(" with {}", places.join(", ")),
        }
    }
}

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let title =
            "\ntype       done          missing  repeated  damaged  disordered  overlaps  processes  tokens";
        writeln!(f, "{title}")?;
        for verdict in &self.verdicts {
            writeln!(f, "{verdict}")?;
        }
        writeln!(
            f,
            "\nside by side  {} times two types at the same time",
            self.side_by_side
        )?;
        writeln!(f, "time          {}", show(self.took))?;
        if let Some(directory) = &self.options.directory {
            writeln!(f, "files         {}", directory.display())?;
        }
        for failure in &self.failed {
            writeln!(f, "failed        {failure}")?;
        }
        if self.is_right() {
            write!(f, "\nEverything is right.")
        } else {
            write!(f, "\nSomething went wrong{}.", self.places())
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let done = format!("{} of {}", self.done, self.messages);
        let Self {
            data_type,
            missing,
            repeated,
            damaged,
            disordered,
            ..
        } = self;
        let Self {
            overlaps, processes, ..
        } = self;
        write!(
            f,
            "{data_type:<9}  {done:<12}  {missing:>7}  {repeated:>8}  {damaged:>7}  {disordered:>10}  \
             {overlaps:>8}  {processes:>9}  {}",
            match self.tokens {
                Tokens::Rose => "rose",
                Tokens::Fell => "fell",
                Tokens::Missing => "none",
            }
        )
    }
}
