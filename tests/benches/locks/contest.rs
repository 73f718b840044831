//! A competition between processes.

use std::time::Duration;

use mongolock_tests::Actor;
use rustix::process::Signal;

use crate::queue::{Client, Length, Queueing, Want};
use crate::run::Run;
use crate::setting::{Access, Setting};
use crate::worker::{Job, Section};
use crate::{child, clock};

/// Processes that are ready to compete.
pub(crate) struct Contest {
    processes: Vec<Actor>,
    /// The number of the first provider of each process: the providers of all processes are numbered.
    firsts: Vec<usize>,
}

/// The time before the one that counts, and this one.
#[derive(Clone, Copy)]
pub(crate) struct Times {
    pub(crate) warm_up: Duration,
    pub(crate) counted: Duration,
}

impl Times {
    pub(crate) fn of(setting: &Setting) -> Self {
        Self {
            warm_up: Duration::from_secs(1),
            counted: setting.pick(Duration::from_secs(10), Duration::from_secs(3)),
        }
    }

    /// The sections of the time that counts, in a competition that has begun at this time.
    pub(crate) fn part(self, all: &Run, begun: Duration) -> Run {
        let begins = begun + self.warm_up;
        let ends = begins + self.counted;
        all.part(|section| section.begun >= begins && section.ended <= ends)
    }

    /// The job of a process that competes for these times.
    pub(crate) fn queueing(self, client: Client, wants: Vec<Want>) -> Queueing {
        Queueing {
            client,
            providers: 1,
            wants,
            length: Length::For(self.warm_up + self.counted),
        }
    }
}

/// The outcome of a competition.
pub(crate) struct Outcome {
    /// All sections.
    pub(crate) all: Run,
    /// The sections of the time that counts.
    pub(crate) run: Run,
}

impl Contest {
    pub(crate) async fn start(jobs: impl IntoIterator<Item = (Access, Queueing)>) -> anyhow::Result<Self> {
        let (mut processes, mut firsts, mut providers) = (Vec::new(), Vec::new(), 0);
        for (access, queueing) in jobs {
            firsts.push(providers);
            providers += queueing.providers;
            processes.push(child::start(&access, Job::Queue(queueing)).await?);
        }
        Ok(Self { processes, firsts })
    }

    /// Lets all processes compete to the end.
    pub(crate) async fn run(mut self, times: Times) -> anyhow::Result<Outcome> {
        let begun = self.go().await;
        let all = self.end().await?;
        let run = times.part(&all, begun);
        Ok(Outcome { all, run })
    }

    /// Lets all processes begin; returns when.
    pub(crate) async fn go(&mut self) -> Duration {
        child::go(&mut self.processes).await;
        clock::now()
    }

    /// Lets the process of this number begin.
    pub(crate) async fn go_one(&mut self, process: usize) {
        child::go(&mut self.processes[process..=process]).await;
    }

    /// Kills the last processes, whose sections are lost.
    pub(crate) fn kill(&mut self, count: usize) {
        for process in self.processes.split_off(self.processes.len() - count) {
            process.signal(Signal::KILL);
        }
    }

    /// Waits for the end of all processes that run, and returns their sections.
    pub(crate) async fn end(self) -> anyhow::Result<Run> {
        let results = child::last_results::<Vec<Section>>(self.processes).await?;
        let numbered = results
            .into_iter()
            .zip(self.firsts)
            .flat_map(|(sections, first)| {
                sections.into_iter().map(move |section| Section {
                    process: first + section.process,
                    ..section
                })
            });
        Ok(Run::of(numbered.collect()))
    }
}
