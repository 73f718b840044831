//! The screen of `top`.

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Paragraph, Wrap};

use super::board::{Board, View};
use super::rows::Row;
use crate::columns::{Column, Columns, Kind};
use crate::text::{count, escaped, short};

/// A read that is older than this is late, and the screen says so.
const LATE: Duration = Duration::from_secs(3);

const HEADING: Style = Style::new().add_modifier(Modifier::REVERSED);
const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);

/// The row of the cursor.
const CURSOR: Style = Style::new().add_modifier(Modifier::UNDERLINED);

const KEYS: &str = "q quit  s sort  r reverse  / filter  Enter details  Esc clear  arrows scroll";
const KEYS_OF_DETAILS: &str = "q quit  Enter, Esc back";

/// The columns of the table.
const COLUMNS: [Column; 6] = [
    ("NAME", Kind::Long),
    ("HOLDER", Kind::Long),
    ("AGE", Kind::Number),
    ("REMAINING", Kind::Number),
    ("WAITERS", Kind::Long),
    ("NOTE", Kind::Long),
];

/// Draws the board.
pub(super) fn draw(frame: &mut Frame<'_>, board: &mut Board) {
    let parts = [
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Min(1),
        Constraint::Length(1),
    ];
    let [summary, problem, middle, keys] = Layout::vertical(parts).areas(frame.area());
    let passed = board.read_at().elapsed();
    // One line is the heading.
    let view = board.view(usize::from(middle.height.saturating_sub(1)));
    let rows = board.rows();
    frame.render_widget(Line::styled(summary_of(board, rows.len()), BOLD), summary);
    frame.render_widget(Line::from(problem_of(board, passed)), problem);
    match board.details() {
        Some((row, is_held)) => draw_details(frame, middle, row, is_held),
        None => draw_table(frame, middle, &rows, view, passed),
    }
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
        let damaged = count(locks.damaged, "damaged document");
        said.push(format!("{damaged}: mongolock doctor"));
    }
    said.join("; ")
}

/// Draws the rows in columns that have room for all rows, so that scrolling moves none of them.
fn draw_table(frame: &mut Frame<'_>, area: Rect, rows: &[&Row], view: View, passed: Duration) {
    let all: Vec<[String; 6]> = rows.iter().map(|row| cells(row, passed)).collect();
    let mut columns = Columns::new(COLUMNS);
    for cells in &all {
        columns.widen(cells);
    }
    let widths = columns.widths(Some(usize::from(area.width)));
    let mut lines = vec![Line::styled(columns.line(&columns.headings(), &widths), HEADING)];
    let shown = all.iter().enumerate().skip(view.first);
    lines.extend(shown.take(usize::from(area.height)).map(|(at, cells)| {
        let style = if at == view.cursor { CURSOR } else { Style::new() };
        Line::styled(columns.line(cells, &widths), style)
    }));
    frame.render_widget(Text::from(lines), area);
}

/// A row as it is after this time: it was neither renewed nor released as far as is known.
fn cells(row: &Row, passed: Duration) -> [String; 6] {
    let waiters = match row.waiters.len() {
        0 => "-".to_owned(),
        number => format!("{number}: {}", row.waiters.join(", ")),
    };
    [
        row.name.clone(),
        row.holder.clone(),
        short(row.age.saturating_add(passed)),
        short(row.remaining.saturating_sub(passed)),
        waiters,
        row.note.clone(),
    ]
}

/// Draws all that is known of a lock.
fn draw_details(frame: &mut Frame<'_>, area: Rect, row: &Row, is_held: bool) {
    let mut lines: Vec<Line<'_>> = row.details.iter().map(|line| Line::from(line.as_str())).collect();
    if !is_held {
        lines.insert(0, Line::styled("no longer held; it was:", BOLD));
    }
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }), area);
}

fn last_line(board: &Board) -> String {
    if board.is_typing() {
        return format!("filter: {}_", board.filter());
    }
    if board.details().is_some() {
        return KEYS_OF_DETAILS.to_owned();
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

    use super::super::keys::Command;
    use super::super::rows::{Column as SortColumn, Locks};
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
            note: if name == "deploy" { "release 812" } else { "" }.to_owned(),
            details: vec![name.to_owned(), "  state      held".to_owned()],
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
        let mut board = Board::new(locks, Instant::now(), SortColumn::Waiters);
        let shown = lines(&mut board, 7);
        assert_eq!(shown[0], "mongolock: 2 held, 2 waiting; by waiters");
        assert_eq!(shown[1], "");
        assert!(
            shown[2].starts_with("NAME ") && shown[2].ends_with(" NOTE"),
            "{shown:?}"
        );
        assert_eq!(
            shown[2..5],
            [
                "NAME      HOLDER   AGE  REMAINING  WAITERS        NOTE",
                "deploy    vm:1    2h5m         3h  2: vm:2, vm:3  release 812",
                "report:1  vm:1    2h5m         3h  -",
            ]
        );
        assert_eq!(shown[6], KEYS);
        board.apply(Command::Details);
        let shown = lines(&mut board, 7);
        assert_eq!(shown[2..4], ["deploy", "  state      held"]);
        assert_eq!(shown[6], KEYS_OF_DETAILS);
    }

    /// A screen has room for no more than a part of a name.
    #[test]
    fn a_long_name_keeps_both_ends() {
        let name = format!("report:{}:42", "x".repeat(100));
        let locks = Locks {
            rows: vec![row(&name, &[])],
            ..Locks::default()
        };
        let mut board = Board::new(locks, Instant::now(), SortColumn::Name);
        let shown = lines(&mut board, 7);
        assert!(
            shown[3].starts_with("report:xx")
                && shown[3].contains("xx:42  vm:1")
                && shown[3].contains('\u{2026}')
                && shown[3].ends_with("3h  -"),
            "{shown:?}"
        );
    }

    #[test]
    fn what_is_wrong_is_said() {
        let locks = Locks {
            rows: vec![row("a", &[]), row("b", &[])],
            is_cut: true,
            damaged: 3,
        };
        let read_at = Instant::now().checked_sub(Duration::from_secs(12)).unwrap();
        let mut board = Board::new(locks, read_at, SortColumn::Name);
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
        let mut board = Board::new(locks, Instant::now(), SortColumn::Name);
        // Three lines and the heading are no rows.
        assert!(lines(&mut board, 7)[5].starts_with("lock:2"));
        board.apply(Command::Scroll(super::super::keys::Scroll::Last));
        assert!(lines(&mut board, 7)[5].starts_with("lock:8"));
        lines(&mut board, 1);
    }
}
