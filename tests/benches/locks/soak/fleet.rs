//! The processes of the soak, and what they have printed.
//!
//! A *place* is a process of a kind, numbered from 0. When the process at a place is killed, another one takes the place.
//! Each process is a *life*, numbered in the order of their starts.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, ensure};
use rustix::process::Signal;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::job::{Record, Soaking};
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

/// What a process has printed.
pub(crate) struct Entry {
    pub(crate) life: usize,
    pub(crate) record: Record,
}

/// The processes that run.
pub(crate) struct Fleet<'a> {
    setting: &'a Setting,
    lock: String,
    expiry: Duration,
    places: Vec<Place>,
    running: Vec<Option<(usize, Running)>>,
    lives: Vec<Life>,
    entries: Arc<Mutex<Vec<Entry>>>,
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
            entries: Arc::default(),
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
        let entries = Arc::clone(&self.entries);
        self.readers
            .spawn(read(life, place, output, entries, self.holder.clone()));
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
        let running = self.take(place, true)?;
        running.kill().await
    }

    /// Lets the process at a place end in its own way.
    pub(crate) async fn end(&mut self, place: usize) -> anyhow::Result<()> {
        let mut running = self.take(place, false)?;
        running.go().await?;
        running.end().await
    }

    pub(crate) fn signal(&self, place: usize, signal: Signal) -> anyhow::Result<()> {
        let (_, running) = self.running[place].as_ref().context("nobody is there")?;
        running.signal(signal)
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
    pub(crate) async fn finish(mut self) -> anyhow::Result<(Vec<Place>, Vec<Life>, Vec<Entry>)> {
        ensure!(self.running().is_empty(), "a process of the soak still runs");
        while let Some(read) = self.readers.join_next().await {
            read?;
        }
        let entries = std::mem::take(&mut *self.entries.lock().unwrap_or_else(PoisonError::into_inner));
        Ok((self.places, self.lives, entries))
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
    entries: Arc<Mutex<Vec<Entry>>>,
    holder: watch::Sender<usize>,
) {
    while let Some(record) = output.next::<Record>().await {
        if matches!(record, Record::Begun { .. }) {
            holder.send_replace(place);
        }
        let mut entries = entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.push(Entry { life, record });
    }
}
