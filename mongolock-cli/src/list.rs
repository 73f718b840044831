//! `ls`: lists the locks in pages, in constant memory.

use mongolock::{LockError, LockFilter, LockInfo, LockState};

use crate::cli::{ConnectionArguments, ListArguments};
use crate::columns::{ColumnKind, Columns};
use crate::exit::Exit;
use crate::failure::{Failure, warn};
use crate::json;
use crate::last_renewal::{LastRenewals, no_renewal};
use crate::output::{StandardOutput, name_of, state};
use crate::text::{escaped, short};

/// The number of rows that are read before they are written, because the longest one determines the widths. The library
/// reads the same number with one query.
const ROWS: usize = 1000;

pub(crate) async fn ls(arguments: ListArguments, connection: &ConnectionArguments) -> Result<Exit, Failure> {
    let collections = connection.collections().await?;
    let mut locks = collections.provider.admin().stream(filter(&arguments));
    let renewals = LastRenewals::read_unless(arguments.json, &collections).await;
    let mut list = List::new(arguments.json, renewals);
    while let Some(found) = locks.next().await {
        match found {
            Ok(info) => list.lock(&info)?,
            Err(LockError::CorruptDocument { name, problem, .. }) => list.damaged(&name, &problem)?,
            // The rows that were found are written before the error.
            Err(error) => {
                list.flush()?;
                return Err(error.into());
            }
        }
    }
    if list.is_empty() && !arguments.json {
        warn(nothing(&arguments, &collections.name()));
        if let Some(other) = collections.other_spelling().await {
            warn(format_args!(
                "there is a database `{other}`, which is spelt otherwise"
            ));
        }
    }
    list.flush()?;
    Ok(Exit::OK)
}

/// The output of `ls`: rows of a table, or lines of JSON.
struct List {
    output: StandardOutput,
    as_json: bool,
    columns: Columns<4>,
    /// The rows that are not written yet.
    rows: Vec<[String; 4]>,
    /// Whether the heading is written.
    is_begun: bool,
    renewals: LastRenewals,
}

impl List {
    fn new(as_json: bool, renewals: LastRenewals) -> Self {
        Self {
            renewals,
            output: StandardOutput::new(),
            as_json,
            columns: Columns::new([
                ("NAME", ColumnKind::Long),
                ("STATE", ColumnKind::Word),
                ("REMAINING", ColumnKind::Number),
                ("OWNER", ColumnKind::Long),
            ]),
            rows: Vec::new(),
            is_begun: false,
        }
    }

    fn is_empty(&self) -> bool {
        self.rows.is_empty() && !self.is_begun
    }

    fn lock(&mut self, info: &LockInfo) -> Result<(), Failure> {
        if self.as_json {
            return self.output.line(json::lock(info));
        }
        self.row([
            name_of(info),
            match self.renewals.missing_for(info) {
                Some(time) => no_renewal(time),
                None if info.detached && info.state == LockState::Held => "detached".to_owned(),
                None => state(info.state).to_owned(),
            },
            if info.remaining.is_zero() {
                "-".to_owned()
            } else {
                short(info.remaining)
            },
            info.owner
                .as_deref()
                .map_or_else(|| "-".into(), escaped)
                .into_owned(),
        ])
    }

    /// Shows a document that cannot be read: the problem replaces the owner.
    fn damaged(&mut self, name: &str, problem: &str) -> Result<(), Failure> {
        if self.as_json {
            return self.output.line(json::damaged(name, problem));
        }
        let (name, problem) = (escaped(name).into_owned(), escaped(problem).into_owned());
        self.row([name, "damaged".to_owned(), "-".to_owned(), problem])
    }

    fn row(&mut self, row: [String; 4]) -> Result<(), Failure> {
        self.columns.widen(&row);
        self.rows.push(row);
        if self.rows.len() == ROWS {
            self.write()?;
        }
        Ok(())
    }

    /// Writes the rows that were read, below the heading.
    fn write(&mut self) -> Result<(), Failure> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let widths = self.columns.widths(self.output.columns());
        if !std::mem::replace(&mut self.is_begun, true) {
            let headings = self.columns.headings();
            self.output.line(self.columns.line(&headings, &widths))?;
        }
        for row in self.rows.drain(..) {
            self.output.line(self.columns.line(&row, &widths))?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Failure> {
        self.write()?;
        self.output.flush()
    }
}

fn filter(arguments: &ListArguments) -> LockFilter {
    let mut filter = LockFilter::new();
    if let Some(prefix) = &arguments.prefix {
        filter = filter.prefix(prefix);
    }
    if let Some(owner) = &arguments.owner {
        filter = filter.owner(owner);
    }
    let states = [
        (arguments.held, LockState::Held),
        (arguments.expired, LockState::Expired),
        (arguments.done, LockState::Done),
    ];
    match states.into_iter().find(|(is_set, _)| *is_set) {
        Some((_, state)) => filter.state(state),
        None => filter,
    }
}

/// The message instead of an empty list: perhaps it is the wrong database.
fn nothing(arguments: &ListArguments, place: &str) -> String {
    let is_chosen = arguments.prefix.is_some()
        || arguments.owner.is_some()
        || arguments.held
        || arguments.expired
        || arguments.done;
    let locks = if is_chosen { "such locks" } else { "locks" };
    format!("no {locks} in {}", escaped(place))
}
