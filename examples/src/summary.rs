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

    /// Adds a row, which is also a failure unless the check has passed.
    pub fn check(&mut self, label: &'static str, value: impl fmt::Display, has_passed: bool) {
        let value = value.to_string();
        self.fail((!has_passed).then(|| format!("{label}: {value}")));
        self.rows.push((label, value));
    }

    /// Adds failures.
    pub fn fail(&mut self, failures: impl IntoIterator<Item = String>) {
        self.failures.extend(failures);
    }

    /// Adds a row with the failures of one check, or with `passed` if there are none.
    pub fn finding(&mut self, label: &'static str, passed: &str, failures: impl IntoIterator<Item = String>) {
        let failures: Vec<String> = failures.into_iter().collect();
        let row = match &failures[..] {
            [] => passed.to_owned(),
            found => found.join("; "),
        };
        self.row(label, row);
        self.fail(failures);
    }

    /// Adds a row that names those of these problems that are there, or `passed` if there are none.
    pub fn problems(&mut self, label: &'static str, passed: &str, problems: &[(&str, bool)]) {
        let found = problems.iter().filter(|(_, is_there)| *is_there);
        let found: Vec<&str> = found.map(|(problem, _)| *problem).collect();
        let failure = (!found.is_empty()).then(|| format!("{label} ({})", found.join(", ")));
        self.finding(label, passed, failure);
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
        match &self.failures[..] {
            [] => write!(f, "\nAll checks passed."),
            failures => write!(f, "\nFAILED: {}", failures.join("; ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verdict_is_the_last_line() {
        let mut summary = Summary::default();
        summary.check("calls", 2, true);
        summary.finding("tokens", "rose", None);
        let passed = "\ncalls   2\ntokens  rose\n\nAll checks passed.";
        assert_eq!(summary.to_string(), passed);
        assert_eq!(summary.exit_code(), ExitCode::SUCCESS);
        summary.finding("tokens", "rose", ["tokens fell".to_owned()]);
        summary.check("lost", 1, false);
        let text = summary.to_string();
        assert!(text.contains("\ntokens  tokens fell\n"), "{text}");
        assert!(text.ends_with("\n\nFAILED: tokens fell; lost: 1"), "{text}");
        assert_eq!(summary.exit_code(), ExitCode::FAILURE);
    }
}
