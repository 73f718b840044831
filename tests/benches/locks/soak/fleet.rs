//! The processes of the soak, and what they have printed.
//!
//! A *place* is a process of a kind, numbered from 0. When the process at a place is killed, another one takes the place.
//! Each process is a *life*, numbered in the order of their starts.

use std::time::Duration;

use anyhow::{Context, ensure};
use mongolock_tests::{Actor, History};
use rustix::process::Signal;

use super::job::Soaking;
use crate::queue::Client;
use crate::setting::Setting;
use crate::worker::Job;
use crate::{child, clock};

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
    running: Vec<Option<(usize, Actor)>>,
    lives: Vec<Life>,
    /// What the processes have done that have ended, and what has happened to them. Their numbers are those of the lives.
    history: History,
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
            history: History::default(),
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
        let access = self.setting.access().at(uri);
        let mut process = child::start(&access, Job::Soak(soaking)).await?;
        self.lives.push(Life {
            place,
            begun: clock::now(),
            ended: None,
            is_killed: false,
        });
        process.send("go").await;
        self.running[place] = Some((life, process));
        Ok(())
    }

    /// Kills the process at a place.
    pub(crate) async fn kill(&mut self, place: usize) -> anyhow::Result<()> {
        self.signal(place, Signal::KILL)?;
        self.leave(place, true).await
    }

    /// Lets the process at a place end in its own way.
    pub(crate) async fn end(&mut self, place: usize) -> anyhow::Result<()> {
        self.at(place)?.send("go").await;
        self.leave(place, false).await
    }

    pub(crate) fn signal(&mut self, place: usize, signal: Signal) -> anyhow::Result<()> {
        self.at(place)?.signal(signal);
        Ok(())
    }

    /// Waits until the process at this place holds the lock; returns whether it does in time.
    pub(crate) async fn until_holds(&mut self, place: usize, limit: Duration) -> anyhow::Result<bool> {
        let mut acquired = self.at(place)?.acquired();
        acquired.mark_unchanged();
        Ok(tokio::time::timeout(limit, acquired.changed()).await.is_ok())
    }

    /// The place of the process that has held the lock last.
    pub(crate) fn holder(&self) -> Option<usize> {
        let acquired = |place: &usize| {
            let running = self.running[*place].as_ref();
            running.map(|(_, process)| *process.acquired().borrow())
        };
        self.running().into_iter().max_by_key(acquired)
    }

    /// The places whose processes run.
    pub(crate) fn running(&self) -> Vec<usize> {
        let all = self.running.iter().enumerate();
        all.filter(|(_, running)| running.is_some())
            .map(|(place, _)| place)
            .collect()
    }

    /// All processes and all that they have done, when the last one has ended.
    pub(crate) fn finish(self) -> anyhow::Result<(Vec<Place>, Vec<Life>, History)> {
        ensure!(self.running().is_empty(), "a process of the soak still runs");
        Ok((self.places, self.lives, self.history))
    }

    fn at(&mut self, place: usize) -> anyhow::Result<&mut Actor> {
        let running = self.running[place].as_mut().context("nobody is there")?;
        Ok(&mut running.1)
    }

    /// Waits for the end of the process at a place, which was killed or told to end just now.
    async fn leave(&mut self, place: usize, is_killed: bool) -> anyhow::Result<()> {
        let (life, mut process) = self.running[place].take().context("nobody is there")?;
        self.lives[life].ended = Some(clock::now());
        self.lives[life].is_killed = is_killed;
        process.end().await;
        process.tell_as(life, &mut self.history);
        Ok(())
    }
}

/// The owner of the locks of a process.
fn owner(life: usize) -> String {
    format!("soak-{life}")
}
