//! What the program prints before and after the transfers.

use std::fmt;
use std::time::Duration;

use mongolock_examples::duration::show;

use crate::bank::LIMIT;
use crate::line::HEADING;
use crate::options::Options;
use crate::verdict::Finding;
use crate::worker::EXPIRY;

/// The first lines.
pub(crate) fn heading(options: &Options) -> String {
    let Options {
        processes,
        transfers,
        accounts,
        ..
    } = options;
    let commit = if options.without_guard {
        "committed WITHOUT the guard"
    } else {
        "committed only if the lock is still held"
    };
    format!(
        "{processes} processes transfer between {accounts} accounts, at most {LIMIT} between any two of them: under \
         the lock\n`transfer:<pair>` with a lease of {}, {commit}.\n\
         Process 1 is stopped in the middle of one transfer, the others make {transfers} each.\n\n{HEADING}",
        show(EXPIRY)
    )
}

/// The last lines, and the exit status.
pub(crate) struct Summary {
    pub(crate) entries: usize,
    pub(crate) findings: Vec<Finding>,
    /// The processes that failed, with how they ended.
    pub(crate) failed: Vec<String>,
    pub(crate) took: Duration,
}

impl Summary {
    /// Nothing went wrong.
    pub(crate) fn is_right(&self) -> bool {
        self.failed.is_empty() && self.findings.iter().all(|finding| finding.found.is_ok())
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f)?;
        writeln!(f, "{:<18}{}", "journal entries", self.entries)?;
        for Finding { what, found } in &self.findings {
            match found {
                Ok(right) => writeln!(f, "{what:<18}{right}")?,
                Err(wrong) => writeln!(f, "{what:<18}WRONG: {wrong}")?,
            }
        }
        writeln!(f, "{:<18}{}", "time", show(self.took))?;
        for failure in &self.failed {
            writeln!(f, "{:<18}{failure}", "failed")?;
        }
        if self.is_right() {
            write!(f, "\nEverything is right.")
        } else {
            write!(f, "\nSomething went wrong.")
        }
    }
}
