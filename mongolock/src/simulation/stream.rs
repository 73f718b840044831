//! The change streams of the simulated server.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast;
use tokio::sync::mpsc::{self, UnboundedSender};
use tokio::time::{Instant, sleep, sleep_until};

use super::line::Line;
use super::plan::Knob::Stream;
use super::{chance, errors, millis};
use crate::LockError;
use crate::permit_id;
use crate::protocol::{Name, News};
use crate::store::LockStream;

/// Without an event of a release, calls ask after this time at the latest.
const UNTOLD: Duration = Duration::from_secs(2);

type Sender = UnboundedSender<Result<News, LockError>>;

pub(super) async fn open(line: &Arc<Line>, names: Option<Vec<Name>>) -> Result<LockStream, LockError> {
    line.runs().await;
    sleep(millis(1..=20)).await;
    if line.may_fail() && (chance(line.world.plan.knob(Stream)) || !line.world.without_primary().is_zero()) {
        line.has_trouble(UNTOLD);
        return Err(errors::broken_connection().into());
    }
    let (sender, receiver) = mpsc::unbounded_channel();
    tokio::spawn(feed(Arc::clone(line), line.world.memory.listen(), names, sender));
    Ok(LockStream::Simulated(receiver))
}

/// Delivers the events of one stream until it fails.
async fn feed(
    line: Arc<Line>,
    mut events: broadcast::Receiver<News>,
    names: Option<Vec<Name>>,
    sender: Sender,
) {
    let ends_at = Instant::now() + millis(1000..=20_000);
    let fails = line.world.plan.has(Stream);
    loop {
        tokio::select! { biased;
            () = sender.closed() => return,
            () = sleep_until(ends_at), if fails && line.may_fail() => break,
            event = events.recv() => match event {
                Ok(news) if admits(names.as_deref(), &news.name) => deliver(&line, news, &sender).await,
                _ => {}
            }
        }
    }
    line.has_trouble(UNTOLD);
    line.world
        .note(|| format!("  the stream of {} fails", line.number));
    // The stream may have been closed.
    let _ = sender.send(Err(errors::broken_connection().into()));
}

/// Whether the stream of these locks reports this one.
fn admits(names: Option<&[Name]>, name: &str) -> bool {
    names.is_none_or(|names| names.iter().any(|own| **own == *permit_id::awaited(name)))
}

/// Delivers an event: at once, or late, twice or never.
async fn deliver(line: &Arc<Line>, news: News, sender: &Sender) {
    if !(line.may_fail() && chance(line.world.plan.knob(Stream))) {
        line.runs().await;
        let _ = sender.send(Ok(news));
        return;
    }
    line.has_trouble(UNTOLD);
    for _ in 0..fastrand::u8(0..=2) {
        let (line, news, sender) = (Arc::clone(line), news.clone(), sender.clone());
        tokio::spawn(async move {
            let late = millis(1..=3000);
            line.has_trouble(late + UNTOLD);
            sleep(late).await;
            line.runs().await;
            let _ = sender.send(Ok(news));
        });
    }
}
