//! Exploring a model: its states are counted, and what is found is compared with what is expected.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::hash::Hash;
use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model, Path};

/// What exploring one model has shown.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// The number of different states.
    pub(crate) states: usize,
    /// The length of the longest way that was looked at.
    pub(crate) depth: usize,
    /// The time that it took, in seconds.
    pub(crate) seconds: f64,
    /// The shortest way to the broken property, one line for each step.
    pub(crate) counterexample: Vec<String>,
    /// What differs from the expectation.
    pub(crate) problems: Vec<String>,
}

/// Explores all states of a model: every property must hold in each, and everything that must be possible must be seen. If a
/// rule or an assumption is missing, this property must break, and only the states up to the shortest way to that are explored.
pub(crate) fn explore<M>(model: M, broken: Option<&'static str>) -> Outcome
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
    let checker = model
        .checker()
        .threads(threads)
        .finish_when(end)
        .spawn_bfs()
        .join();
    let found = checker.discoveries();
    let counterexample = broken.and_then(|name| found.get(name)).map_or(Vec::new(), lines);
    let mut problems = Vec::new();
    if let Some(name) = broken {
        if counterexample.is_empty() {
            problems.push(format!("not broken, although a rule is missing: {name}"));
        }
    } else {
        for property in properties {
            let is_failure = property.expectation.discovery_is_failure();
            match found.get(property.name) {
                Some(path) if is_failure => {
                    problems.push(format!("broken: {}", property.name));
                    problems.extend(lines(path));
                }
                None if !is_failure => problems.push(format!("was never seen: {}", property.name)),
                _ => {}
            }
        }
    }
    Outcome {
        states: checker.unique_state_count(),
        depth: checker.max_depth(),
        seconds: begun.elapsed().as_secs_f64(),
        counterexample,
        problems,
    }
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
