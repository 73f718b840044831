//! One test for each scenario.

use std::env;

use super::plan::SCENARIOS;
use super::run;

/// The seeds of each scenario in a usual run.
const FEW: u64 = 3;

/// The number in this variable.
fn number(variable: &str) -> Option<u64> {
    let text = env::var(variable).ok()?;
    Some(text.parse().expect("it is a number"))
}

fn check(name: &str) {
    let scenario = SCENARIOS.iter().find(|(own, ..)| *own == name);
    let scenario = scenario.expect("each scenario has its test");
    if let Some(seed) = number("MONGOLOCK_SEED") {
        let world = run(scenario, seed, true);
        assert!(world.ledger().breaches.is_empty());
        return;
    }
    let seeds = number("MONGOLOCK_SEEDS").map_or(FEW, |all| all.div_ceil(SCENARIOS.len() as u64));
    let (mut failed, mut events) = (Vec::new(), 0);
    for seed in 0..seeds {
        let world = run(scenario, seed, false);
        let ledger = world.ledger();
        events += ledger.next;
        failed.extend(ledger.breaches.first().map(|first| format!("{seed}: {first}")));
    }
    let (number, text) = (failed.len(), failed.join("\n"));
    let breaches = format!("of {seeds} seeds of {name} have breaches:\n{text}");
    assert!(number == 0, "{number} {breaches}");
    assert!(events > seeds * 20, "{name} has only {events} calls and holds");
}

/// The tests, and that there is one for each scenario.
macro_rules! scenarios {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            check(stringify!($name));
        })*

        #[test]
        fn each_scenario_has_its_test() {
            let names: Vec<&str> = SCENARIOS.iter().map(|(name, ..)| *name).collect();
            assert_eq!(names, [$(stringify!($name)),*]);
        }
    };
}

scenarios! {
    calm network late_commands long_leases crashes restarts pauses failovers overload operators sweeps sets permits marks
    everything
}

#[test]
fn a_seed_is_the_same_run_each_time() {
    for scenario in SCENARIOS {
        let digest = |seed| run(scenario, seed, false).digest();
        let (first, second) = (digest(0), digest(0));
        assert_eq!(first, second, "{}", scenario.0);
        assert_ne!(first, digest(1), "{}", scenario.0);
    }
}
