//! What the screen of `top` shows: the locks in an order, those that a filter lets through, and from which row on. No
//! input or output.

use std::cmp::{Ordering, Reverse};
use std::collections::HashSet;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use mongolock::LockInfo;

use super::keys::{Command, Scroll};
use crate::json::since;
use crate::output::name_of;
use crate::text::escaped;

/// The column that decides the order of the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Column {
    /// The most waiters first
    Waiters,
    /// The oldest hold first
    Age,
    /// The lease that ends first
    Remaining,
    /// In alphabetical order
    Holder,
    /// In alphabetical order
    Name,
}

impl Column {
    fn next(self) -> Self {
        match self {
            Self::Waiters => Self::Age,
            Self::Age => Self::Remaining,
            Self::Remaining => Self::Holder,
            Self::Holder => Self::Name,
            Self::Name => Self::Waiters,
        }
    }

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Waiters => "waiters",
            Self::Age => "age",
            Self::Remaining => "remaining",
            Self::Holder => "holder",
            Self::Name => "name",
        }
    }
}

/// A lock that is held. Its texts are safe for a terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    /// The name of the lock, or of the semaphore and the number of the permit.
    pub(super) name: String,
    /// What the waiters wait for: the lock, or the semaphore.
    pub(super) awaited: String,
    pub(super) holder: String,
    /// The time since the acquisition, when it was read.
    pub(super) age: Duration,
    /// The time until the lease ends, when it was read.
    pub(super) remaining: Duration,
    /// The owners of the waiters in their order.
    pub(super) waiters: Vec<String>,
}

impl Row {
    pub(super) fn of(info: &LockInfo) -> Self {
        let owner = info.owner.as_deref();
        Self {
            name: name_of(info),
            awaited: info.name.clone(),
            holder: owner.map_or_else(|| "-".into(), escaped).into_owned(),
            age: since(info, info.acquired_at).unwrap_or_default(),
            remaining: info.remaining,
            waiters: info
                .waiters
                .iter()
                .map(|waiter| escaped(&waiter.owner).into_owned())
                .collect(),
        }
    }

    /// Whether the name, the holder or a waiter has the text in it. The text is in small letters.
    fn has(&self, text: &str) -> bool {
        let mut shown = [&self.name, &self.holder].into_iter().chain(&self.waiters);
        text.is_empty() || shown.any(|shown| shown.to_lowercase().contains(text))
    }
}

/// What one read has found.
#[derive(Debug, Default)]
pub(super) struct Locks {
    pub(super) rows: Vec<Row>,
    /// Whether there are more.
    pub(super) is_cut: bool,
    /// The number of documents that cannot be read as a lock.
    pub(super) damaged: usize,
}

impl Locks {
    /// The number of waiters. Those for a semaphore are in the row of each of its permits, and count once.
    pub(super) fn waiters(&self) -> usize {
        let mut all = HashSet::new();
        for row in &self.rows {
            all.extend(row.waiters.iter().map(|owner| (&row.awaited, owner)));
        }
        all.len()
    }
}

pub(super) struct Board {
    locks: Locks,
    read_at: Instant,
    /// Why the last read has failed.
    problem: Option<String>,
    column: Column,
    is_reversed: bool,
    filter: String,
    is_typing: bool,
    /// The first row on the screen.
    first: usize,
    /// The number of rows on the screen.
    height: usize,
}

impl Board {
    pub(super) fn new(locks: Locks, read_at: Instant, column: Column) -> Self {
        Self {
            locks,
            read_at,
            problem: None,
            column,
            is_reversed: false,
            filter: String::new(),
            is_typing: false,
            first: 0,
            height: 0,
        }
    }

    /// Takes over what was read.
    pub(super) fn set(&mut self, locks: Locks, read_at: Instant) {
        self.locks = locks;
        self.read_at = read_at;
        self.problem = None;
    }

    /// Notes that a read has failed. The locks of the last one stay.
    pub(super) fn fail(&mut self, problem: String) {
        self.problem = Some(problem);
    }

    pub(super) fn locks(&self) -> &Locks {
        &self.locks
    }

    pub(super) fn read_at(&self) -> Instant {
        self.read_at
    }

    pub(super) fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    pub(super) fn column(&self) -> Column {
        self.column
    }

    pub(super) fn is_reversed(&self) -> bool {
        self.is_reversed
    }

    pub(super) fn filter(&self) -> &str {
        &self.filter
    }

    pub(super) fn is_typing(&self) -> bool {
        self.is_typing
    }

    /// The rows that the filter lets through, in their order.
    pub(super) fn rows(&self) -> Vec<&Row> {
        let text = self.filter.to_lowercase();
        let mut rows: Vec<&Row> = self.locks.rows.iter().filter(|row| row.has(&text)).collect();
        rows.sort_by(|one, other| {
            let by_column = self.compare(one, other);
            let ordered = if self.is_reversed {
                by_column.reverse()
            } else {
                by_column
            };
            ordered.then_with(|| one.name.cmp(&other.name))
        });
        rows
    }

    fn compare(&self, one: &Row, other: &Row) -> Ordering {
        match self.column {
            Column::Waiters => Reverse(one.waiters.len()).cmp(&Reverse(other.waiters.len())),
            Column::Age => Reverse(one.age).cmp(&Reverse(other.age)),
            Column::Remaining => one.remaining.cmp(&other.remaining),
            Column::Holder => one.holder.cmp(&other.holder),
            Column::Name => one.name.cmp(&other.name),
        }
    }

    /// The first of so many rows on a screen of this height. The last screen is full if there are enough rows.
    pub(super) fn first(&mut self, number: usize, height: usize) -> usize {
        self.height = height;
        self.first = self.first.min(number.saturating_sub(height));
        self.first
    }

    pub(super) fn apply(&mut self, command: Command) {
        match command {
            // The program ends.
            Command::Quit => {}
            Command::NextColumn => self.column = self.column.next(),
            Command::Reverse => self.is_reversed = !self.is_reversed,
            Command::TypeFilter => self.is_typing = true,
            Command::Append(c) => self.filter.push(c),
            Command::DeleteLast => drop(self.filter.pop()),
            Command::AcceptFilter => self.is_typing = false,
            Command::ClearFilter => {
                self.filter.clear();
                self.is_typing = false;
            }
            Command::Scroll(scroll) => self.scroll(scroll),
        }
    }

    fn scroll(&mut self, scroll: Scroll) {
        let page = self.height.max(1);
        // What is too far is corrected when the number of rows is known.
        self.first = match scroll {
            Scroll::Up => self.first.saturating_sub(1),
            Scroll::Down => self.first.saturating_add(1),
            Scroll::PageUp => self.first.saturating_sub(page),
            Scroll::PageDown => self.first.saturating_add(page),
            Scroll::First => 0,
            Scroll::Last => usize::MAX,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, holder: &str, age: u64, remaining: u64, waiters: &[&str]) -> Row {
        Row {
            name: name.to_owned(),
            awaited: name.to_owned(),
            holder: holder.to_owned(),
            age: Duration::from_secs(age),
            remaining: Duration::from_secs(remaining),
            waiters: waiters.iter().map(|&owner| owner.to_owned()).collect(),
        }
    }

    fn board() -> Board {
        let rows = vec![
            row("a", "carl", 5, 9, &[]),
            row("b", "anna", 50, 29, &["Dora"]),
            row("c", "bert", 500, 19, &["dora", "emil"]),
            row("d", "anna", 1, 10, &[]),
        ];
        let locks = Locks {
            rows,
            ..Locks::default()
        };
        Board::new(locks, Instant::now(), Column::Waiters)
    }

    fn names(board: &Board) -> String {
        board.rows().into_iter().map(|row| row.name.as_str()).collect()
    }

    #[test]
    fn the_waiters_for_a_semaphore_count_once() {
        let permit = |number: u32| Row {
            awaited: "s".to_owned(),
            ..row(&format!("s #{number}"), "anna", 1, 1, &["bert", "carl"])
        };
        let rows = vec![permit(0), permit(1), row("a", "anna", 1, 1, &["bert"])];
        let locks = Locks {
            rows,
            ..Locks::default()
        };
        assert_eq!(locks.waiters(), 3);
    }

    #[test]
    fn each_column_has_its_order() {
        let mut board = board();
        for (column, order, reversed) in [
            ("waiters", "cbad", "adbc"),
            ("age", "cbad", "dabc"),
            ("remaining", "adcb", "bcda"),
            ("holder", "bdca", "acbd"),
            ("name", "abcd", "dcba"),
        ] {
            assert_eq!(board.column().as_str(), column);
            assert_eq!(names(&board), order, "{column}");
            board.apply(Command::Reverse);
            assert_eq!(names(&board), reversed, "{column}");
            board.apply(Command::Reverse);
            board.apply(Command::NextColumn);
        }
        assert_eq!(board.column(), Column::Waiters);
    }

    #[test]
    fn the_filter_looks_at_names_holders_and_waiters() {
        let mut board = board();
        board.apply(Command::TypeFilter);
        for c in "dora".chars() {
            board.apply(Command::Append(c));
        }
        assert_eq!(names(&board), "cb");
        board.apply(Command::DeleteLast);
        board.apply(Command::AcceptFilter);
        assert_eq!((board.filter(), board.is_typing()), ("dor", false));
        board.apply(Command::ClearFilter);
        assert_eq!(names(&board), "cbad");
    }

    #[test]
    fn scrolling_ends_with_the_rows() {
        let mut board = board();
        assert_eq!(board.first(4, 3), 0);
        board.apply(Command::Scroll(Scroll::Last));
        assert_eq!(board.first(4, 3), 1);
        board.apply(Command::Scroll(Scroll::PageDown));
        assert_eq!(board.first(4, 3), 1);
        board.apply(Command::Scroll(Scroll::Up));
        board.apply(Command::Scroll(Scroll::Up));
        assert_eq!(board.first(4, 3), 0);
        board.apply(Command::Scroll(Scroll::Down));
        assert_eq!(board.first(4, 10), 0, "all rows fit");
    }

    #[test]
    fn a_failed_read_keeps_the_last_one() {
        let mut board = board();
        board.fail("no server".to_owned());
        assert_eq!(
            (names(&board).as_str(), board.problem()),
            ("cbad", Some("no server"))
        );
        board.set(Locks::default(), Instant::now());
        assert_eq!((names(&board).as_str(), board.problem()), ("", None));
    }
}
