//! What the screen of `top` shows: the locks in an order, those that a filter lets through, and from which row on. No
//! input or output.

use std::cmp::{Ordering, Reverse};
use std::time::Instant;

use super::keys::{Command, Scroll};
use super::rows::{Column, Locks, Row};

pub(super) struct Board {
    locks: Locks,
    read_at: Instant,
    /// Why the last read has failed.
    problem: Option<String>,
    column: Column,
    is_reversed: bool,
    filter: String,
    is_typing: bool,
    /// The name in the row of the cursor; `None` in the first row, whichever lock that is.
    selected: Option<String>,
    /// The row of the cursor, which stays there if its lock is gone.
    cursor: usize,
    /// The row whose details are shown, as it was read last.
    details: Option<Row>,
    /// The first row on the screen.
    first: usize,
    /// The number of rows on the screen.
    height: usize,
}

/// The part of the rows that is on the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct View {
    /// The first row.
    pub(super) first: usize,
    /// The row of the cursor.
    pub(super) cursor: usize,
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
            selected: None,
            cursor: 0,
            details: None,
            first: 0,
            height: 0,
        }
    }

    /// Takes over what was read.
    pub(super) fn set(&mut self, locks: Locks, read_at: Instant) {
        if let Some(shown) = &mut self.details
            && let Some(row) = locks.rows.iter().find(|row| row.name == shown.name)
        {
            shown.clone_from(row);
        }
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

    /// The lock whose details are shown, and whether it is still held.
    pub(super) fn details(&self) -> Option<(&Row, bool)> {
        let shown = self.details.as_ref()?;
        let is_held = self.locks.rows.iter().any(|row| row.name == shown.name);
        Some((shown, is_held))
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

    /// The rows on a screen of this height: the cursor is among them, and the last screen is full if there are enough rows.
    pub(super) fn view(&mut self, height: usize) -> View {
        let rows = self.rows();
        let (number, last) = (rows.len(), rows.len().saturating_sub(1));
        let cursor = match &self.selected {
            None => 0,
            Some(name) => {
                let found = rows.iter().position(|row| &row.name == name);
                found.unwrap_or(self.cursor).min(last)
            }
        };
        let earliest = (cursor + 1).saturating_sub(height);
        let first = self.first.clamp(earliest, cursor.max(earliest));
        (self.cursor, self.height) = (cursor, height);
        self.first = first.min(number.saturating_sub(height));
        View {
            first: self.first,
            cursor,
        }
    }

    pub(super) fn apply(&mut self, command: Command) {
        match command {
            // The program ends.
            Command::Quit => {}
            Command::NextColumn => self.column = self.column.next(),
            Command::Reverse => self.is_reversed = !self.is_reversed,
            Command::TypeFilter => {
                self.details = None;
                self.is_typing = true;
            }
            Command::Append(c) => self.filter.push(c),
            Command::DeleteLast => drop(self.filter.pop()),
            Command::AcceptFilter => self.is_typing = false,
            // The details are in front of the filter.
            Command::Back | Command::Details if self.details.is_some() => self.details = None,
            Command::Back => {
                self.filter.clear();
                self.is_typing = false;
            }
            Command::Details => self.details = self.rows().get(self.cursor).copied().cloned(),
            Command::Scroll(scroll) => self.scroll(scroll),
        }
    }

    fn scroll(&mut self, scroll: Scroll) {
        let rows = self.rows();
        let (page, last) = (self.height.max(1), rows.len().saturating_sub(1));
        let to = match scroll {
            Scroll::Up => self.cursor.saturating_sub(1),
            Scroll::Down => self.cursor.saturating_add(1),
            Scroll::PageUp => self.cursor.saturating_sub(page),
            Scroll::PageDown => self.cursor.saturating_add(page),
            Scroll::First => 0,
            Scroll::Last => last,
        };
        let to = to.min(last);
        let row = rows.get(to).filter(|_| to > 0);
        let selected = row.map(|row| row.name.clone());
        (self.cursor, self.selected) = (to, selected);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn row(name: &str, holder: &str, age: u64, remaining: u64, waiters: &[&str]) -> Row {
        Row {
            name: name.to_owned(),
            awaited: name.to_owned(),
            holder: holder.to_owned(),
            age: Duration::from_secs(age),
            remaining: Duration::from_secs(remaining),
            waiters: waiters.iter().map(|&owner| owner.to_owned()).collect(),
            note: String::new(),
            details: vec![format!("{name} of {holder}")],
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
        board.apply(Command::Back);
        assert_eq!(names(&board), "cbad");
    }

    fn view(board: &mut Board, height: usize) -> (usize, usize) {
        let View { first, cursor } = board.view(height);
        (first, cursor)
    }

    #[test]
    fn the_cursor_stays_on_the_screen_and_among_the_rows() {
        let mut board = board();
        assert_eq!(view(&mut board, 3), (0, 0));
        for (scroll, wanted) in [
            (Scroll::Down, (0, 1)),
            (Scroll::Last, (1, 3)),
            (Scroll::PageDown, (1, 3)),
            (Scroll::Up, (1, 2)),
            (Scroll::Up, (1, 1)),
            (Scroll::Up, (0, 0)),
            (Scroll::Up, (0, 0)),
            (Scroll::PageDown, (1, 3)),
            (Scroll::First, (0, 0)),
        ] {
            board.apply(Command::Scroll(scroll));
            assert_eq!(view(&mut board, 3), wanted, "{scroll:?}");
        }
        board.apply(Command::Scroll(Scroll::Down));
        assert_eq!(view(&mut board, 10), (0, 1), "all rows fit");
        assert_eq!(view(&mut board, 0), (2, 1), "there is no room");
        board.set(Locks::default(), Instant::now());
        assert_eq!(view(&mut board, 3), (0, 0));
    }

    #[test]
    fn the_cursor_stays_with_its_lock() {
        let mut board = board();
        assert_eq!(names(&board), "cbad");
        board.apply(Command::Scroll(Scroll::Down));
        board.apply(Command::NextColumn);
        board.apply(Command::NextColumn);
        assert_eq!((names(&board).as_str(), board.view(4).cursor), ("adcb", 3));
        board.apply(Command::Scroll(Scroll::First));
        board.apply(Command::NextColumn);
        assert_eq!((names(&board).as_str(), board.view(4).cursor), ("bdca", 0));
    }

    #[test]
    fn the_details_are_those_of_the_lock_that_was_chosen() {
        let mut board = board();
        board.apply(Command::Scroll(Scroll::Down));
        board.apply(Command::Details);
        let shown = |board: &Board| {
            let (row, is_held) = board.details()?;
            Some((row.details.concat(), is_held))
        };
        assert_eq!(shown(&board), Some(("b of anna".to_owned(), true)));
        let rows = vec![row("b", "emil", 1, 29, &[])];
        let locks = Locks {
            rows,
            ..Locks::default()
        };
        board.set(locks, Instant::now());
        assert_eq!(shown(&board), Some(("b of emil".to_owned(), true)));
        board.set(Locks::default(), Instant::now());
        assert_eq!(shown(&board), Some(("b of emil".to_owned(), false)));
        board.apply(Command::Back);
        assert_eq!(shown(&board), None);
        board.apply(Command::Details);
        assert_eq!(shown(&board), None, "there is no row");
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
