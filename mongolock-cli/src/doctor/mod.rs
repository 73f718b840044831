//! `doctor`: checks the deployment and the collection of the locks. It changes nothing.

mod clocks;
mod documents;
mod index;
mod rights;
mod servers;
mod writes;

use std::time::Duration;

use mongodb::bson::{Bson, Document, doc};
use mongolock::{IndexState, LockError};
use serde::Serialize;

use crate::cli::{ConnectionArguments, DoctorArguments};
use crate::connection::Collections;
use crate::exit::{self, Exit};
use crate::failure::Failure;
use crate::json;
use crate::output::StandardOutput;
use crate::text::escaped;

/// How long a read of the documents may take. Without a majority some of them would wait for ever.
const READ_LIMIT: Duration = Duration::from_secs(5);

/// Whether all is well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum CheckState {
    Ok,
    Wrong,
    /// This user has no right to check it, or the server could not be reached.
    Unknown,
}

/// What one check has found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Finding {
    check: &'static str,
    state: CheckState,
    #[serde(rename = "finding")]
    said: String,
    /// The command that fixes it, for mongosh unless it says otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    mend: Option<String>,
}

impl Finding {
    fn ok(check: &'static str, said: impl Into<String>) -> Self {
        Self {
            check,
            state: CheckState::Ok,
            said: said.into(),
            mend: None,
        }
    }

    fn wrong(check: &'static str, said: impl Into<String>, mend: impl Into<String>) -> Self {
        Self {
            check,
            state: CheckState::Wrong,
            said: said.into(),
            mend: Some(mend.into()),
        }
    }

    fn unknown(check: &'static str, said: impl Into<String>) -> Self {
        Self {
            state: CheckState::Unknown,
            ..Self::ok(check, said)
        }
    }

    /// The finding for an error, with the text and the advice of the library, after a text that says what has failed.
    fn refused(check: &'static str, what: &str, error: LockError) -> Self {
        let mend = error.help();
        Self::wrong(check, format!("{what}{}", Failure::from(error)), mend)
    }

    fn mend(mut self, mend: impl Into<String>) -> Self {
        self.mend = Some(mend.into());
        self
    }
}

pub(crate) async fn doctor(
    arguments: DoctorArguments,
    connection: &ConnectionArguments,
) -> Result<Exit, Failure> {
    let retention = arguments.retention;
    let mut collections = connection.collections().await?;
    collections.provider = collections.provider.to_builder().retention(retention).build()?;
    let mut report = DoctorReport {
        output: StandardOutput::new(),
        as_json: arguments.json,
        is_wrong: false,
    };
    match collections.database.run_command(doc! { "hello": 1 }).await {
        Ok(hello) => {
            let finding = servers::connection(&collections, &hello).await;
            report.add(&finding)?;
            report.add(&servers::deployment(&hello))?;
            if let Some(other) = collections.other_spelling().await {
                let said = format!(
                    "there is `{other}`, which is spelt otherwise: the server refuses the first acquisition here"
                );
                let mend = format!("at the shell: --database {other}");
                report.add(&Finding::wrong("database", said, mend))?;
            }
            check(&collections, retention, &hello, &mut report).await?;
        }
        Err(error) => {
            let known = collections.provider.health().await.error;
            let error = known.unwrap_or_else(|| error.into());
            report.add(&Finding::refused("connection", "", error))?;
        }
    }
    report.output.flush()?;
    Ok(Exit::Code(if report.is_wrong { exit::NO } else { 0 }))
}

async fn check(
    collections: &Collections,
    retention: Duration,
    hello: &Document,
    report: &mut DoctorReport,
) -> Result<(), Failure> {
    for finding in rights::rights(collections).await {
        report.add(&finding)?;
    }
    let index = collections.provider.admin().inspect_index().await;
    for finding in index::ttl_index(collections, retention, &index, hello).await {
        report.add(&finding)?;
    }
    report.add(&servers::write_concern(collections, hello).await)?;
    report.add(&writes::majority(collections).await)?;
    // A transaction would create the collection.
    if !matches!(index, IndexState::NoCollection)
        && let Some(finding) = writes::documents(collections).await
    {
        report.add(&finding)?;
    }
    report.add(&servers::change_streams(collections).await)?;
    for finding in documents::documents(collections, retention).await {
        report.add(&finding)?;
    }
    for finding in clocks::clocks(hello, &collections.options).await {
        report.add(&finding)?;
    }
    Ok(())
}

/// The documents of a list.
fn documents_of<'a>(document: &'a Document, list: &str) -> impl Iterator<Item = &'a Document> {
    let list = document.get_array(list).map(Vec::as_slice);
    list.unwrap_or_default().iter().filter_map(Bson::as_document)
}

/// The output of `doctor`: a line for each finding.
struct DoctorReport {
    output: StandardOutput,
    as_json: bool,
    is_wrong: bool,
}

impl DoctorReport {
    fn add(&mut self, finding: &Finding) -> Result<(), Failure> {
        self.is_wrong |= finding.state == CheckState::Wrong;
        if self.as_json {
            return self.output.line(json::line(finding));
        }
        let state = match finding.state {
            CheckState::Ok => "ok",
            CheckState::Wrong => "WRONG",
            CheckState::Unknown => "unknown",
        };
        let said = escaped(&finding.said);
        self.output
            .line(format_args!("{state:<7}  {:<14}  {said}", finding.check))?;
        if let Some(mend) = &finding.mend {
            self.output
                .line(format_args!("{:27}mend: {}", "", escaped(mend)))?;
        }
        Ok(())
    }
}
