//! The reports in MongoDB: read as a whole, written as a whole, and no operation that would make that safe by itself.

use anyhow::Context;
use mongodb::bson::doc;
use mongodb::{Collection, Database};
use mongolock::FencingToken;
use serde::{Deserialize, Serialize};

use crate::event::CallKey;

/// One report. Its content is the list of the rebuilds that went into it, in the order of their writes.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Report {
    #[serde(rename = "_id")]
    pub(crate) id: u32,
    pub(crate) revisions: Vec<Revision>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Revision {
    pub(crate) of: CallKey,
    pub(crate) token: Option<FencingToken>,
}

#[derive(Debug, Clone)]
pub(crate) struct Store {
    reports: Collection<Report>,
}

impl Store {
    pub(crate) fn new(database: &Database) -> Self {
        Self {
            reports: database.collection("reports"),
        }
    }

    /// Makes the reports 1 to `ids`, without revisions.
    pub(crate) async fn create(&self, ids: u32) -> anyhow::Result<()> {
        let empty = |id| Report {
            id,
            revisions: Vec::new(),
        };
        let created = self.reports.insert_many((1..=ids).map(empty)).await;
        created.map(drop).context("cannot create the reports")
    }

    pub(crate) async fn read(&self, id: u32) -> anyhow::Result<Report> {
        let report = self.reports.find_one(doc! { "_id": id }).await;
        report
            .with_context(|| format!("cannot read report {id}"))?
            .with_context(|| format!("report {id} is gone"))
    }

    pub(crate) async fn replace(&self, report: &Report) -> anyhow::Result<()> {
        let id = report.id;
        let replaced = self.reports.replace_one(doc! { "_id": id }, report).await;
        replaced
            .map(drop)
            .with_context(|| format!("cannot write report {id}"))
    }

    pub(crate) async fn all(&self) -> anyhow::Result<Vec<Report>> {
        let mut reports = Vec::new();
        let mut found = self.reports.find(doc! {}).sort(doc! { "_id": 1 }).await?;
        while found.advance().await? {
            reports.push(found.deserialize_current()?);
        }
        Ok(reports)
    }
}
