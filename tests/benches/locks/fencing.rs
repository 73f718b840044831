//! What a fence adds to a write, and a guard to a commit.
//!
//! A fenced write is one command, like a plain one; its filter has one more condition, and its update one more field. A
//! guarded commit sends one more statement than a plain one.

use std::time::{Duration, Instant};

use mongodb::bson::{Document, doc};
use mongodb::{ClientSession, Collection};
use mongolock::{FencedExt, LockGuard};

use crate::report::Report;
use crate::samples::{compare, ratio};
use crate::setting::Setting;

const GOAL: f64 = 1.10;

pub(crate) async fn measure(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    let database = setting.database().await?;
    let provider = setting.access().provider().await?;
    // A renewal is a conflict for the transactions.
    let lock = provider.lock("fencing").expiry(Duration::from_secs(600));
    let guard = lock.acquire().await?;
    let work = Work {
        documents: database.collection("fencing"),
        guard,
    };
    for id in [0, 1] {
        work.documents.insert_one(doc! { "_id": id, "n": 0_i64 }).await?;
    }
    writes(&work, setting, report).await?;
    commits(&work, database.client().start_session().await?, setting, report).await?;
    work.guard.release().await?;
    provider.shutdown().await;
    Ok(())
}

struct Work {
    documents: Collection<Document>,
    guard: LockGuard,
}

impl Work {
    async fn plain(&self) -> anyhow::Result<Duration> {
        let begun = Instant::now();
        self.documents.update_one(doc! { "_id": 0 }, count()).await?;
        Ok(begun.elapsed())
    }

    async fn fenced(&self) -> anyhow::Result<Duration> {
        let begun = Instant::now();
        let fenced = self.documents.fenced(self.guard.fencing_token());
        fenced.update_one(doc! { "_id": 1 }, count()).await?;
        Ok(begun.elapsed())
    }

    async fn transaction(&self, session: &mut ClientSession, guarded: bool) -> anyhow::Result<Duration> {
        let begun = Instant::now();
        session.start_transaction().await?;
        let update = self.documents.update_one(doc! { "_id": 0 }, count());
        update.session(&mut *session).await?;
        if guarded {
            self.guard.context().commit(session).await?;
        } else {
            session.commit_transaction().await?;
        }
        Ok(begun.elapsed())
    }
}

fn count() -> Document {
    doc! { "$inc": { "n": 1_i64 } }
}

async fn writes(work: &Work, setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    let run = async |is_fenced| {
        if is_fenced {
            work.fenced().await
        } else {
            work.plain().await
        }
    };
    let [floor, fenced] = compare(100, setting.pick(4_000, 500), run).await?;
    report.micros("update: plain, p50", floor.p50());
    report.micros("update: fenced, p50", fenced.p50());
    let over = ratio(fenced.p50(), floor.p50());
    report.at_most(GOAL, "update: fenced / plain, p50", over, "x");
    Ok(())
}

/// Compares commits, without a goal: the additional statement is needed.
async fn commits(
    work: &Work,
    mut session: ClientSession,
    setting: &Setting,
    report: &mut Report,
) -> anyhow::Result<()> {
    let run = async |is_guarded| work.transaction(&mut session, is_guarded).await;
    let [floor, guarded] = compare(0, setting.pick(1_500, 200), run).await?;
    report.micros("transaction of one update: plain commit, p50", floor.p50());
    report.micros("transaction of one update: guarded commit, p50", guarded.p50());
    let over = ratio(guarded.p50(), floor.p50());
    report.figure("transaction of one update: guarded / plain, p50", over, "x");
    Ok(())
}
