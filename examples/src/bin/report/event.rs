//! What the processes say to the one that started them: a line when a body begins, and one when it ends.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// One call: its process, and its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct CallKey {
    pub(crate) process: u32,
    pub(crate) number: u32,
}

/// A body has begun or ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) call: CallKey,
    pub(crate) id: u32,
    pub(crate) kind: Kind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    Begin,
    End(End),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct End {
    /// `None` without a lock.
    pub(crate) token: Option<i64>,
    pub(crate) waited: Duration,
    pub(crate) held: Duration,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CallKey { process, number } = self.call;
        write!(f, "{process} {number} {}", self.id)?;
        let Kind::End(end) = &self.kind else { return Ok(()) };
        let (waited, held) = (end.waited.as_micros(), end.held.as_micros());
        // No lock has the token 0: tokens begin with the milliseconds of the clock.
        write!(f, " {} {waited} {held}", end.token.unwrap_or_default())
    }
}

impl FromStr for Event {
    type Err = anyhow::Error;

    fn from_str(line: &str) -> anyhow::Result<Self> {
        let unreadable = || anyhow::anyhow!("a process said {line:?}, which is not an event");
        let numbers: Result<Vec<i64>, _> = line.split(' ').map(str::parse).collect();
        let numbers = numbers.map_err(|_| unreadable())?;
        let small = |number: i64| u32::try_from(number).map_err(|_| unreadable());
        let micros = |number: i64| u64::try_from(number).map(Duration::from_micros);
        let (&[process, number, id], end) = numbers.split_first_chunk().ok_or_else(unreadable)?;
        let kind = match *end {
            [] => Kind::Begin,
            [token, waited, held] => Kind::End(End {
                token: (token != 0).then_some(token),
                waited: micros(waited)?,
                held: micros(held)?,
            }),
            _ => return Err(unreadable()),
        };
        Ok(Self {
            call: CallKey {
                process: small(process)?,
                number: small(number)?,
            },
            id: small(id)?,
            kind,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_survives_its_line() {
        let call = CallKey {
            process: 2,
            number: 11,
        };
        let end = |token| {
            Kind::End(End {
                token,
                waited: Duration::from_micros(1),
                held: Duration::from_millis(20),
            })
        };
        for kind in [Kind::Begin, end(None), end(Some(1_763_700_000_000_000))] {
            let event = Event { call, id: 3, kind };
            assert_eq!(event.to_string().parse::<Event>().unwrap(), event);
        }
    }

    #[test]
    fn other_lines_are_refused() {
        for line in ["", "1 2", "1 2 3 4", "1 2 x", "-1 2 3", "1 2 3 4 -5 6"] {
            assert!(line.parse::<Event>().is_err(), "{line}");
        }
    }
}
