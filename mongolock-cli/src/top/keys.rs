//! What the keys mean.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// What a key asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Command {
    Quit,
    /// The next column decides the order.
    NextColumn,
    Reverse,
    /// The keys that follow are the text of the filter.
    TypeFilter,
    Append(char),
    DeleteLast,
    /// The text of the filter is complete.
    AcceptFilter,
    /// Closes the details, or else clears the filter.
    Back,
    /// Opens or closes the details of the row of the cursor.
    Details,
    Scroll(Scroll),
}

/// A movement of the cursor over the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scroll {
    Up,
    Down,
    PageUp,
    PageDown,
    First,
    Last,
}

/// The meaning of a key; `None` if it has none. While a filter is typed, letters are part of it.
pub(super) fn command(key: KeyEvent, is_typing: bool) -> Option<Command> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return (key.code == KeyCode::Char('c')).then_some(Command::Quit);
    }
    match key.code {
        KeyCode::Up => Some(Command::Scroll(Scroll::Up)),
        KeyCode::Down => Some(Command::Scroll(Scroll::Down)),
        KeyCode::PageUp => Some(Command::Scroll(Scroll::PageUp)),
        KeyCode::PageDown => Some(Command::Scroll(Scroll::PageDown)),
        KeyCode::Home => Some(Command::Scroll(Scroll::First)),
        KeyCode::End => Some(Command::Scroll(Scroll::Last)),
        KeyCode::Esc => Some(Command::Back),
        KeyCode::Enter if is_typing => Some(Command::AcceptFilter),
        KeyCode::Enter => Some(Command::Details),
        KeyCode::Backspace if is_typing => Some(Command::DeleteLast),
        KeyCode::Char(c) if is_typing => Some(Command::Append(c)),
        KeyCode::Char(c) => letter(c),
        _ => None,
    }
}

fn letter(c: char) -> Option<Command> {
    match c {
        'q' => Some(Command::Quit),
        's' => Some(Command::NextColumn),
        'r' => Some(Command::Reverse),
        '/' => Some(Command::TypeFilter),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(code: KeyCode) -> KeyEvent {
        KeyEvent::new(code, KeyModifiers::NONE)
    }

    #[test]
    fn letters_are_text_while_a_filter_is_typed() {
        let q = key(KeyCode::Char('q'));
        assert_eq!(command(q, false), Some(Command::Quit));
        assert_eq!(command(q, true), Some(Command::Append('q')));
        let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        for is_typing in [false, true] {
            assert_eq!(command(interrupt, is_typing), Some(Command::Quit));
            assert_eq!(command(key(KeyCode::Esc), is_typing), Some(Command::Back));
        }
        assert_eq!(command(key(KeyCode::Enter), true), Some(Command::AcceptFilter));
        assert_eq!(command(key(KeyCode::Enter), false), Some(Command::Details));
    }
}
