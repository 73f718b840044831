use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::DateTime;
use proptest::prelude::*;
use tokio::time::Instant;

use super::Line;
use crate::store::Waiter;
use crate::timing::{LINE_LOOK, LINE_MOMENTS_MAX, STAND_BACK_AFTER_MOMENT};

const OWN: &str = "own";

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn waiter(provider: &str, at: i64, moment: u64) -> Waiter {
    Waiter {
        provider: Arc::from(provider),
        owner: String::new(),
        at: DateTime::from_millis(at),
        since: None,
        moment: ms(moment),
    }
}

/// A line with these providers before the own document, each with a moment of 5 ms.
fn behind(ahead: &[&str], now: Instant) -> Line {
    let mut line = Line::new(Arc::from(OWN), now);
    line.entered();
    line.read(&with_own(ahead), now);
    line
}

fn with_own(ahead: &[&str]) -> Vec<Waiter> {
    let all = ahead.iter().chain(&[OWN]);
    (0..)
        .zip(all)
        .map(|(at, provider)| waiter(provider, at, 5))
        .collect()
}

/// The time from a release until the next request.
fn delay(line: &mut Line, now: Instant) -> Duration {
    line.released(now);
    line.next_request().expect("no request is under way") - now
}

#[test]
fn a_waiter_leaves_a_moment_to_each_before_it_and_at_most_50_ms_together() {
    let now = Instant::now();
    assert_eq!(delay(&mut behind(&[], now), now), ms(0));
    assert_eq!(delay(&mut behind(&["a"], now), now), ms(5));
    assert_eq!(delay(&mut behind(&["a", "b", "c"], now), now), ms(15));
    let many: Vec<String> = (0..40).map(|n| n.to_string()).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert_eq!(delay(&mut behind(&many, now), now), ms(50));

    // Those behind the own document do not count, and a far one says that it needs longer.
    let mut line = behind(&[], now);
    line.read(
        &[waiter("far", 0, 11), waiter(OWN, 1, 5), waiter("behind", 2, 5)],
        now,
    );
    assert_eq!(delay(&mut line, now), ms(11));
    line.read(
        &[waiter("hostile", 0, u64::MAX), waiter("other", 1, u64::MAX)],
        now,
    );
    assert_eq!(delay(&mut line, now), ms(50));
}

#[test]
fn without_its_own_document_all_others_are_before_a_provider() {
    let now = Instant::now();
    let mut line = behind(&[], now);
    line.read(&[waiter("a", 0, 5), waiter("b", 1, 5)], now);
    assert_eq!(delay(&mut line, now), ms(10));
    line.left();
    assert!(!line.is_entered());
    assert_eq!(delay(&mut line, now), ms(0));
}

#[test]
fn an_acquire_by_another_cancels_the_own_request_and_takes_it_out_of_the_line() {
    let now = Instant::now();
    let mut line = behind(&["a", "b"], now);
    assert_eq!(delay(&mut line, now), ms(10));
    line.acquired_by(Some("a"), now + ms(3));
    assert_eq!(
        line.next_request(),
        Some(now + ms(3) + LINE_LOOK),
        "only a look is left"
    );
    assert_eq!(delay(&mut line, now + ms(6)), ms(5));
    // A stranger, and a claim without a mark, take no place out.
    line.acquired_by(Some("stranger"), now + ms(7));
    line.acquired_by(None, now + ms(8));
    assert_eq!(delay(&mut line, now + ms(9)), ms(5));
}

#[test]
fn a_dead_first_in_line_costs_six_turns_and_the_next_ones_fewer() {
    let now = Instant::now();
    let mut line = behind(&["dead-1", "dead-2", "dead-3", "dead-4"], now);
    let mut delays = Vec::new();
    for _ in 0..14 {
        delays.push(delay(&mut line, now).as_millis());
        line.acquired_by(Some("alive"), now);
    }
    // Six turns for the first one, three for the second one, two for each further one.
    assert_eq!(delays, [20, 20, 20, 20, 20, 20, 15, 15, 15, 10, 10, 5, 5, 0]);
    // Reading the same places again does not count them again, a new place does.
    line.read(&with_own(&["dead-1", "dead-2", "dead-3", "dead-4"]), now);
    assert_eq!(delay(&mut line, now), ms(0));
    line.read(&[waiter("dead-1", 100, 5), waiter(OWN, 101, 5)], now);
    assert_eq!(delay(&mut line, now), ms(5));
}

/// Only the first one lets a turn pass: those behind it were not next.
#[test]
fn an_acquire_by_the_first_counts_against_nobody() {
    let now = Instant::now();
    let mut line = behind(&["a", "b"], now);
    for turn in 0..20 {
        line.acquired_by(Some("a"), now);
        line.read(
            &[waiter("a", turn, 5), waiter("b", 50, 5), waiter(OWN, 51, 5)],
            now,
        );
        assert_eq!(delay(&mut line, now), ms(10), "turn {turn}");
    }
}

#[test]
fn a_release_during_a_request_leads_to_another_one_at_once() {
    let now = Instant::now();
    let mut line = behind(&["a"], now);
    line.request_sent();
    assert_eq!(line.next_request(), None);
    line.request_failed(now);
    assert_eq!(line.next_request(), Some(now + LINE_LOOK));

    line.request_sent();
    line.released(now + ms(1));
    assert_eq!(line.next_request(), None);
    line.request_failed(now + ms(2));
    assert_eq!(line.next_request(), Some(now + ms(2)));
}

#[test]
fn a_releaser_stands_back_until_another_has_acquired_the_lock() {
    let now = Instant::now();
    let mut alone = behind(&[], now);
    alone.released_by_own(now);
    assert_eq!(alone.next_request(), Some(now), "nobody else is known");

    let mut line = behind(&["a", "b"], now);
    assert!(line.others_wait(now));
    line.released_by_own(now);
    assert_eq!(line.next_request(), Some(now + ms(30)));
    line.released(now + ms(1));
    assert_eq!(
        line.next_request(),
        Some(now + ms(30)),
        "its own release changes nothing"
    );
    line.begin_to_wait(now + ms(1));
    assert_eq!(
        line.next_request(),
        Some(now + ms(30)),
        "and neither does a new caller"
    );
    line.acquired_by(Some("a"), now + ms(4));
    assert_eq!(
        delay(&mut line, now + ms(8)),
        ms(5),
        "it has let another one go first"
    );

    // The first in line needs longer, and a hostile one gets no more than the longest moment.
    for (moment, expected) in [(40, 45), (50, 55), (10_000, 55)] {
        line.read(&[waiter(OWN, 0, 5), waiter("polling", 1, moment)], now);
        line.released_by_own(now);
        assert_eq!(line.next_request(), Some(now + ms(expected)));
    }
}

/// Processes that cannot enter the line get turns as well.
#[test]
fn a_releaser_stands_back_for_half_a_second_after_an_acquire_by_another() {
    let now = Instant::now();
    let mut line = behind(&[], now);
    line.acquired_by(None, now);
    line.released_by_own(now + ms(499));
    assert_eq!(line.next_request(), Some(now + ms(529)));
    line.request_sent();
    line.acquired_by_own(now + ms(530));
    line.released_by_own(now + ms(531));
    assert_eq!(line.next_request(), Some(now + ms(531)));
}

#[test]
fn who_begins_to_wait_waits_for_the_place_of_its_provider() {
    let now = Instant::now();
    let mut line = behind(&["a", "b"], now);
    line.begin_to_wait(now);
    assert_eq!(line.next_request(), Some(now + ms(10)));
    line.begin_to_wait(now + ms(9));
    assert_eq!(
        line.next_request(),
        Some(now + ms(10)),
        "later callers do not delay it"
    );
}

/// What can happen, with providers and moments by numbers.
#[derive(Debug, Clone)]
enum Event {
    Read(Vec<(u8, u8, u8)>, Option<usize>),
    Acquired(Option<u8>),
    Released,
    ReleasedByOwn,
    Begins,
    Sent,
    Failed,
    AcquiredByOwn,
}

fn events() -> impl Strategy<Value = Vec<(u64, Event)>> {
    let line = proptest::collection::vec((0..6_u8, 0..3_u8, 0..60_u8), 0..8);
    let event = prop_oneof![
        2 => (line, proptest::option::of(0..9_usize)).prop_map(|(line, own)| Event::Read(line, own)),
        6 => proptest::option::of(0..8_u8).prop_map(Event::Acquired),
        4 => Just(Event::Released),
        1 => Just(Event::ReleasedByOwn),
        1 => Just(Event::Begins),
        2 => Just(Event::Sent),
        2 => Just(Event::Failed),
        1 => Just(Event::AcquiredByOwn),
    ];
    proptest::collection::vec((0..700_u64, event), 1..80)
}

/// One document for each provider, in the order of the places, and the own one where it is told to be.
fn documents(line: &[(u8, u8, u8)], own: Option<usize>) -> Vec<Waiter> {
    let mut seen = HashSet::new();
    let mut documents: Vec<Waiter> = line
        .iter()
        .filter(|(provider, ..)| seen.insert(*provider))
        .map(|(provider, at, moment)| waiter(&provider.to_string(), (*at).into(), (*moment).into()))
        .collect();
    documents.sort_by_key(|waiter| waiter.at);
    if let Some(own) = own {
        documents.insert(own.min(documents.len()), waiter(OWN, 0, 5));
    }
    documents
}

/// The rules in their plainest form: everything is computed from the last line that was read and what happened since.
#[derive(Default)]
struct Rules {
    line: Vec<Waiter>,
    acquired_since: HashSet<String>,
    passes: HashMap<(String, i64), u32>,
    absent: HashSet<(String, i64)>,
    last_acquired: Option<Instant>,
}

impl Rules {
    fn key(waiter: &Waiter) -> (String, i64) {
        (waiter.provider.to_string(), waiter.at.timestamp_millis())
    }

    fn others(&self) -> Vec<&Waiter> {
        let others = self.line.iter().filter(|waiter| &*waiter.provider != OWN);
        others
            .filter(|waiter| !self.absent.contains(&Self::key(waiter)))
            .collect()
    }

    fn ahead(&self) -> Vec<&Waiter> {
        let own = self.line.iter().position(|waiter| &*waiter.provider == OWN);
        let before_own = &self.line[..own.unwrap_or(self.line.len())];
        let counts = |waiter: &&Waiter| {
            !self.absent.contains(&Self::key(waiter)) && !self.acquired_since.contains(&*waiter.provider)
        };
        before_own.iter().filter(counts).collect()
    }

    fn read(&mut self, line: Vec<Waiter>) {
        let places: HashSet<_> = line.iter().map(Self::key).collect();
        self.passes.retain(|place, _| places.contains(place));
        self.absent.retain(|place| places.contains(place));
        self.line = line;
        self.acquired_since.clear();
        self.judge();
    }

    fn acquired(&mut self, provider: Option<u8>, now: Instant) {
        let provider = provider.map(|provider| provider.to_string());
        let first = self.ahead().first().map(|first| Self::key(first));
        if let Some(first) = first
            && Some(&first.0) != provider.as_ref()
        {
            *self.passes.entry(first).or_default() += 1;
        }
        self.acquired_since.extend(provider);
        self.last_acquired = Some(now);
        self.judge();
    }

    fn judge(&mut self) {
        let allowed = match self.absent.len() {
            0 => 6,
            1 => 3,
            _ => 2,
        };
        let absent = self.passes.iter().filter(|(_, passed)| **passed >= allowed);
        self.absent.extend(absent.map(|(place, _)| place.clone()));
    }

    fn others_wait(&self, now: Instant) -> bool {
        !self.others().is_empty() || self.last_acquired.is_some_and(|last| now - last < ms(500))
    }

    fn moments(&self) -> Duration {
        let together: Duration = self.ahead().iter().map(|waiter| waiter.moment).sum();
        together.min(ms(50))
    }
}

proptest! {
    /// Whatever happens, the delays are those of the rules, and no waiter is kept from a free lock for longer.
    #[test]
    fn the_line_follows_its_rules(events in events()) {
        let (mut now, mut rules) = (Instant::now(), Rules::default());
        let mut line = Line::new(Arc::from(OWN), now);
        let (mut is_under_way, mut stands_back) = (false, false);
        for (later, event) in events {
            now += ms(later);
            match event {
                Event::Read(documented, own) => {
                    let read = documents(&documented, own);
                    line.read(&read, now);
                    rules.read(read);
                }
                Event::Acquired(provider) => {
                    let text = provider.map(|provider| provider.to_string());
                    line.acquired_by(text.as_deref(), now);
                    rules.acquired(provider, now);
                    stands_back = false;
                }
                Event::Released => {
                    line.released(now);
                    if !is_under_way && !stands_back {
                        prop_assert_eq!(line.next_request(), Some(now + rules.moments()));
                    }
                }
                Event::ReleasedByOwn if !is_under_way => {
                    line.released_by_own(now);
                    stands_back = rules.others_wait(now);
                    let first = rules.others().first().map(|first| first.moment.min(ms(50)) + ms(5));
                    let pause = if stands_back { first.unwrap_or_default().max(ms(30)) } else { ms(0) };
                    prop_assert_eq!(line.next_request(), Some(now + pause));
                    prop_assert!(pause <= LINE_MOMENTS_MAX + STAND_BACK_AFTER_MOMENT);
                }
                Event::Begins => line.begin_to_wait(now),
                Event::Sent => {
                    line.request_sent();
                    (is_under_way, stands_back) = (true, false);
                }
                Event::Failed if is_under_way => {
                    line.request_failed(now);
                    is_under_way = false;
                }
                Event::AcquiredByOwn if is_under_way => {
                    line.acquired_by_own(now);
                    is_under_way = false;
                }
                Event::ReleasedByOwn | Event::Failed | Event::AcquiredByOwn => {}
            }
            prop_assert_eq!(line.others_wait(now), rules.others_wait(now));
            prop_assert_eq!(line.next_request().is_none(), is_under_way);
            // No waiter is forgotten: a look follows after a second without an event at the latest.
            prop_assert!(line.next_request().is_none_or(|next| next <= now + LINE_LOOK));
        }
    }
}
