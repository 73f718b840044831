//! Exploring a model: its states are counted, and what is found is compared with what is expected.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::hash::Hash;
use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model, Path};

/// Explores all states of a model, prints what it has shown, and returns whether that is expected: every property must hold in
/// each state, and everything that must be possible must be seen. If a rule or an assumption is missing, this property must break,
/// and only the states up to the shortest way to that are explored.
pub(crate) fn explore<M>(name: &str, model: M, broken: Option<&'static str>) -> bool
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq + Send + Sync + 'static,
{
    let begun = Instant::now();
    let properties = model.properties();
    // With one thread the search is breadth first, so that the counterexample is the shortest one. Short models run two at a time,
    // which takes less time than two threads for each.
    let (threads, end) = match broken {
        None if is_long_run() => (2, HasDiscoveries::AnyFailures),
        None => (1, HasDiscoveries::AnyFailures),
        Some(name) => (1, HasDiscoveries::AllOf(BTreeSet::from([name]))),
    };
    let checker = model.checker().threads(threads).finish_when(end);
    let checker = checker.spawn_bfs().join();
    let found = checker.discoveries();
    let (mut is_expected, mut shown) = (true, Vec::new());
    for property in properties {
        let is_failure = property.expectation.discovery_is_failure();
        let path = found.get(property.name);
        let must_be_found = broken.map_or(!is_failure, |broken| broken == property.name);
        match path {
            // Others may break as well on the way to the expected one.
            Some(path) if is_failure && (must_be_found || broken.is_none()) => {
                is_expected &= must_be_found;
                shown.push(format!("broken: {}", property.name));
                shown.extend(lines(path));
            }
            None if must_be_found => {
                is_expected = false;
                shown.push(format!("was never found: {}", property.name));
            }
            _ => {}
        }
    }
    let verdict = match broken {
        _ if !is_expected => "FAILED",
        None => "holds",
        Some(_) => "breaks, as it must",
    };
    let (states, depth) = (checker.unique_state_count(), checker.max_depth());
    let seconds = begun.elapsed().as_secs_f64();
    let mut report = format!("{name:<72} {states:>10} {depth:>6} {seconds:>8.1}  {verdict}\n");
    for line in shown {
        report.extend(["      ", &line, "\n"]);
    }
    print!("{report}");
    is_expected
}

/// Whether the models that take minutes are wanted, instead of the others.
pub(crate) fn is_long_run() -> bool {
    std::env::var("MONGOLOCK_MODELS").is_ok_and(|value| value == "long")
}

/// A way, one line for each step.
fn lines<S: Clone + Debug, A: Clone + Debug>(path: &Path<S, A>) -> Vec<String> {
    let steps = path.clone().into_vec();
    let mut lines: Vec<String> = steps
        .iter()
        .filter_map(|(_, action)| action.as_ref())
        .enumerate()
        .map(|(number, action)| format!("{:>2}. {action:?}", number + 1))
        .collect();
    if let Some((last, _)) = steps.last() {
        lines.push(format!("    then: {last:?}"));
    }
    lines
}
