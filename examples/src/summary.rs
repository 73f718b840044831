//! The result of a demonstration: rows for the reader, and the checks that failed.

use std::fmt;
use std::process::ExitCode;

/// The rows and the failed checks. Its [`Display`](fmt::Display) text ends with the verdict.
#[derive(Debug, Default)]
pub struct Summary {
    rows: Vec<(&'static str, String)>,
    failures: Vec<String>,
}

impl Summary {
    /// Adds a row for the reader.
    pub fn row(&mut self, label: &'static str, value: impl fmt::Display) {
        self.rows.push((label, value.to_string()));
    }

    /// Adds a failure unless the check has passed.
    pub fn check(&mut self, has_passed: bool, failure: impl Into<String>) {
        self.fail((!has_passed).then(|| failure.into()));
    }

    /// Adds a row with a number, which is a failure unless it is zero.
    pub fn zero(&mut self, label: &'static str, number: usize, failure: impl Into<String>) {
        self.row(label, number);
        self.check(number == 0, failure);
    }

    /// Adds failures.
    pub fn fail(&mut self, failures: impl IntoIterator<Item = String>) {
        self.failures.extend(failures);
    }

    /// Adds a row with the failures of one check, or with `passed` if there are none.
    pub fn finding(&mut self, label: &'static str, passed: &str, failures: impl IntoIterator<Item = String>) {
        let failures: Vec<String> = failures.into_iter().collect();
        let row = if failures.is_empty() {
            passed.to_owned()
        } else {
            failures.join("; ")
        };
        self.row(label, row);
        self.fail(failures);
    }

    /// The checks that failed.
    #[must_use]
    pub fn failures(&self) -> &[String] {
        &self.failures
    }

    /// Success if all checks passed.
    #[must_use]
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(u8::from(!self.failures.is_empty()))
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.rows.iter().map(|(label, _)| label.len()).max();
        let width = width.unwrap_or_default();
        writeln!(f)?;
        for (label, value) in &self.rows {
            writeln!(f, "{label:<width$}  {value}")?;
        }
        if self.failures.is_empty() {
            write!(f, "\nAll checks passed.")
        } else {
            write!(f, "\nFAILED: {}", self.failures.join("; "))
        }
    }
}

/// "1 process", "3 processes".
#[must_use]
pub fn count(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verdict_is_the_last_line() {
        let mut summary = Summary::default();
        summary.row("calls", "2");
        summary.finding("lost updates", "none", None);
        assert_eq!(
            summary.to_string(),
            "\ncalls         2\nlost updates  none\n\nAll checks passed."
        );
        assert_eq!(summary.exit_code(), ExitCode::SUCCESS);
        summary.finding("tokens", "rose", ["tokens fell".to_owned()]);
        summary.check(false, "process 2: exit status: 1");
        let text = summary.to_string();
        assert!(text.contains("\ntokens        tokens fell\n"), "{text}");
        assert!(
            text.ends_with("\n\nFAILED: tokens fell; process 2: exit status: 1"),
            "{text}"
        );
        assert_eq!(summary.exit_code(), ExitCode::FAILURE);
    }
}
