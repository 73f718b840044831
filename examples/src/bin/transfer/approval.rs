//! The approval that a transfer waits for between reading and writing. Here it is only time that passes.

use std::time::Duration;

use anyhow::Context;
use mongolock::FencingToken;
use mongolock_examples::output::println;
use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};
use tokio::sync::Mutex;

use crate::line::line;
use crate::order::Order;

#[derive(Debug)]
pub(crate) enum Approval {
    Takes(Duration),
    /// The first comes when the process has been stopped and goes on; from then on none is needed.
    ComesLate(Mutex<Option<unix::Signal>>),
}

impl Approval {
    pub(crate) fn late() -> anyhow::Result<Self> {
        let continued = SignalKind::from_raw(Signal::CONT.as_raw());
        let continued = unix::signal(continued).context("cannot wait for SIGCONT")?;
        Ok(Self::ComesLate(Mutex::new(Some(continued))))
    }

    pub(crate) async fn wait(&self, order: &Order, token: FencingToken) {
        match self {
            Self::Takes(time) => tokio::time::sleep(*time).await,
            Self::ComesLate(continued) => {
                let Some(mut continued) = continued.lock().await.take() else {
                    return;
                };
                // Whoever reads it stops this process now; if nobody does, the process is about to end.
                let _ = println(&line(order, Some(token), "waits for its approval"));
                continued.recv().await;
            }
        }
    }
}
