//! `top`: the locks that are held now, on a live screen.

mod board;
mod keys;
mod reader;
mod rows;
mod screen;

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use mongolock::{LockFilter, LockState};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};
use tokio::select;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{MissedTickBehavior, interval};

pub(crate) use self::rows::Column;

use self::board::Board;
use self::keys::Command;
use crate::cli::{ConnectionArguments, TopArguments};
use crate::exit::Ending;
use crate::failure::Failure;

/// How often ages and remaining times are shown anew.
const REDRAW: Duration = Duration::from_millis(500);

pub(crate) async fn top(
    arguments: TopArguments,
    connection: &ConnectionArguments,
) -> Result<Ending, Failure> {
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return Err(
            Failure::new("`top` needs a terminal for its input and its output")
                .help("Use `mongolock ls --held` for a list, and `mongolock watch` for a stream of lines."),
        );
    }
    let admin = connection.collections().await?.provider.admin();
    let filter = filter(&arguments);
    // A failure of the first read is a message at the shell and not on the screen.
    let first = reader::read(&admin, filter.clone()).await?;
    let board = Board::new(first, Instant::now(), arguments.sort);
    let signals = EndSignals::new().map_err(Failure::io("cannot receive signals"))?;
    let locks = reader::start(admin, filter);
    let terminal = ratatui::try_init().map_err(Failure::io("cannot use the terminal"))?;
    let ended = Show {
        terminal,
        board,
        locks,
        signals,
    }
    .until_quit()
    .await;
    // If the terminal is gone, its state does not matter.
    let _ = ratatui::try_restore();
    ended
}

/// The locks that are shown.
fn filter(arguments: &TopArguments) -> LockFilter {
    let mut filter = LockFilter::new().state(LockState::Held);
    if let Some(prefix) = &arguments.prefix {
        filter = filter.prefix(prefix);
    }
    if let Some(owner) = &arguments.owner {
        filter = filter.owner(owner);
    }
    filter
}

struct Show {
    terminal: DefaultTerminal,
    board: Board,
    locks: reader::Reads,
    signals: EndSignals,
}

impl Show {
    /// Shows the board until the user quits or a signal ends this program.
    async fn until_quit(mut self) -> Result<Ending, Failure> {
        let failed = || Failure::io("cannot use the terminal");
        let mut events = events().map_err(failed())?;
        let mut redraw = interval(REDRAW);
        redraw.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let board = &mut self.board;
            self.terminal
                .draw(|frame| screen::draw(frame, board))
                .map_err(failed())?;
            select! {
                read = self.locks.recv() => match read {
                    Some(Ok(locks)) => self.board.set(locks, Instant::now()),
                    Some(Err(failure)) => self.board.fail(failure.to_string()),
                    None => return Err(Failure::new("the locks are no longer read")),
                },
                event = events.recv() => match event {
                    Some(Ok(event)) => if self.on_event(&event) == Next::Quit {
                        return Ok(Ending::OK);
                    },
                    Some(Err(error)) => return Err(failed()(error)),
                    None => return Err(Failure::new("the terminal is closed")),
                },
                number = self.signals.next() => return Ok(Ending::of_signal(number)),
                _ = redraw.tick() => {}
            }
        }
    }

    fn on_event(&mut self, event: &Event) -> Next {
        // Another event, such as a new size of the terminal, needs a new drawing only.
        let Event::Key(key) = event else {
            return Next::Go;
        };
        match keys::command(*key, self.board.is_typing()) {
            Some(Command::Quit) => Next::Quit,
            Some(command) => {
                self.board.apply(command);
                Next::Go
            }
            None => Next::Go,
        }
    }
}

/// What follows an event.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    Go,
    Quit,
}

/// The events of the terminal. They are read by a thread of their own, because reading blocks.
fn events() -> io::Result<UnboundedReceiver<io::Result<Event>>> {
    let (sender, events) = unbounded_channel();
    let read = move || {
        loop {
            let event = event::read();
            let has_failed = event.is_err();
            if sender.send(event).is_err() || has_failed {
                return;
            }
        }
    };
    std::thread::Builder::new()
        .name("terminal".to_owned())
        .spawn(read)?;
    Ok(events)
}

/// The signals that end this program. It must put the terminal in order before.
struct EndSignals {
    hang_up: Signal,
    interrupt: Signal,
    terminate: Signal,
}

impl EndSignals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            hang_up: signal(SignalKind::hangup())?,
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// The number of the next one.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: no signal is lost.
    async fn next(&mut self) -> i32 {
        let kind = select! {
            _ = self.hang_up.recv() => SignalKind::hangup(),
            _ = self.interrupt.recv() => SignalKind::interrupt(),
            _ = self.terminate.recv() => SignalKind::terminate(),
        };
        kind.as_raw_value()
    }
}
