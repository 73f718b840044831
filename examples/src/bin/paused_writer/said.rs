//! What writer 1 says to the program that started it: a line before it is stopped, and one at the end.

use std::fmt;
use std::str::FromStr;

use mongolock::FencingToken;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Said {
    /// It has the lock, and has read the balance.
    Read { token: FencingToken, balance: i64 },
    /// Its write was accepted.
    Written,
    /// Its write was refused, with this message.
    Refused(String),
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read { token, balance } => write!(f, "read {token} {balance}"),
            Self::Written => write!(f, "written"),
            Self::Refused(message) => write!(f, "refused {message}"),
        }
    }
}

impl FromStr for Said {
    type Err = anyhow::Error;

    fn from_str(line: &str) -> anyhow::Result<Self> {
        let said = match line.split_once(' ') {
            None if line == "written" => Some(Self::Written),
            Some(("refused", message)) => Some(Self::Refused(message.to_owned())),
            Some(("read", numbers)) => numbers.split_once(' ').and_then(|(token, balance)| {
                Some(Self::Read {
                    token: token.parse().ok()?,
                    balance: balance.parse().ok()?,
                })
            }),
            _ => None,
        };
        said.ok_or_else(|| anyhow::anyhow!("writer 1 said {line:?}, which means nothing"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_survives_its_line() {
        let read = Said::Read {
            token: FencingToken::from(1_763_700_000_000_000),
            balance: 100,
        };
        for said in [
            read,
            Said::Written,
            Said::Refused("too late: 7 was here".to_owned()),
        ] {
            assert_eq!(said.to_string().parse::<Said>().unwrap(), said);
        }
    }

    #[test]
    fn other_lines_are_refused() {
        for line in ["", "read", "read 7", "read 7 x", "written 7", "refused"] {
            assert!(line.parse::<Said>().is_err(), "{line}");
        }
    }
}
