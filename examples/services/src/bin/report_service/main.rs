//! A load-balanced web service: two instances change the same reports, and `#[distributed_lock]` lets one request at a time
//! change a report, whichever instance gets it.
//!
//! **Scene.** `cargo run --bin report_service` starts two instances. One request holds the lock of report 1 for long.
//! Meanwhile others want the same report, and wait for it or not, and further ones want other reports. At last a client
//! closes its connections while one of its requests holds a lock.
//!
//! **What it proves.** Only requests that do not get the lock are refused: with 503 and `Retry-After` after a wait, with 409
//! if they do not wait. Each answer says how long the request waited for the lock, and how long it held it. A closed
//! connection leaves neither a lock nor a waiter behind.
//!
//! **How it is checked.** Every confirmed change is in its report under its token, nothing else is, and the tokens rise. The
//! times of the answers are compared with those that the client has measured.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header::RETRY_AFTER};
use axum::{Json, Router, routing::post};
use clap::Parser;
use mongodb::{Collection, bson::doc};
use mongolock::{FencingToken, LockContext, LockError, LockProvider, distributed_lock};
use mongolock_example_services::browser::{self, Answer, Instance, instances};
use mongolock_examples::demo::{self, AFTER_HELP, Stage};
use mongolock_examples::worker::{Worker, exit_with_parent, send, set_global};
use mongolock_examples::{all, print, summary::Summary, turns::Hold};
use serde::{Deserialize, Serialize};
use tokio::{net::TcpListener, task::JoinSet, time::sleep};

const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(2);
/// The time of the slow request, in milliseconds: one that waits meanwhile is refused, and succeeds when it is sent again.
const SLOW: u64 = 4_500;
const WORK: u64 = 20;
/// Requests for other reports, which end before the slow one: four for each, so that none waits for long on a busy machine.
const OTHERS: usize = 8;

/// Across all instances, one change of a report at a time. When a client closes its connection, this call is dropped.
#[distributed_lock(name = "report:<id>", expiry = "10s")]
async fn change(reports: &Reports, id: u32, work: (Instant, Duration)) -> anyhow::Result<Hold> {
    read_work_write(reports, id, work).await
}

/// The same for a request that is refused instead of waiting.
#[distributed_lock(name = "report:<id>", expiry = "10s", on_busy = "fail")]
async fn try_change(reports: &Reports, id: u32, work: (Instant, Duration)) -> anyhow::Result<Hold> {
    read_work_write(reports, id, work).await
}

/// Loses updates if two of these run at the same time for one report.
async fn read_work_write(reports: &Reports, id: u32, work: (Instant, Duration)) -> anyhow::Result<Hold> {
    let (waited, begun) = (work.0.elapsed(), Instant::now());
    let token = LockContext::current().expect("the lock is held").fencing_token();
    let found = reports.find_one(doc! { "_id": id }).await;
    let mut tokens = found?.unwrap_or_default().tokens;
    sleep(work.1).await;
    tokens.push(token);
    let (same, report) = (doc! { "_id": id }, Report { id, tokens });
    let written = reports.replace_one(same, report).upsert(true).await;
    written.context("cannot write the report")?;
    let (token, held) = (Some(token), begun.elapsed());
    Ok(Hold { token, waited, held })
}

/// What the client may do: send the request again, or decide whether it still makes sense, or look first whether the report
/// is changed. The page "web service" of the guide has all errors.
fn status(error: &anyhow::Error) -> StatusCode {
    match error.downcast_ref() {
        Some(LockError::Timeout { .. } | LockError::Mongo(_)) => StatusCode::SERVICE_UNAVAILABLE,
        Some(LockError::Busy { .. }) => StatusCode::CONFLICT,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// Answers `/{report}/{wait or try}/{milliseconds of work}`.
async fn answer(
    State(reports): State<Reports>,
    Path((id, how, work)): Path<(u32, String, u64)>,
) -> (StatusCode, HeaderMap, Json<Hold>) {
    let (called, work) = (Instant::now(), Duration::from_millis(work));
    let changed = match how.as_str() {
        "wait" => change(&reports, id, (called, work)).await,
        _ => try_change(&reports, id, (called, work)).await,
    };
    let status = changed.as_ref().map_or_else(status, |_| StatusCode::OK);
    // The usual time for a change. The rest of the present lease says nothing, because it is renewed.
    let again = (status == StatusCode::SERVICE_UNAVAILABLE).then(|| (RETRY_AFTER, 1.into()));
    let (token, waited, held) = (None, called.elapsed(), Duration::ZERO);
    let answer = changed.unwrap_or(Hold { token, waited, held });
    (status, again.into_iter().collect(), Json(answer))
}

async fn serve(worker: &Worker) -> anyhow::Result<()> {
    exit_with_parent();
    let database = worker.database().await?;
    let locks = LockProvider::builder(&database).acquire_timeout(ACQUIRE_TIMEOUT);
    set_global(worker.number, locks)?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    send(&(worker.number, listener.local_addr()?))?;
    let routes = Router::new().route("/{id}/{how}/{work}", post(answer));
    Ok(axum::serve(listener, routes.with_state(database.collection("reports"))).await?)
}

/// Starts two instances, sends requests to both, and checks the answers and the reports.
async fn demonstrate(stage: &Stage) -> anyhow::Result<Summary> {
    let mut processes = stage.start_workers(1..=2, &[])?;
    let [first, second] = instances(&mut processes).await?;
    print(HEADING)?;
    let (mut replies, mut clients) = (Vec::new(), JoinSet::new());
    clients.spawn(client([first, second], (1, "wait", SLOW)));
    until_held(1, second, &mut replies).await?;
    for to in [[first, second], [second, first]] {
        clients.spawn(client(to, (1, "wait", WORK)));
        for id in [2, 3].repeat(OTHERS / 4) {
            clients.spawn(client(to, (id, "wait", WORK)));
        }
    }
    while let Some(received) = clients.join_next().await {
        replies.extend(received??);
    }

    print("A client closes its connections: one of its requests holds report 4, and one waits for it.")?;
    for _ in 0..2 {
        clients.spawn(client([first, second], (4, "wait", 60_000)));
    }
    until_held(4, second, &mut replies).await?;
    clients.shutdown().await;
    replies.extend(client([second, first], (4, "wait", WORK)).await?);
    let reports = all(&stage.database().collection("reports"), doc! { "_id": 1 }).await?;
    Ok(check(&replies, &reports))
}

/// Sends a request, and once more to the other instance if it is refused for now, as a load balancer does.
async fn client(to: [Instance; 2], change: Change) -> anyhow::Result<Vec<Reply>> {
    let mut replies = vec![request(to[0], change).await?];
    if let Some(pause) = replies[0].answer.retry_after {
        sleep(Duration::from_secs(pause)).await;
        replies.push(request(to[1], change).await?);
    }
    Ok(replies)
}

/// Sends requests that do not wait, until another one holds the lock of this report.
async fn until_held(id: u32, to: Instance, replies: &mut Vec<Reply>) -> anyhow::Result<()> {
    let is_held = |last: &Reply| last.answer.status == 409 && last.change.0 == id;
    while !replies.last().is_some_and(is_held) {
        ensure!(replies.len() < 1_000, "report {id} is not held");
        replies.push(request(to, (id, "try", WORK)).await?);
    }
    Ok(())
}

async fn request(instance: Instance, change: Change) -> anyhow::Result<Reply> {
    let (id, how, work) = change;
    let request = browser::request(instance, &format!("{id}/{how}/{work}"))?;
    let answer = browser::answer(request).await?;
    let hold: Hold = serde_json::from_str(&answer.text)?;
    print(format!("{:>8}  {id:>6}  {hold}  {}", instance.0, answer.status))?;
    let change = (id, work);
    Ok(Reply { change, answer, hold })
}

/// Compares the answers, in the order in which they came, with the reports and with the times of the clients.
fn check(replies: &[Reply], reports: &[Report]) -> Summary {
    let of = |status| replies.iter().filter(move |reply| reply.answer.status == status);
    let (again, busy) = (of(503).count(), of(409).count());
    let confirmed = of(200).map(|reply| (reply.change.0, reply.hold.token));
    let confirmed: BTreeSet<_> = confirmed.collect();
    let all = reports.iter().map(|report| (report.id, &report.tokens));
    let stored = all.flat_map(|(id, tokens)| tokens.iter().map(move |token| (id, Some(*token))));
    let is_stored = stored.eq(confirmed.iter().copied());
    let slow = replies.iter().position(|reply| reply.change.1 == SLOW);
    let before = replies[..slow.unwrap_or_default()].iter();
    let others = before.filter(|reply| [2, 3].contains(&reply.change.0));
    let told = |reply: &Reply| reply.hold.waited + reply.hold.held;
    let is_wrong = |reply: &Reply| {
        let work = Duration::from_millis(reply.change.1);
        told(reply) > reply.answer.took || reply.hold.held < work
    };
    // On a slow machine the release and the way of one answer may take long, but not half of the time of all.
    let short = || of(200).filter(|reply| reply.change.1 == WORK);
    let took: Duration = short().map(|reply| reply.answer.took).sum();
    let is_little = short().map(told).sum::<Duration>() < took / 2;
    let has_waited =
        |reply: &Reply| reply.answer.retry_after.is_some() && reply.hold.waited >= ACQUIRE_TIMEOUT;
    let has_ended = replies.last().is_some_and(|last| last.answer.status == 200);
    let mut summary = Summary::default();
    summary.row("changes", confirmed.len());
    summary.row("refused", format!("{again} with 503, {busy} with 409"));
    let problems = [
        ("lost or other changes, or falling tokens", !is_stored),
        ("none waited in vain", again == 0),
        ("503 too early or without Retry-After", !of(503).all(has_waited)),
        ("others were delayed", others.count() < OTHERS),
        ("wrong times", of(200).any(is_wrong) || is_little),
        ("a closed connection has left its lock", !has_ended),
        ("failed requests", confirmed.len() + again + busy < replies.len()),
    ];
    let passed = "each was done, or refused for the lock alone";
    summary.problems("requests", passed, &problems);
    summary
}

const HEADING: &str = "\
To be proved: of the requests to two instances, one at a time changes a report, and only those that do not get the lock
are refused.

Scene: one request holds report 1 for 4.5 s. Others ask for the reports 1, 2 and 3: 503 after 2 s, 409 if they do not wait.

instance  report     fencing token      waited        held  status";

type Reports = Collection<Report>;

/// One report, a document that is read and written as a whole: its changes, in the order of the writes.
#[derive(Clone, Default, Serialize, Deserialize)]
struct Report {
    #[serde(rename = "_id")]
    id: u32,
    tokens: Vec<FencingToken>,
}

/// A request: the report, whether to wait for it, and the milliseconds of work.
type Change = (u32, &'static str, u64);

/// The answer to a change of a report that takes so many milliseconds.
struct Reply {
    change: (u32, u64),
    answer: Answer,
    hold: Hold,
}

/// Two instances of a web service change the same reports under distributed locks. The program sends requests to both and
/// checks that no update is lost.
#[derive(Debug, Parser)]
#[command(name = "report_service", after_help = AFTER_HELP)]
struct Options {
    #[command(flatten)]
    worker: Option<Worker>,
}

fn main() -> ExitCode {
    match Options::parse().worker {
        Some(worker) => demo::run(serve(&worker)),
        None => demo::demonstrate("report_service", demonstrate),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_problem_is_found() {
        type Change = fn(&mut Vec<Reply>, &mut Vec<Report>);
        let changes = "lost or other changes, or falling tokens";
        let early = "503 too early or without Retry-After";
        let cases: [(Change, &str); 11] = [
            (|_, _| {}, ""),
            (|_, reports| reports[0].tokens.truncate(1), changes),
            (|_, reports| reports[0].tokens.push(9.into()), changes),
            (|_, reports| reports[0].tokens.reverse(), changes),
            (|replies, _| drop(replies.remove(8)), "none waited in vain"),
            (|replies, _| replies[8].hold.waited /= 2, early),
            (|replies, _| replies[8].answer.retry_after = None, early),
            (|replies, _| replies.swap(7, 9), "others were delayed"),
            (
                |replies, _| replies[10].hold.waited = Duration::ZERO,
                "wrong times",
            ),
            (|replies, _| replies[10].hold.waited *= 2, "wrong times"),
            (
                |replies, _| replies[8].answer.status = 500,
                "none waited in vain, failed requests",
            ),
        ];
        for (change, problem) in cases {
            // The others, then a request that is refused, the slow one, and one that has waited.
            let slow = [
                (1, WORK, None, 2_000),
                (1, SLOW, Some(1), 0),
                (1, WORK, Some(2), 1_500),
            ];
            let others = (0..8).map(|token| (2, WORK, Some(token), 0));
            let reply = |(id, work, token, waited): (u32, u64, Option<i64>, u64)| {
                let [waited, held] = [waited, work].map(Duration::from_millis);
                let mut answer = Answer::default();
                (answer.status, answer.retry_after) = token.map_or((503, Some(1)), |_| (200, None));
                answer.took = waited + held;
                let (token, change) = (token.map(Into::into), (id, work));
                Reply {
                    change,
                    answer,
                    hold: Hold { token, waited, held },
                }
            };
            let mut replies: Vec<Reply> = others.chain(slow).map(reply).collect();
            let report = |(id, tokens): (u32, std::ops::Range<i64>)| Report {
                id,
                tokens: tokens.map(Into::into).collect(),
            };
            let mut reports = [(1, 1..3), (2, 0..8)].map(report).to_vec();
            change(&mut replies, &mut reports);
            let expected = if problem.is_empty() {
                String::new()
            } else {
                format!("requests ({problem})")
            };
            assert_eq!(check(&replies, &reports).failures().concat(), expected);
        }
    }
}
