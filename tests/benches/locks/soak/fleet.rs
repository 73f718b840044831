//! The processes of the soak, and what they have printed.
//!
//! A *place* is a process of a kind, numbered from 0. When the process at a place is killed, another one takes the place.
//! Each process is a *life*, numbered in the order of their starts.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, ensure};
use mongolock_tests::{Event, History, Step};
use rustix::process::Signal;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::job::Soaking;
use crate::child::{Output, Process, Running};
use crate::clock;
use crate::queue::Client;
use crate::setting::Setting;
use crate::worker::Job;

/// The kind of the process at a place.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) title: &'static str,
    pub(crate) client: Client,
    pub(crate) tasks: usize,
    /// The address of its server, which may be a proxy.
    pub(crate) uri: String,
}

/// One process from its start to its end.
#[derive(Clone)]
pub(crate) struct Life {
    pub(crate) place: usize,
    pub(crate) begun: Duration,
    /// The time at which it was told to end, or just before it was killed.
    pub(crate) ended: Option<Duration>,
    pub(crate) is_killed: bool,
}

/// The processes that run.
pub(crate) struct Fleet<'a> {
    setting: &'a Setting,
    lock: String,
    expiry: Duration,
    places: Vec<Place>,
    running: Vec<Option<(usize, Running)>>,
    lives: Vec<Life>,
    /// What the processes have printed, and what has happened to them. Their numbers are those of the lives.
    history: Arc<Mutex<History>>,
    holder: watch::Sender<usize>,
    readers: JoinSet<()>,
}

impl<'a> Fleet<'a> {
    pub(crate) fn new(setting: &'a Setting, lock: &str, expiry: Duration, places: Vec<Place>) -> Self {
        Self {
            setting,
            lock: lock.to_owned(),
            expiry,
            running: places.iter().map(|_| None).collect(),
            places,
            lives: Vec::new(),
            history: Arc::default(),
            holder: watch::Sender::new(usize::MAX),
            readers: JoinSet::new(),
        }
    }

    pub(crate) async fn start(&mut self, place: usize) -> anyhow::Result<()> {
        let Place {
            client, tasks, uri, ..
        } = &self.places[place];
        let life = self.lives.len();
        let soaking = Soaking {
            name: self.lock.clone(),
            owner: owner(life),
            client: *client,
            tasks: *tasks,
            expiry: self.expiry,
        };
        let process = Process::start_at(self.setting, uri, Job::Soak(soaking)).await?;
        let (mut running, output) = process.split();
        let history = Arc::clone(&self.history);
        self.readers
            .spawn(read(life, place, output, history, self.holder.clone()));
        self.lives.push(Life {
            place,
            begun: clock::now(),
            ended: None,
            is_killed: false,
        });
        running.go().await?;
        self.running[place] = Some((life, running));
        Ok(())
    }

    /// Kills the process at a place.
    pub(crate) async fn kill(&mut self, place: usize) -> anyhow::Result<()> {
        let life = self.running[place].as_ref().map(|(life, _)| *life);
        let running = self.take(place, true)?;
        note(&self.history, life.context("nobody is there")?, Step::Killed);
        running.kill().await
    }

    /// Lets the process at a place end in its own way.
    pub(crate) async fn end(&mut self, place: usize) -> anyhow::Result<()> {
        let mut running = self.take(place, false)?;
        running.go().await?;
        running.end().await
    }

    pub(crate) fn signal(&self, place: usize, signal: Signal) -> anyhow::Result<()> {
        let (life, running) = self.running[place].as_ref().context("nobody is there")?;
        if signal == Signal::STOP {
            note(&self.history, *life, Step::Stopped);
        }
        running.signal(signal)?;
        if signal == Signal::CONT {
            note(&self.history, *life, Step::Continued);
        }
        Ok(())
    }

    /// Waits until the process at this place holds the lock; returns whether it does in time.
    pub(crate) async fn until_holds(&self, place: usize, limit: Duration) -> bool {
        let mut holder = self.holder.subscribe();
        holder.mark_unchanged();
        let holds = async {
            while holder.changed().await.is_ok() {
                if *holder.borrow_and_update() == place {
                    return;
                }
            }
        };
        tokio::time::timeout(limit, holds).await.is_ok()
    }

    /// The place of the process that has held the lock last.
    pub(crate) fn holder(&self) -> usize {
        *self.holder.borrow()
    }

    /// The places whose processes run.
    pub(crate) fn running(&self) -> Vec<usize> {
        let all = self.running.iter().enumerate();
        all.filter(|(_, running)| running.is_some())
            .map(|(place, _)| place)
            .collect()
    }

    /// The owners of the processes that have ended in their own way.
    pub(crate) fn ended_owners(&self) -> Vec<String> {
        let lives = self.lives.iter().enumerate();
        lives
            .filter(|(_, life)| !life.is_killed)
            .map(|(number, _)| owner(number))
            .collect()
    }

    /// All processes and all that they have printed, when the last one has ended.
    pub(crate) async fn finish(mut self) -> anyhow::Result<(Vec<Place>, Vec<Life>, History)> {
        ensure!(self.running().is_empty(), "a process of the soak still runs");
        while let Some(read) = self.readers.join_next().await {
            read?;
        }
        let history = std::mem::take(&mut *lock(&self.history));
        Ok((self.places, self.lives, history))
    }

    fn take(&mut self, place: usize, is_killed: bool) -> anyhow::Result<Running> {
        let (life, running) = self.running[place].take().context("nobody is there")?;
        self.lives[life].ended = Some(clock::now());
        self.lives[life].is_killed = is_killed;
        Ok(running)
    }
}

/// The owner in the waiters' documents of a process.
fn owner(life: usize) -> String {
    format!("soak-{life}")
}

async fn read(
    life: usize,
    place: usize,
    mut output: Output,
    history: Arc<Mutex<History>>,
    holder: watch::Sender<usize>,
) {
    while let Some(event) = output.next::<Event>().await {
        if matches!(event.step, Step::Acquired { .. }) {
            holder.send_replace(place);
        }
        lock(&history).add(event.of(life));
    }
}

fn note(history: &Mutex<History>, life: usize, step: Step) {
    lock(history).note(life, step);
}

fn lock(history: &Mutex<History>) -> MutexGuard<'_, History> {
    history.lock().unwrap_or_else(PoisonError::into_inner)
}
