//! A competition between processes, and what every competition reports.

use std::time::Duration;

use mongolock_tests::{Actor, monotonic_now};
use rustix::process::Signal;
use tokio::time::sleep;

use crate::child::{self, Job};
use crate::queue::{Client, Queueing, Want};
use crate::report::Goal::{AtMost, Beside};
use crate::report::Report;
use crate::run::{Run, Section};
use crate::samples::{Samples, per_second};
use crate::setting::{Access, Setting};

/// The first part of a competition, which does not count.
pub(crate) const WARM_UP: Duration = Duration::from_secs(1);

/// The part that counts.
pub(crate) fn counted(setting: &Setting) -> Duration {
    setting.seconds(10, 3)
}

/// The processes of a competition with the goals of its figures.
pub(crate) struct Shape {
    pub(crate) name: String,
    /// How each process reaches the server, what it runs, and what its tasks want.
    pub(crate) processes: Vec<(Access, Client, Vec<Want>)>,
    /// Whether the last process comes half of the warm-up after the others, which cannot know of it.
    pub(crate) is_last_late: bool,
    /// The least sections a second, divided by those of another build.
    pub(crate) rate: Option<f64>,
    /// The longest wait, divided by the mean wait of those who want the same.
    pub(crate) unfairness: Option<f64>,
}

/// The outcome of a competition.
pub(crate) struct Outcome {
    /// All sections.
    pub(crate) all: Run,
    /// The sections of the time that counts.
    pub(crate) run: Run,
}

impl Shape {
    /// Processes that are alike, without goals.
    pub(crate) fn alike(name: &str, processes: usize, wants: Vec<Want>, setting: &Setting) -> Self {
        Self {
            name: name.to_owned(),
            processes: vec![(setting.access().clone(), Client::Woken, wants); processes],
            is_last_late: false,
            rate: None,
            unfairness: None,
        }
    }

    /// Lets the processes compete in turns, and returns all outcomes. The first figures are those of every competition: no
    /// name may be held more often than it can be.
    pub(crate) async fn measure(
        &self,
        what: &str,
        setting: &Setting,
        report: &mut Report,
    ) -> anyhow::Result<Vec<Outcome>> {
        let mut outcomes = Vec::new();
        for _ in 0..setting.turns(3, 1) {
            let mut contest = Contest::default();
            let last = self.processes.len() - 1;
            for (number, (access, client, wants)) in self.processes.iter().enumerate() {
                let (client, wants) = (*client, wants.clone());
                let late = self.late(number == last);
                let time = Some(WARM_UP.saturating_sub(late) + counted(setting));
                contest.start(access, Queueing { client, wants, time }).await?;
            }
            let begun = monotonic_now();
            for process in 0..=last {
                sleep(self.late(process == last)).await;
                contest.go(process).await;
            }
            let all = contest.end().await?;
            let (begins, ends) = (begun + WARM_UP, begun + WARM_UP + counted(setting));
            let run = all.part(|section| section.begun >= begins && section.ended <= ends);
            outcomes.push(Outcome { all, run });
        }
        report.about(&*self.name);
        let beyond: usize = outcomes.iter().map(|outcome| self.beyond(&outcome.all)).sum();
        let name = format!("{what} beyond the limit of a name");
        report.figure(&name, beyond, what, AtMost(0.0));
        let rates = turns(&outcomes, |run| per_second(run.sections.len(), counted(setting)));
        report.figure(what, rates, "/s", self.rate.map(Beside));
        let waits = turns(&outcomes, |run| self.unfairness_of(run));
        let what = "longest wait / mean wait";
        report.figure(what, waits, "x", self.unfairness.map(AtMost));
        Ok(outcomes)
    }

    /// How much later than the others a process begins.
    fn late(&self, is_last: bool) -> Duration {
        if is_last && self.is_last_late {
            WARM_UP / 2
        } else {
            Duration::ZERO
        }
    }

    /// The wants of all tasks, each once.
    fn wants(&self) -> Vec<&Want> {
        let mut wants = Vec::new();
        for want in self.processes.iter().flat_map(|(.., wants)| wants) {
            if !wants.contains(&want) {
                wants.push(want);
            }
        }
        wants
    }

    /// The sections of the tasks whose wants fit.
    pub(crate) fn part(&self, run: &Run, fits: impl Fn(&Want) -> bool) -> Run {
        run.part(|section| fits(&self.processes[section.process].2[section.task]))
    }

    fn unfairness_of(&self, run: &Run) -> f64 {
        let of_kind = |kind: &Want| self.part(run, |want| want == kind).unfairness();
        self.wants().into_iter().map(of_kind).fold(0.0, f64::max)
    }

    /// How often a name was held more often than it can be.
    fn beyond(&self, all: &Run) -> usize {
        let mut names: Vec<(&String, usize)> = Vec::new();
        for want in self.wants() {
            names.extend(want.names().iter().map(|name| (name, want.permits())));
        }
        names.sort_unstable();
        names.dedup();
        let of_name = |(name, permits)| {
            let own = self.part(all, |want| want.names().contains(name));
            own.beyond(permits)
        };
        names.into_iter().map(of_name).sum()
    }
}

/// A figure of the time that counts, of each turn.
pub(crate) fn turns(outcomes: &[Outcome], of: impl Fn(&Run) -> f64) -> Samples {
    outcomes.iter().map(|outcome| of(&outcome.run)).collect()
}

/// Processes that are ready to compete.
#[derive(Default)]
pub(crate) struct Contest(Vec<Actor>);

impl Contest {
    pub(crate) async fn start(&mut self, access: &Access, queueing: Queueing) -> anyhow::Result<()> {
        self.0.push(child::start(access, Job::Queue(queueing)).await?);
        Ok(())
    }

    /// Lets the process of this number begin.
    pub(crate) async fn go(&mut self, process: usize) {
        self.0[process].send("go").await;
    }

    /// Kills the last processes, whose sections are lost.
    pub(crate) fn kill(&mut self, count: usize) {
        for process in self.0.split_off(self.0.len() - count) {
            process.signal(Signal::KILL);
        }
    }

    /// Waits for the end of all processes that run, and returns their sections.
    pub(crate) async fn end(self) -> anyhow::Result<Run> {
        let mut all = Vec::new();
        for (number, process) in self.0.into_iter().enumerate() {
            let mut sections: Vec<Section> = child::last_result(process).await?;
            for section in &mut sections {
                section.process = number;
            }
            all.extend(sections);
        }
        Ok(Run::of(all))
    }
}
