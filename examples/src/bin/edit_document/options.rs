//! The command line: nothing for the scenes, or a database and a name for a session at the terminal.

use std::time::Duration;

use clap::{Args, Parser};
use mongolock_examples::duration;

const ABOUT: &str = "\
People edit work items, each in a session of their own. An item is locked while somebody has it open, and others are \
told who has it. The program plays a few scenes of that and checks that each goes as expected.

It starts a MongoDB of its own, which is gone when the program ends. With MONGODB_URI it uses that one instead, in a \
database of its own, which it drops at the end.

With --database and --editor you edit yourself, on the server of MONGODB_URI; try it in two terminals.";

const STATUS: &str = "\
Exit status: 0 if all went as expected, 1 if something did not, 2 for a wrong command line.";

/// The command line.
#[derive(Debug, Parser)]
#[command(name = "edit_document", about = ABOUT, after_help = STATUS)]
pub(crate) struct Options {
    #[command(flatten)]
    pub(crate) terminal: Option<Terminal>,
}

/// A session that takes its commands from standard input. The scenes start one as well.
#[derive(Debug, Args)]
#[group(requires_all = ["database", "editor"], multiple = true)]
pub(crate) struct Terminal {
    /// Edit the items of this database yourself; they are made if there are none
    #[arg(long, value_name = "NAME", required = false)]
    pub(crate) database: String,

    /// Who you are to the others, such as `anna@desk-3`
    #[arg(long, value_name = "NAME", required = false)]
    pub(crate) editor: String,

    /// How long a lease lasts without a renewal: when your items are free again if this program is killed, as by
    /// Ctrl-C
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration::parse_expiry)]
    pub(crate) expiry: Duration,

    /// When an item that you leave open is no longer kept for you; it is free at most one expiry later
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration::parse)]
    pub(crate) max_hold: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_edits_names_a_database_and_themselves() {
        assert!(
            Options::try_parse_from(["edit_document"])
                .unwrap()
                .terminal
                .is_none()
        );
        let all = ["edit_document", "--database=d", "--editor=anna"];
        let terminal = Options::try_parse_from(all).unwrap().terminal.unwrap();
        assert_eq!(
            (terminal.database.as_str(), terminal.editor.as_str()),
            ("d", "anna")
        );
        for one in [&all[..2], &[all[0], all[2]], &[all[0], "--max-hold=1m"]] {
            assert!(Options::try_parse_from(one).is_err(), "{one:?}");
        }
    }
}
