//! Processes that differ from each other: far from the server, without a change stream, or of another library.

use mongolock_tests::{Server, ServerOptions};
use tokio::time::sleep;

use super::{compete, far_proxy, tasks};
use crate::clock;
use crate::contest::{Contest, Times};
use crate::queue::{Client, Length, Queueing};
use crate::report::Report;
use crate::samples::{Turns, per_second};
use crate::setting::Setting;

/// One process is behind a proxy. It comes half of the warm-up after the others, which cannot know of it.
pub(crate) async fn far(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    let Some(address) = setting.address() else {
        // The proxy needs the address of one server.
        return Ok(());
    };
    let times = Times::of(setting);
    let (mut shares, mut waits, mut firsts) = (Turns::default(), Turns::default(), Turns::default());
    for turn in 0..setting.turns(3, 1) {
        let proxy = far_proxy(address).await?;
        let queueing = times.queueing(Client::Woken, tasks(&format!("far:{turn}"), 4));
        let mut jobs = vec![(setting.access().clone(), queueing.clone()); 3];
        let length = Length::For(times.warm_up / 2 + times.counted);
        jobs.push((setting.access().at(proxy.uri()), Queueing { length, ..queueing }));
        let mut contest = Contest::start(jobs).await?;
        let begun = clock::now();
        for process in 0..3 {
            contest.go_one(process).await;
        }
        sleep(times.warm_up / 2).await;
        contest.go_one(3).await;
        let all = contest.end().await?;
        shares.add(times.part(&all, begun).share_of(3));
        if let Some(first) = all.of_process(3).sections.first() {
            firsts.add(first.wait().as_secs_f64());
            let later = all.part(|section| section.asked >= first.begun);
            waits.add(later.unfairness());
        }
    }
    let who = "4 x 4, one is 3 ms farther";
    report.at_least(
        0.2,
        format!("{who}: its least share of the runs"),
        shares.min(),
        "x",
    );
    let name = format!("{who}: longest wait / mean wait, after its first turn");
    report.at_most(1.6, name, &waits, "x");
    report.at_most(0.8, format!("{who}: its first turn after"), &firsts, "s");
    Ok(())
}

/// One process has no change stream, or all are on a server that has none.
pub(crate) async fn without_stream(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    let (mut shares, mut waits) = (Turns::default(), Turns::default());
    for turn in 0..setting.turns(3, 1) {
        let mut processes = vec![(setting.access().clone(), Client::Woken, 2); 3];
        processes.push((setting.access().clone(), Client::Polling, 2));
        let outcome = compete(&format!("polling:{turn}"), processes, setting).await?;
        shares.add(outcome.run.share_of(3));
        waits.add(outcome.run.of_process(3).waits.max().as_secs_f64());
    }
    let who = "4 x 2, one without a stream";
    report.at_least(0.1, format!("{who}: its share"), &shares, "x");
    report.at_most(3.0, format!("{who}: its longest wait"), &waits, "s");
    let standalone = Server::start(ServerOptions::standalone()).await?;
    let (mut waits, mut over) = (Turns::default(), Turns::default());
    for turn in 0..setting.turns(3, 1) {
        let access = setting.access().at(standalone.uri());
        let processes = vec![(access, Client::Woken, 2); 4];
        let outcome = compete(&format!("standalone:{turn}"), processes, setting).await?;
        waits.add(outcome.run.waits.max().as_secs_f64());
        over.add(outcome.run.over_ideal());
    }
    let who = "4 x 2 on a standalone server";
    report.at_most(2.5, format!("{who}: longest wait"), &waits, "s");
    report.figure(format!("{who}: time / sum of the sections"), &over, "x");
    Ok(())
}

/// Clients of .NET among others.
pub(crate) async fn foreign(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    let mut rates = Turns::default();
    for turn in 0..setting.turns(3, 1) {
        let mut processes = vec![(setting.access().clone(), Client::Woken, 4); 4];
        processes.push((setting.access().clone(), Client::Dotnet, 4));
        let outcome = compete(&format!("foreign:{turn}"), processes, setting).await?;
        let own = outcome.run.of_process(4).sections;
        rates.add(per_second(own.len(), Times::of(setting).counted));
    }
    let name = "4 of .NET beside 4 x 4: sections of .NET";
    report.at_least(2.5, name, &rates, "/s");
    Ok(())
}
