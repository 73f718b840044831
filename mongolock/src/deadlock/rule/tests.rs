mod moving;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fastrand::Rng;
use mongodb::bson::DateTime;

use super::World;
use crate::store::NestedWait;

/// The number of random worlds, or the one that `MONGOLOCK_ROUNDS` asks for: a million takes some minutes.
fn rounds(otherwise: u64) -> u64 {
    let rounds = std::env::var("MONGOLOCK_ROUNDS").ok();
    rounds.map_or(otherwise, |rounds| rounds.parse().expect("it is a number"))
}

/// A caller: what it holds, and the names that it waits for, each of which it needs to go on.
#[derive(Clone)]
struct Caller {
    provider: usize,
    holds: Vec<(usize, Arc<str>)>,
    waits: Vec<usize>,
}

fn name(number: usize) -> Arc<str> {
    Arc::from(format!("n{number}"))
}

/// What documents say of these callers: one for each provider and name, with the holds of all that wait there.
fn world(callers: &[Caller]) -> World {
    let mut world = World::default();
    let mut documents: BTreeMap<(usize, usize), Vec<Arc<str>>> = BTreeMap::new();
    for caller in callers {
        for (held, id) in &caller.holds {
            let holders = world.holders.entry(name(*held)).or_default();
            holders.insert(Arc::clone(id));
        }
        for awaited in &caller.waits {
            let holds = caller.holds.iter().map(|(_, id)| Arc::clone(id));
            documents
                .entry((caller.provider, *awaited))
                .or_default()
                .extend(holds);
        }
    }
    let wait = |((provider, awaited), holds): ((usize, usize), Vec<Arc<str>>)| NestedWait {
        provider: Arc::from(format!("p{provider}")),
        name: name(awaited),
        since: DateTime::from_millis(0),
        holds,
    };
    world.waits = documents.into_iter().map(wait).collect();
    world
}

/// The callers that can never go on: all others end one after the other, and release what they hold.
fn stuck(callers: &[Caller], permits: &[usize]) -> BTreeSet<usize> {
    let mut stuck: BTreeSet<usize> = (0..callers.len()).collect();
    loop {
        let held = |name: usize| {
            let holds = stuck.iter().flat_map(|caller| &callers[*caller].holds);
            holds.filter(|(held, _)| *held == name).count()
        };
        let is_free = |name: &usize| held(*name) < permits[*name];
        let can_end = stuck
            .iter()
            .find(|caller| callers[**caller].waits.iter().all(is_free));
        match can_end.copied() {
            Some(caller) => stuck.remove(&caller),
            None => return stuck,
        };
    }
}

/// Callers of some providers, each with locks or permits, and most of them wait.
fn random(rng: &mut Rng) -> (Vec<Caller>, Vec<usize>) {
    let permits: Vec<usize> = (0..rng.usize(2..=6))
        .map(|_| if rng.u8(0..4) == 0 { rng.usize(2..=3) } else { 1 })
        .collect();
    let providers = rng.usize(1..=4);
    let mut callers: Vec<Caller> = (0..rng.usize(2..=6))
        .map(|_| Caller {
            provider: rng.usize(0..providers),
            holds: Vec::new(),
            waits: Vec::new(),
        })
        .collect();
    for (held, permits) in permits.iter().enumerate() {
        let count = if rng.u8(0..8) == 0 {
            rng.usize(0..=*permits)
        } else {
            *permits
        };
        for permit in 0..count {
            let caller = rng.usize(0..callers.len());
            callers[caller]
                .holds
                .push((held, Arc::from(format!("h{held}.{permit}"))));
        }
    }
    for caller in &mut callers {
        // A caller waits once, as a rule.
        let waits = [0, 1, 1, 1, 1, 1, 1, 2][rng.usize(0..8)];
        for _ in 0..waits {
            let awaited = rng.usize(0..permits.len());
            if !caller.holds.iter().any(|(held, _)| *held == awaited) {
                caller.waits.push(awaited);
            }
        }
    }
    // A name with a free permit is not waited for for long.
    let held: Vec<usize> = (0..permits.len())
        .map(|name| {
            callers
                .iter()
                .flat_map(|caller| &caller.holds)
                .filter(|(held, _)| *held == name)
                .count()
        })
        .collect();
    for caller in &mut callers {
        caller.waits.retain(|awaited| held[*awaited] == permits[*awaited]);
    }
    (callers, permits)
}

/// No caller that can go on is told that it cannot, in worlds without a deadlock and with one.
#[test]
fn no_random_world_has_a_deadlock_that_is_none() {
    let rng = &mut Rng::with_seed(35);
    let (mut without, mut with, mut found, mut members) = (0, 0, 0, 0);
    while without < rounds(4_000) {
        let (callers, permits) = random(rng);
        let stuck = stuck(&callers, &permits);
        if stuck.is_empty() {
            without += 1;
        } else {
            with += 1;
        }
        let world = world(&callers);
        let mut has_found = false;
        for (number, caller) in callers.iter().enumerate() {
            let own: Vec<Arc<str>> = caller.holds.iter().map(|(_, id)| Arc::clone(id)).collect();
            for awaited in &caller.waits {
                if let Some(circle) = world.circle(&name(*awaited), &own) {
                    assert!(stuck.contains(&number), "{circle:?} in {world:?}");
                    has_found = true;
                    members += 1;
                }
            }
        }
        found += u64::from(has_found);
    }
    println!("{without} worlds without a deadlock; {with} with one, found {found}, members {members}");
    assert!(found > 0, "a rule that finds nothing is never wrong");
}

#[test]
fn each_ring_is_found_by_each_of_its_members() {
    let rng = &mut Rng::with_seed(6);
    for _ in 0..rounds(2_000).min(10_000) {
        let length = rng.usize(2..=6);
        let callers: Vec<Caller> = (0..length)
            .map(|number| Caller {
                provider: rng.usize(0..length),
                holds: vec![(number, Arc::from(format!("h{number}")))],
                waits: vec![(number + 1) % length],
            })
            .collect();
        let world = world(&callers);
        for (number, caller) in callers.iter().enumerate() {
            let circle = world.circle(&name(caller.waits[0]), &[Arc::clone(&caller.holds[0].1)]);
            let names = circle.expect("it is a deadlock").names;
            let expected = (1..=length).map(|step| name((number + step) % length));
            assert!(names.iter().cloned().eq(expected), "{names:?}");
        }
    }
}

fn caller(provider: usize, holds: &[(usize, &str)], waits: &[usize]) -> Caller {
    Caller {
        provider,
        holds: holds.iter().map(|(name, id)| (*name, Arc::from(*id))).collect(),
        waits: waits.to_vec(),
    }
}

fn circle(callers: &[Caller], awaited: usize, own: &str) -> Option<Vec<Arc<str>>> {
    let circle = world(callers).circle(&name(awaited), &[Arc::from(own)]);
    circle.map(|circle| circle.names)
}

#[test]
fn a_chain_is_no_deadlock() {
    let chain = [
        caller(0, &[(0, "a")], &[1]),
        caller(1, &[(1, "b")], &[2]),
        caller(2, &[(2, "c")], &[]),
    ];
    assert_eq!(circle(&chain, 1, "a"), None);
}

/// One of two permits is held by a caller that goes on.
#[test]
fn a_semaphore_is_stuck_only_with_all_its_holders() {
    let mut callers = vec![
        caller(0, &[(0, "a")], &[1]),
        caller(1, &[(1, "b0")], &[0]),
        caller(2, &[(1, "b1")], &[]),
    ];
    assert_eq!(circle(&callers, 1, "a"), None);
    callers[2].waits = vec![0];
    assert_eq!(circle(&callers, 1, "a"), Some(vec![name(1), name(0)]));
}

/// It waits for others that cannot go on, and could not help them.
#[test]
fn a_caller_outside_the_circle_is_no_member() {
    let callers = [
        caller(0, &[(0, "a")], &[1]),
        caller(1, &[(1, "b")], &[0]),
        caller(2, &[(2, "c")], &[0]),
    ];
    assert_eq!(circle(&callers, 0, "c"), None);
    assert_eq!(circle(&callers, 0, "b"), Some(vec![name(0), name(1)]));
}

/// A document lists the holds of all callers of its provider that wait there: they are no members by that.
#[test]
fn a_hold_that_only_shares_a_document_is_no_member() {
    let callers = [
        caller(0, &[(0, "a")], &[1]),
        caller(0, &[(2, "c")], &[1]),
        caller(1, &[(1, "b")], &[0]),
    ];
    assert_eq!(circle(&callers, 1, "c"), None);
    assert!(circle(&callers, 1, "a").is_some());
}

/// The second wait of the caller is for a lock whose holder goes on. The rule needs both.
#[test]
fn a_caller_with_several_waits_is_missed() {
    let callers = [
        caller(0, &[(0, "a")], &[1, 2]),
        caller(1, &[(1, "b")], &[0]),
        caller(2, &[(2, "c")], &[]),
    ];
    assert_eq!(circle(&callers, 1, "a"), None);
}

/// A document that is written anew has the same beginning of the wait, up to the time that the command takes. What else the
/// callers hold does not matter.
#[test]
fn another_reading_confirms_a_circle_with_the_same_waits() {
    let callers = [caller(0, &[(0, "a")], &[1]), caller(1, &[(1, "b")], &[0])];
    let of = |world: &World| {
        world
            .circle(&name(1), &[Arc::from("a")])
            .expect("it is a deadlock")
    };
    let first = of(&world(&callers));
    for (millis, holds, is_same) in [(0, None, true), (7, Some("c"), true), (2_000, None, false)] {
        let mut again = world(&callers);
        again.waits[1].since = DateTime::from_millis(millis);
        again.waits[1].holds.extend(holds.map(Arc::from));
        assert_eq!(of(&again).confirms(&first), is_same, "{millis} ms");
    }
    let another = [caller(0, &[(0, "a")], &[1]), caller(1, &[(1, "b2")], &[0])];
    assert!(
        !of(&world(&another)).confirms(&first),
        "another hold of the same lock"
    );
}
