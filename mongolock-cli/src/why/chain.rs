//! The holders of names, what they wait for, and the tree that this forms. Nothing here reads a clock or a server.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use mongodb::bson::DateTime;

use crate::duration::between;
use crate::ids;

/// What was read of some names. A name that was not read has no holders here.
pub(super) struct Known {
    /// The time of the reading, by the server's clock.
    pub(super) now: DateTime,
    pub(super) holders: BTreeMap<String, Vec<Holder>>,
    pub(super) waits: Vec<Wait>,
    /// The names that are stuck beyond doubt, by this reading and the one before.
    pub(super) stuck: BTreeSet<String>,
}

/// A hold. The names are as others wait for them.
#[derive(Debug, Clone)]
pub(super) struct Holder {
    pub(super) lock_id: String,
    pub(super) permit: Option<u32>,
    pub(super) since: DateTime,
    pub(super) until: DateTime,
}

/// A wait of callers that hold something, by the document of their process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wait {
    pub(super) provider: String,
    pub(super) owner: String,
    pub(super) name: String,
    pub(super) since: DateTime,
    /// The holds that cannot end before it.
    pub(super) holds: Vec<String>,
    /// Guards that the waiting tasks have acquired, and that may be elsewhere by now.
    pub(super) may_hold: Vec<String>,
}

/// A lock with its holders.
pub(super) struct Lock<'k> {
    pub(super) holders: Vec<Held<'k>>,
}

/// A holder, and what it waits for.
pub(super) struct Held<'k> {
    pub(super) holder: &'k Holder,
    pub(super) age: Duration,
    pub(super) remaining: Duration,
    pub(super) waits: Vec<Waiting<'k>>,
}

/// What a holder waits for.
pub(super) struct Waiting<'k> {
    pub(super) wait: &'k Wait,
    pub(super) age: Duration,
    /// Whether it is known that the holder itself waits.
    pub(super) is_certain: bool,
    pub(super) leads: Leads<'k>,
}

/// Where a wait leads.
pub(super) enum Leads<'k> {
    /// To a lock and its holders.
    To(Lock<'k>),
    /// Back to a lock of the same chain; whether it is certain that none of these holders goes on.
    Back { is_certain: bool },
    /// To a lock that was shown before.
    Shown,
}

/// The names from the first one to that of a wait, each with whether it is certain that its holder waits.
type Way<'k> = Vec<(&'k str, bool)>;

impl Known {
    /// The names whose holders are stuck by this reading alone: each hold is listed by a wait, and all waits that list it are
    /// for such names. The permits of a semaphore that nobody holds are not known, so none is stuck.
    pub(super) fn stuck(&self) -> BTreeSet<String> {
        let names = self.holders.keys().filter(|name| !ids::is_any_permit(name));
        self.stuck_among(names.cloned().collect())
    }

    /// Notes which names are stuck by an earlier reading as well, by the same holds and waits.
    pub(super) fn confirm(&mut self, earlier: &Self) {
        let is_same = |name: &String| self.facts(name) == earlier.facts(name);
        let names = self.stuck().into_iter().filter(is_same);
        let both = &earlier.stuck() & &names.collect();
        self.stuck = self.stuck_among(both);
    }

    /// The greatest set of stuck names among these.
    fn stuck_among(&self, mut names: BTreeSet<String>) -> BTreeSet<String> {
        loop {
            let is_stuck = |name: &String| {
                let holders = self.holders.get(name).map_or(&[][..], Vec::as_slice);
                let mut waits = holders.iter().map(|holder| self.waits_of(holder));
                let is_stuck = |waits: Vec<&Wait>| {
                    !waits.is_empty() && waits.iter().all(|wait| names.contains(&wait.name))
                };
                !holders.is_empty() && waits.all(is_stuck)
            };
            let kept: BTreeSet<String> = names.iter().filter(|name| is_stuck(name)).cloned().collect();
            if kept.len() == names.len() {
                return names;
            }
            names = kept;
        }
    }

    /// The waits without which this hold cannot end.
    fn waits_of(&self, holder: &Holder) -> Vec<&Wait> {
        let waits = self.waits.iter();
        waits
            .filter(|wait| wait.holds.contains(&holder.lock_id))
            .collect()
    }

    /// The holds of a name, and the waits that list them: what tells one circle from another.
    fn facts(&self, name: &str) -> BTreeSet<(&str, &str, &str, DateTime)> {
        let holders = self.holders.get(name).into_iter().flatten();
        let facts = holders.flat_map(|holder| {
            let waits = self.waits_of(holder).into_iter();
            waits.map(|wait| (&*holder.lock_id, &*wait.provider, &*wait.name, wait.since))
        });
        facts.collect()
    }

    /// A name with all that follows from it.
    pub(super) fn lock<'k>(&'k self, name: &'k str) -> Lock<'k> {
        self.below(name, &mut Vec::new(), &mut Vec::new())
    }

    fn below<'k>(&'k self, name: &'k str, way: &mut Way<'k>, shown: &mut Vec<&'k str>) -> Lock<'k> {
        shown.push(name);
        let all = self.holders.get(name).map_or(&[][..], Vec::as_slice);
        let mut holders = Vec::with_capacity(all.len());
        for holder in all {
            let mut waits = Vec::new();
            for wait in &self.waits {
                let is_certain = wait.holds.contains(&holder.lock_id);
                if is_certain || wait.may_hold.contains(&holder.lock_id) {
                    way.push((name, is_certain && self.stuck.contains(name)));
                    let back = way.iter().position(|(before, _)| *before == wait.name);
                    let leads = match back {
                        Some(from) => Leads::Back {
                            is_certain: way[from..].iter().all(|(_, is_certain)| *is_certain),
                        },
                        None if shown.contains(&wait.name.as_str()) => Leads::Shown,
                        None => Leads::To(self.below(&wait.name, way, shown)),
                    };
                    way.pop();
                    let age = between(wait.since, self.now);
                    waits.push(Waiting {
                        wait,
                        age,
                        is_certain,
                        leads,
                    });
                }
            }
            holders.push(Held {
                holder,
                age: between(holder.since, self.now),
                remaining: between(self.now, holder.until),
                waits,
            });
        }
        Lock { holders }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(holders: &[(&str, &[&str])], waits: &[(&str, &[&str], &[&str])]) -> Known {
        let at = DateTime::from_millis;
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let holder = |lock_id: &&str| Holder {
            lock_id: (*lock_id).to_owned(),
            permit: None,
            since: at(0),
            until: at(5_000),
        };
        let holders = holders
            .iter()
            .map(|(name, ids)| ((*name).to_owned(), ids.iter().map(holder).collect()));
        let waits = waits.iter().map(|(name, holds, may_hold)| Wait {
            provider: "p".to_owned(),
            owner: "p".to_owned(),
            name: (*name).to_owned(),
            since: at(500),
            holds: texts(holds),
            may_hold: texts(may_hold),
        });
        let mut known = Known {
            now: at(1_000),
            holders: holders.collect(),
            waits: waits.collect(),
            stuck: BTreeSet::new(),
        };
        known.stuck = known.stuck();
        known
    }

    /// The chain as text: each name in brackets behind the holder that waits for it.
    fn text(name: &str, lock: &Lock<'_>) -> String {
        let waiting = |waiting: &Waiting<'_>| {
            let doubt = if waiting.is_certain { "" } else { "?" };
            match &waiting.leads {
                Leads::To(lock) => format!("{doubt}[{}]", text(ids::shown(&waiting.wait.name), lock)),
                Leads::Back { is_certain: true } => format!("{doubt}[deadlock {}]", waiting.wait.name),
                Leads::Back { is_certain: false } => format!("{doubt}[back {}]", waiting.wait.name),
                Leads::Shown => format!("{doubt}[see {}]", waiting.wait.name),
            }
        };
        let holders = lock.holders.iter().map(|held| {
            assert_eq!(held.age, Duration::from_secs(1));
            assert_eq!(held.remaining, Duration::from_secs(4));
            format!(
                " {}{}",
                held.holder.lock_id,
                held.waits.iter().map(waiting).collect::<String>()
            )
        });
        format!("{name}:{}", holders.collect::<String>())
    }

    #[test]
    fn a_chain_ends_where_nobody_waits_or_comes_back() {
        let holders: &[(&str, &[&str])] = &[("a", &["ha"]), ("b", &["hb"]), ("c", &["hc"])];
        let chain = known(holders, &[("b", &["ha"], &[]), ("c", &["hb"], &[])]);
        assert_eq!(text("a", &chain.lock("a")), "a: ha[b: hb[c: hc]]");
        let circle = known(
            holders,
            &[("b", &["ha"], &[]), ("c", &["hb"], &[]), ("a", &["hc"], &[])],
        );
        assert_eq!(text("a", &circle.lock("a")), "a: ha[b: hb[c: hc[deadlock a]]]");
        // It leads into a circle that it is no part of.
        let into = known(
            holders,
            &[("b", &["ha"], &[]), ("c", &["hb"], &[]), ("b", &["hc"], &[])],
        );
        assert_eq!(text("a", &into.lock("a")), "a: ha[b: hb[c: hc[deadlock b]]]");
    }

    #[test]
    fn a_guard_and_a_permit_leave_a_doubt() {
        let holders: &[(&str, &[&str])] = &[("a", &["ha"]), ("b", &["hb"]), ("s\u{1f}", &["s1", "s2"])];
        let guard = known(holders, &[("b", &[], &["ha"]), ("a", &["hb"], &[])]);
        assert_eq!(text("a", &guard.lock("a")), "a: ha?[b: hb[back a]]");
        let permits = known(
            holders,
            &[
                ("s\u{1f}", &["ha"], &[]),
                ("a", &["s1"], &[]),
                ("b", &["s2"], &[]),
            ],
        );
        assert_eq!(text("a", &permits.lock("a")), "a: ha[s: s1[back a] s2[b: hb]]");
        // A third permit may be free.
        let all_wait = known(
            holders,
            &[
                ("s\u{1f}", &["ha"], &[]),
                ("a", &["s1"], &[]),
                ("a", &["s2"], &[]),
            ],
        );
        assert_eq!(text("a", &all_wait.lock("a")), "a: ha[s: s1[back a] s2[back a]]");
    }

    /// One of two tasks inside the hold waits for its own circle, and the other one goes on.
    #[test]
    fn a_hold_with_another_wait_leaves_a_doubt() {
        let holders: &[(&str, &[&str])] = &[("a", &["ha"]), ("b", &["hb"]), ("c", &["hc"])];
        let waits: [(&str, &[&str], &[&str]); 3] =
            [("b", &["ha"], &[]), ("a", &["hb"], &[]), ("c", &["hb"], &[])];
        let doubt = known(holders, &waits);
        assert_eq!(text("a", &doubt.lock("a")), "a: ha[b: hb[back a][c: hc]]");
        let back = [
            ("b", &["ha"][..], &[][..]),
            ("a", &["hb"], &[]),
            ("a", &["hb"], &[]),
        ];
        let certain = known(holders, &back);
        assert_eq!(
            text("a", &certain.lock("a")),
            "a: ha[b: hb[deadlock a][deadlock a]]"
        );
    }

    #[test]
    fn a_circle_is_certain_if_two_readings_have_it() {
        let holders: &[(&str, &[&str])] = &[("a", &["ha"]), ("b", &["hb"])];
        let waits: &[(&str, &[&str], &[&str])] = &[("b", &["ha"], &[]), ("a", &["hb"], &[])];
        let after = |earlier: &Known| {
            let mut known = Known {
                stuck: BTreeSet::new(),
                ..known(holders, waits)
            };
            known.confirm(earlier);
            text("a", &known.lock("a"))
        };
        assert_eq!(after(&known(holders, waits)), "a: ha[b: hb[deadlock a]]");
        // Another hold, another wait, and a circle that was not there.
        let other_hold: &[(&str, &[&str], &[&str])] = &[("b", &["ha"], &[]), ("a", &["hc"], &[])];
        assert_eq!(
            after(&known(&[("a", &["ha"]), ("b", &["hc"])], other_hold)),
            "a: ha[b: hb[back a]]"
        );
        let mut other_wait = known(holders, waits);
        other_wait.waits[1].since = DateTime::from_millis(400);
        assert_eq!(after(&other_wait), "a: ha[b: hb[back a]]");
        assert_eq!(after(&known(holders, &waits[..1])), "a: ha[b: hb[back a]]");
    }

    #[test]
    fn each_lock_is_shown_once() {
        let holders: &[(&str, &[&str])] = &[("a", &["ha"]), ("b", &["hb"]), ("c", &["hc"])];
        let both = known(
            holders,
            &[("b", &["ha"], &[]), ("c", &["ha"], &[]), ("c", &["hb"], &[])],
        );
        assert_eq!(text("a", &both.lock("a")), "a: ha[b: hb[c: hc]][see c]");
        assert_eq!(text("free", &both.lock("free")), "free:");
    }
}
