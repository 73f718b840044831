//! The order between processes.

use std::time::Duration;

use tokio::time::timeout;

use super::conformance;
use crate::competition::{Competition, compete};
use crate::fixture::Fixture;

conformance!(
    processes_that_ask_again_at_once_take_turns,
    a_process_without_push_gets_its_turns_beside_those_with_it,
);

/// Without an order a process that asks again at once has many turns in a row.
async fn processes_that_ask_again_at_once_take_turns(fixture: Fixture) {
    let competition = Competition::begin(&["a", "b", "c"].map(|owner| fixture.process(owner)));
    competition.until_in_rotation().await;
    competition.end().await;
}

/// The others leave it turns while they remember it. When it has missed some, they forget it until it is seen again, and it finds the
/// lock free by chance: within seconds, and not never. The group `order-polling` of the benchmark measures its share.
async fn a_process_without_push_gets_its_turns_beside_those_with_it(fixture: Fixture) {
    let polling = fixture.with(|options| options.wake_up(false));
    let processes = [fixture.process("a"), fixture.process("b"), polling];
    let turns = timeout(Duration::from_secs(60), compete(&processes, 20)).await;
    assert!(turns.is_ok(), "it has not had 20 turns");
}

/// Nothing in the database says who waits.
#[tokio::test]
async fn processes_that_wait_write_nothing_but_locks() {
    let fixture = Fixture::mongodb().await;
    let processes = ["a", "b", "c"].map(|owner| fixture.process(owner));
    compete(&processes, 10).await;
    let collections = fixture.database().list_collection_names().await.unwrap();
    assert_eq!(collections, ["distributed_locks"]);
}
