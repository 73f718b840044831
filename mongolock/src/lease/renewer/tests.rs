use super::*;
use crate::lease::tests::{EXPIRY, lease, renewer};
use crate::options::Options;
use crate::store::AdmissionClass;

#[tokio::test(start_paused = true)]
async fn a_lease_waits_while_enough_renewals_are_in_flight() {
    let renewer = renewer();
    let _hold = renewer.hold(lease("n", &Options::default()));
    tokio::time::sleep(EXPIRY / 3).await;
    let admissions = renewer.store.admissions();
    let in_flight: Vec<_> =
        std::iter::from_fn(|| admissions.try_admit(AdmissionClass::Renewal, None)).collect();
    let work = renewer.due_work(None);
    assert!(work.renewals.is_empty() && work.waits_for == Some(AdmissionClass::Renewal));
    assert_eq!(work.next_round, renewer.held()[0].deadline());
    drop(in_flight);
    assert_eq!(renewer.due_work(None).renewals.len(), 1);
}

/// There is room for a first renewal, but none is due: waiting for that room would end at once, again and again.
#[tokio::test(start_paused = true)]
async fn repeated_renewals_without_room_wait_for_room_of_their_own() {
    let renewer = renewer();
    let names = (0..=MOST_DUE).map(|number| number.to_string());
    let _holds: Vec<_> = names
        .map(|name| renewer.hold(lease(&name, &Options::default())))
        .collect();
    tokio::time::sleep(EXPIRY / 3).await;
    let leases = lock(&renewer.state).schedule.leases(|_| true);
    renewer.renewal_failed(&leases, true);
    let work = renewer.due_work(None);
    assert!(!work.renewals.is_empty());
    assert_eq!(work.waits_for, Some(AdmissionClass::RepeatedRenewal));
}

#[tokio::test(start_paused = true)]
async fn the_last_confirmed_renewal_is_known() {
    let renewer = renewer();
    assert_eq!(renewer.last_renewal(), None);
    renewer.note_renewal();
    assert_eq!(renewer.last_renewal(), Some(Instant::now()));
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_begins_during_a_shutdown_is_lost_at_once() {
    let renewer = renewer();
    renewer.close();
    assert!(renewer.hold(lease("n", &Options::default())).lease().is_lost());
}
