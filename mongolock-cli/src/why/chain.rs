//! The holders of names, what they wait for, and the tree that this forms. Nothing here reads a clock or a server.

use std::collections::BTreeMap;
use std::time::Duration;

use mongodb::bson::DateTime;

use crate::duration::between;

/// What was read of some names. A name that was not read has no holders here.
pub(super) struct Known {
    /// The time of the reading, by the server's clock.
    pub(super) now: DateTime,
    pub(super) holders: BTreeMap<String, Vec<Holder>>,
    pub(super) waits: Vec<Wait>,
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
    /// Back to a lock of the same chain; whether all that leads there is certain, and each lock has one holder.
    Back { is_certain: bool },
    /// To a lock that was shown before.
    Shown,
}

/// The names from the first one to that of a wait, each with whether it is certain that the way goes over it.
type Way<'k> = Vec<(&'k str, bool)>;

impl Known {
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
                    way.push((name, is_certain && all.len() == 1));
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
        Known {
            now: at(1_000),
            holders: holders.collect(),
            waits: waits.collect(),
        }
    }

    /// The chain as text: each name in brackets behind the holder that waits for it.
    fn text(name: &str, lock: &Lock<'_>) -> String {
        let waiting = |waiting: &Waiting<'_>| {
            let doubt = if waiting.is_certain { "" } else { "?" };
            match &waiting.leads {
                Leads::To(lock) => format!("{doubt}[{}]", text(&waiting.wait.name, lock)),
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
        let holders: &[(&str, &[&str])] = &[("a", &["ha"]), ("b", &["hb"]), ("s", &["s1", "s2"])];
        let guard = known(holders, &[("b", &[], &["ha"]), ("a", &["hb"], &[])]);
        assert_eq!(text("a", &guard.lock("a")), "a: ha?[b: hb[back a]]");
        let permits = known(
            holders,
            &[("s", &["ha"], &[]), ("a", &["s1"], &[]), ("b", &["s2"], &[])],
        );
        assert_eq!(text("a", &permits.lock("a")), "a: ha[s: s1[back a] s2[b: hb]]");
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
