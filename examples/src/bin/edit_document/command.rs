//! What a person types at the terminal.

use std::str::FromStr;

/// A command, but for the one that ends the session; items by their numbers.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Open(u32),
    Save(u32, String),
    Close(u32),
    Who,
    Release(u32),
    End(String),
}

/// The commands, for those who need to be told.
pub(crate) const USAGE: &str = "\
open N        open item N, and lock it for you\n\
save N TEXT   save your text in it, and close it\n\
close N       close it unsaved\n\
who           who has which items open\n\
release N     take the lock of item N from whoever has it\n\
end SESSION   give back all that a session has open, also a crashed one\n\
quit          give back all that you have open, and go";

impl FromStr for Command {
    type Err = anyhow::Error;

    fn from_str(line: &str) -> anyhow::Result<Self> {
        let (verb, rest) = split(line);
        let (item, text) = split(rest);
        let number = || {
            let number = item.parse();
            number.map_err(|_| {
                anyhow::anyhow!("write the number of an item after `{verb}`, such as `{verb} 1`")
            })
        };
        match (verb, item, text) {
            ("open", _, "") => Ok(Self::Open(number()?)),
            ("save", _, text) if !text.is_empty() => Ok(Self::Save(number()?, text.to_owned())),
            ("close", _, "") => Ok(Self::Close(number()?)),
            ("release", _, "") => Ok(Self::Release(number()?)),
            ("end", session, "") if !session.is_empty() => Ok(Self::End(session.to_owned())),
            ("who", "", "") => Ok(Self::Who),
            _ => anyhow::bail!("the commands are:\n{USAGE}"),
        }
    }
}

/// The first word, and what comes after it.
fn split(text: &str) -> (&str, &str) {
    let (word, rest) = text
        .trim()
        .split_once(char::is_whitespace)
        .unwrap_or((text.trim(), ""));
    (word, rest.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_read() {
        for (line, command) in [
            ("open 1", Command::Open(1)),
            (
                "  save  2  two words \n",
                Command::Save(2, "two words".to_owned()),
            ),
            ("close 3", Command::Close(3)),
            ("who", Command::Who),
            ("release 4", Command::Release(4)),
            ("end anna@desk-3#7f", Command::End("anna@desk-3#7f".to_owned())),
        ] {
            assert_eq!(line.parse::<Command>().unwrap(), command, "{line}");
        }
    }

    #[test]
    fn everything_else_is_answered_with_what_to_write() {
        for line in [
            "",
            "open",
            "open one",
            "open 1 2",
            "save 1",
            "end",
            "who is it",
            "delete 1",
        ] {
            let error = line.parse::<Command>().unwrap_err().to_string();
            assert!(
                error.contains("the commands are") || error.contains("such as `open 1`"),
                "{line}: {error}"
            );
        }
    }
}
