//! The rules of the order in their plainest form, which any sequence of events is compared with.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::DateTime;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use tokio::time::Instant;

use super::line::Line;
use super::order::Order;
use super::{OwnAcquisition, User};
use crate::store::Waiter;
use crate::timing::{LINE_MARGIN, LINE_REMEMBER, LINE_SLOTS_MAX, YIELD_MAX, YIELD_MAX_POLLING};

const OWN: &str = "own";

/// A document in a line: its provider, its place and its time slot.
type PlaceValues = (u8, i64, u64);

/// What happens to a line; providers are numbers.
#[derive(Debug, Clone)]
enum Event {
    /// It is read, with the own document at this place, if there is one.
    Read(Vec<PlaceValues>, Option<usize>),
    AcquiredBy(Option<u8>),
    Acquired,
}

/// Any sequence of events, with the milliseconds before each.
fn events(place: impl Strategy<Value = PlaceValues>) -> impl Strategy<Value = Vec<(u64, Event)>> {
    let event = prop_oneof![
        2 => (vec(place, 0..8), option::of(0..9_usize)).prop_map(|(line, own)| Event::Read(line, own)),
        6 => option::of(0..8_u8).prop_map(Event::AcquiredBy),
        1 => Just(Event::Acquired),
    ];
    vec((0..700_u64, event), 1..80)
}

/// A place in a line as this library writes it.
fn sound_place() -> impl Strategy<Value = PlaceValues> {
    (0..6_u8, 0..3_i64, 0..60_u64)
}

/// A place with any values.
fn any_place() -> impl Strategy<Value = PlaceValues> {
    (0..6_u8, any::<i64>(), prop_oneof![0..60_u64, any::<u64>()])
}

fn waiter(provider: &str, at: i64, time_slot: u64) -> Waiter {
    Waiter {
        provider: Arc::from(provider),
        owner: String::new(),
        at: DateTime::from_millis(at),
        since: None,
        time_slot: Duration::from_millis(time_slot),
    }
}

/// The documents at these places, in this order, with the own one among them.
fn line_of(places: &[PlaceValues], own: Option<usize>) -> Vec<Waiter> {
    let of = |(provider, at, time_slot): &PlaceValues| waiter(&provider.to_string(), *at, *time_slot);
    let mut line: Vec<Waiter> = places.iter().map(of).collect();
    if let Some(own) = own {
        line.insert(own.min(line.len()), waiter(OWN, 0, 5));
    }
    line
}

/// The same line without a second document of a provider, by the places.
fn in_order(mut places: Vec<PlaceValues>) -> Vec<PlaceValues> {
    let mut seen = HashSet::new();
    places.retain(|(provider, ..)| seen.insert(*provider));
    places.sort_by_key(|(_, at, _)| *at);
    places
}

/// What the rules say of the line that was read last.
#[derive(Default)]
struct Rules {
    others: Vec<Known>,
    acquired_since: HashSet<String>,
    acquired_by_other: Option<Instant>,
}

struct Known {
    document: Waiter,
    is_ahead: bool,
    passes: u32,
    is_expired: bool,
}

impl Rules {
    fn read(&mut self, line: &[Waiter]) {
        let own = line.iter().position(|waiter| &*waiter.provider == OWN);
        let before = std::mem::take(&mut self.others);
        for (index, document) in line.iter().enumerate().filter(|(index, _)| Some(*index) != own) {
            let same = |known: &&Known| {
                let (before, now) = (&known.document, document);
                (&before.provider, before.at, before.time_slot) == (&now.provider, now.at, now.time_slot)
            };
            let known = before.iter().find(same);
            self.others.push(Known {
                document: document.clone(),
                is_ahead: index < own.unwrap_or(usize::MAX)
                    && !self.acquired_since.contains(&*document.provider),
                passes: known.map_or(0, |known| known.passes),
                is_expired: known.is_some_and(|known| known.is_expired),
            });
        }
        self.judge();
    }

    fn acquired_by(&mut self, now: Instant, provider: Option<&str>) {
        self.acquired_by_other = Some(now);
        self.acquired_since.extend(provider.map(str::to_owned));
        let first = self
            .others
            .iter()
            .position(|known| known.is_ahead && !known.is_expired);
        // It moves to the end, and is alive.
        let moved = self
            .others
            .iter_mut()
            .filter(|known| Some(&*known.document.provider) == provider);
        for known in moved {
            (known.is_ahead, known.passes, known.is_expired) = (false, 0, false);
        }
        if let Some(first) = first
            && self.others[first].is_ahead
        {
            self.others[first].passes += 1;
            self.judge();
        }
    }

    /// Six acquisitions for the first expired waiter, three for the second, two for each further one.
    fn judge(&mut self) {
        let is_expired = |known: &&Known| known.is_expired || known.passes >= 6;
        let expired = self.others.iter().filter(is_expired).count();
        let most = [6, 3].get(expired).copied().unwrap_or(2);
        for known in &mut self.others {
            known.is_expired |= known.passes >= most;
        }
    }

    fn ahead(&self) -> impl Iterator<Item = &Waiter> {
        let ahead = self
            .others
            .iter()
            .filter(|known| known.is_ahead && !known.is_expired);
        ahead.map(|known| &known.document)
    }

    fn time_slots(&self) -> Duration {
        let together: Duration = self.ahead().map(|waiter| waiter.time_slot).sum();
        together.min(LINE_SLOTS_MAX)
    }

    fn living(&self) -> Option<&Waiter> {
        let first = self.others.iter().find(|known| !known.is_expired);
        first.map(|known| &known.document)
    }

    fn others_wait(&self, now: Instant) -> bool {
        let is_recent = |at: Instant| now - at < LINE_REMEMBER;
        self.living().is_some() || self.acquired_by_other.is_some_and(is_recent)
    }

    fn yield_time(&self, usual: Duration) -> Duration {
        let time_slot = self
            .living()
            .map(|first| first.time_slot.min(LINE_SLOTS_MAX) + LINE_MARGIN);
        time_slot.unwrap_or_default().max(usual)
    }
}

fn follows_the_rules(events: Vec<(u64, Event)>) -> Result<(), TestCaseError> {
    let (mut order, mut rules, mut now) = (Order::default(), Rules::default(), Instant::now());
    for (later, event) in events {
        now += Duration::from_millis(later);
        match event {
            Event::Read(places, own) => {
                let line = line_of(&in_order(places), own);
                order.read(&line, OWN);
                rules.read(&line);
            }
            Event::AcquiredBy(provider) => {
                let provider = provider.map(|provider| provider.to_string());
                order.acquired_by(now, provider.as_deref(), 1);
                rules.acquired_by(now, provider.as_deref());
            }
            Event::Acquired => {
                order.acquired();
                rules.acquired_since.clear();
            }
        }
        prop_assert_eq!(order.ahead(), rules.ahead().count());
        prop_assert_eq!(order.time_slots_ahead(), rules.time_slots());
        prop_assert_eq!(order.others_wait(now), rules.others_wait(now));
        prop_assert_eq!(order.yield_time(true), rules.yield_time(YIELD_MAX));
        prop_assert_eq!(order.yield_time(false), rules.yield_time(YIELD_MAX_POLLING));
    }
    Ok(())
}

/// Whatever stands in the documents, a free lock is left alone for a bounded time, and for a bounded number of acquisitions.
fn keeps_its_bounds(events: Vec<(u64, Event)>, has_stream: bool) -> Result<(), TestCaseError> {
    let queue: Arc<dyn Send + Sync> = Arc::new(());
    let user = || -> User { Arc::downgrade(&queue) };
    let mut line = Line::new(user(), has_stream);
    let (mut claims, mut documents, mut now) = (0, 0, Instant::now());
    let mut next_claim = |provider: Option<u8>| -> Arc<str> {
        claims += 1;
        provider.map_or_else(
            || Arc::from(format!("net-{claims}")),
            |provider| Arc::from(format!("owner#{provider:08x}-0000-4000-8000-{claims:012x}")),
        )
    };
    for (later, event) in events {
        now += Duration::from_millis(later);
        match event {
            Event::Read(places, own) => {
                let read = line_of(&places, own);
                documents = read.len();
                line.read(&read, OWN);
            }
            Event::AcquiredBy(provider) => line.held_by(now, &next_claim(provider)),
            Event::Acquired => {
                line.acquired(OwnAcquisition {
                    request: Duration::ZERO,
                    waiting_since: None,
                    user: user(),
                    has_stream,
                });
                line.released(now);
            }
        }
        prop_assert!(line.standing(now).time_slots <= LINE_SLOTS_MAX);
        let longest = LINE_SLOTS_MAX + LINE_MARGIN;
        prop_assert!(
            line.standing(now)
                .yields_until
                .is_none_or(|until| until <= now + longest)
        );
        // The callers add these to the present time.
        prop_assert!(now.checked_add(line.standing(now).polling_pause).is_some());
    }
    for _ in 0..6 * (documents + 1) {
        line.held_by(now, &next_claim(None));
    }
    prop_assert_eq!(
        (line.standing(now).ahead, line.standing(now).time_slots),
        (0, Duration::ZERO)
    );
    Ok(())
}

proptest! {
    #[test]
    fn the_order_follows_its_rules(events in events(sound_place())) {
        follows_the_rules(events)?;
    }

    #[test]
    fn any_documents_cost_order_only(events in events(any_place()), has_stream in any::<bool>()) {
        keeps_its_bounds(events, has_stream)?;
    }
}
