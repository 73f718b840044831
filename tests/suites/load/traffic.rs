//! The commands that a client sends, counted by what they are for.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mongodb::bson::{Bson, Document};
use mongodb::event::EventHandler;
use mongodb::event::command::CommandEvent;
use mongodb::options::ClientOptions;
use mongolock_tests::Purpose;
use tokio::time::Instant;

/// How the names of the leases begin.
pub(super) const LEASE: &str = "lease:";

/// What a command is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Acquire requests.
    Claim,
    /// The renewal of one lease alone, of those that last.
    LoneRenewal,
    Other,
}

/// The commands that a client has sent, in their order.
#[derive(Clone, Default)]
pub(super) struct Traffic(Arc<Mutex<Vec<(Instant, Kind)>>>);

impl Traffic {
    pub(super) fn record(&self, options: &mut ClientOptions) {
        let traffic = self.clone();
        options.command_event_handler = Some(EventHandler::callback(move |event| {
            if let CommandEvent::Started(started) = event {
                traffic.lock().push((Instant::now(), kind(&started.command)));
            }
        }));
    }

    /// The number of commands since this time.
    pub(super) fn since(&self, from: Instant, counts: impl Fn(Kind) -> bool) -> usize {
        let sent = self.lock();
        sent.iter()
            .filter(|(at, kind)| *at >= from && counts(*kind))
            .count()
    }

    /// The largest number of commands within one second since this time.
    pub(super) fn peak(&self, from: Instant) -> usize {
        let sent = self.lock();
        let times: Vec<Instant> = sent.iter().map(|(at, _)| *at).filter(|at| *at >= from).collect();
        let second = Duration::from_secs(1);
        let within = |first: usize| {
            times[first..]
                .iter()
                .take_while(|at| **at - times[first] < second)
                .count()
        };
        (0..times.len()).map(within).max().unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(Instant, Kind)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn kind(command: &Document) -> Kind {
    match (Purpose::of(command), &renewed(command)[..]) {
        (Some(Purpose::Acquire), _) => Kind::Claim,
        (_, [name]) if name.as_str().is_some_and(|name| name.starts_with(LEASE)) => Kind::LoneRenewal,
        _ => Kind::Other,
    }
}

/// The names of the leases that a command renews, which are none for another command.
pub(super) fn renewed(command: &Document) -> Vec<&Bson> {
    if Purpose::of(command) != Some(Purpose::Renew) {
        return Vec::new();
    }
    let statements = command.get_array("updates").into_iter().flatten();
    let of_statements = statements.filter_map(|statement| statement.as_document()?.get_document("q").ok());
    let queries = command.get_document("query").into_iter().chain(of_statements);
    queries.flat_map(names).collect()
}

/// The names in a query.
fn names(query: &Document) -> Vec<&Bson> {
    let of_many = query.get_document("_id").and_then(|id| id.get_array("$in"));
    of_many.map_or_else(
        |_| query.get("_id").into_iter().collect(),
        |ids| ids.iter().collect(),
    )
}
