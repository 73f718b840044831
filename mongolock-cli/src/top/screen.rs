//! The screen of `top`.

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Row as TableRow, Table};

use super::board::{Board, Row};
use crate::text::{escaped, short};

/// A read that is older than this is late, and the screen says so.
const LATE: Duration = Duration::from_secs(3);

const HEADING: Style = Style::new().add_modifier(Modifier::REVERSED);
const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);

const KEYS: &str = "q quit   s sort   r reverse   / filter   Esc clear   Up Down PgUp PgDn scroll";

/// Draws the board.
pub(super) fn draw(frame: &mut Frame<'_>, board: &mut Board) {
    let parts = [
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Min(1),
        Constraint::Length(1),
    ];
    let [summary, problem, table, keys] = Layout::vertical(parts).areas(frame.area());
    let passed = board.read_at().elapsed();
    let number = board.rows().len();
    // One line is the heading.
    let height = usize::from(table.height.saturating_sub(1));
    let first = board.first(number, height);
    frame.render_widget(Line::styled(summary_of(board, number), BOLD), summary);
    frame.render_widget(Line::from(problem_of(board, passed)), problem);
    draw_table(frame, table, &board.rows(), first, passed);
    frame.render_widget(Line::from(last_line(board)), keys);
}

fn summary_of(board: &Board, number: usize) -> String {
    let locks = board.locks();
    let held = locks.rows.len();
    let waiters = locks.waiters();
    let shown = if board.filter().is_empty() {
        format!("{held} held")
    } else {
        format!("{number} of {held} held")
    };
    let direction = if board.is_reversed() { ", reversed" } else { "" };
    let order = board.column().as_str();
    format!("mongolock: {shown}, {waiters} waiting; by {order}{direction}")
}

/// What is not as it should be.
fn problem_of(board: &Board, passed: Duration) -> String {
    let locks = board.locks();
    let mut said = Vec::new();
    if passed > LATE || board.problem().is_some() {
        said.push(format!("read {} ago", short(passed)));
    }
    said.extend(board.problem().map(|problem| escaped(problem).into_owned()));
    if locks.is_cut {
        said.push("there are more locks; name a PREFIX".to_owned());
    }
    if locks.damaged > 0 {
        said.push(format!("{} damaged documents: mongolock doctor", locks.damaged));
    }
    said.join("; ")
}

fn draw_table(frame: &mut Frame<'_>, area: Rect, rows: &[&Row], first: usize, passed: Duration) {
    let shown = rows.iter().skip(first).take(usize::from(area.height));
    let widths = [
        Constraint::Fill(3),
        Constraint::Fill(2),
        Constraint::Length(8),
        Constraint::Length(9),
        Constraint::Fill(3),
    ];
    let heading = TableRow::new(["NAME", "HOLDER", "     AGE", "REMAINING", "WAITERS"]).style(HEADING);
    let table = Table::new(shown.map(|row| cells(row, passed)), widths);
    frame.render_widget(table.header(heading).column_spacing(2), area);
}

/// A row as it is after this time: it was neither renewed nor released as far as is known.
fn cells(row: &Row, passed: Duration) -> TableRow<'_> {
    let age = short(row.age.saturating_add(passed));
    let remaining = short(row.remaining.saturating_sub(passed));
    let waiters = match row.waiters.len() {
        0 => "-".to_owned(),
        number => format!("{number}: {}", row.waiters.join(", ")),
    };
    TableRow::new([
        Cell::from(row.name.as_str()),
        Cell::from(row.holder.as_str()),
        Cell::from(format!("{age:>8}")),
        Cell::from(format!("{remaining:>9}")),
        Cell::from(waiters),
    ])
}

fn last_line(board: &Board) -> String {
    if board.is_typing() {
        return format!("filter: {}_", board.filter());
    }
    if board.filter().is_empty() {
        return KEYS.to_owned();
    }
    format!("filter: {}   (Esc clears it)   {KEYS}", board.filter())
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::board::{Column, Locks};
    use super::super::keys::Command;
    use super::*;

    fn row(name: &str, waiters: &[&str]) -> Row {
        Row {
            name: name.to_owned(),
            awaited: name.to_owned(),
            holder: "vm:1".to_owned(),
            // A slow machine must not change what is shown.
            age: Duration::from_secs(7_500),
            remaining: Duration::from_secs(10_830),
            waiters: waiters.iter().map(|&owner| owner.to_owned()).collect(),
        }
    }

    fn lines(board: &mut Board, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(80, height)).unwrap();
        terminal.draw(|frame| draw(frame, board)).unwrap();
        let buffer = terminal.backend().buffer().clone();
        let line = |y| {
            (0..80)
                .map(|x| buffer[(x, y)].symbol().to_owned())
                .collect::<String>()
        };
        (0..height).map(|y| line(y).trim_end().to_owned()).collect()
    }

    #[test]
    fn the_screen_has_all_of_a_lock() {
        let locks = Locks {
            rows: vec![row("report:1", &[]), row("deploy", &["vm:2", "vm:3"])],
            ..Locks::default()
        };
        let mut board = Board::new(locks, Instant::now(), Column::Waiters);
        let shown = lines(&mut board, 7);
        assert_eq!(shown[0], "mongolock: 2 held, 2 waiting; by waiters");
        assert_eq!(shown[1], "");
        assert!(
            shown[2].starts_with("NAME ") && shown[2].ends_with(" WAITERS"),
            "{shown:?}"
        );
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(
            words(&shown[3]),
            ["deploy", "vm:1", "2h5m", "3h", "2:", "vm:2,", "vm:3"]
        );
        assert_eq!(words(&shown[4]), ["report:1", "vm:1", "2h5m", "3h", "-"]);
        assert_eq!(shown[6], KEYS);
    }

    #[test]
    fn what_is_wrong_is_said() {
        let locks = Locks {
            rows: vec![row("a", &[]), row("b", &[])],
            is_cut: true,
            damaged: 3,
        };
        let read_at = Instant::now().checked_sub(Duration::from_secs(12)).unwrap();
        let mut board = Board::new(locks, read_at, Column::Name);
        board.fail("no server".to_owned());
        board.apply(Command::TypeFilter);
        board.apply(Command::Append('b'));
        let shown = lines(&mut board, 6);
        assert_eq!(shown[0], "mongolock: 1 of 2 held, 0 waiting; by name");
        assert!(shown[1].starts_with("read 1"), "{shown:?}");
        assert!(
            shown[1].contains("s ago; no server; there are more locks; name a PREFIX; 3"),
            "{shown:?}"
        );
        assert!(shown[3].contains("2h5m"), "{shown:?}");
        assert_eq!(shown[5], "filter: b_");
    }

    #[test]
    fn a_small_screen_scrolls() {
        let rows = (0..9).map(|number| row(&format!("lock:{number}"), &[])).collect();
        let locks = Locks {
            rows,
            ..Locks::default()
        };
        let mut board = Board::new(locks, Instant::now(), Column::Name);
        // Three lines and the heading are no rows.
        assert!(lines(&mut board, 7)[5].starts_with("lock:2"));
        board.apply(Command::Scroll(super::super::keys::Scroll::Last));
        assert!(lines(&mut board, 7)[5].starts_with("lock:8"));
        lines(&mut board, 1);
    }
}
