use super::AdmissionClass::{Copy, First, Line, Release, Renewal, Repeated, RepeatedRenewal, Woken};
use super::*;
use crate::task::is_pending;

fn all_of(admissions: &Arc<Admissions>, class: AdmissionClass) -> Vec<Admission> {
    std::iter::from_fn(|| admissions.try_admit(class, None)).collect()
}

#[tokio::test]
async fn two_connections_of_the_pool_stay_free() {
    for (pool, size) in [(1, 1), (2, 1), (3, 1), (10, 8), (1000, 128)] {
        let admissions = Admissions::new(pool);
        let mut admitted = Vec::new();
        for class in BEFORE_CLAIMS.into_iter().chain(IN_TURNS) {
            admitted.extend(all_of(&admissions, class));
        }
        assert_eq!((admitted.len(), admissions.in_flight()), (size, size), "{pool}");
        drop(admitted);
        assert_eq!(admissions.in_flight(), 0);
    }
}

/// However many commands of the others are in flight and wait.
#[tokio::test]
async fn every_group_has_a_place_of_its_own() {
    for crowd in [First, Release] {
        let admissions = Admissions::new(DEFAULT_POOL);
        let crowd_in_flight = all_of(&admissions, crowd);
        assert_eq!(crowd_in_flight.len(), 5);
        let mut waiting = Box::pin(admissions.admit(crowd, None));
        assert!(is_pending(waiting.as_mut()).await);
        let others = [Renewal, Release, Copy, First]
            .into_iter()
            .filter(|class| *class != crowd);
        let admitted: Vec<_> = others.map(|class| admissions.try_admit(class, None)).collect();
        assert!(admitted.iter().all(Option::is_some), "{crowd:?}");
        assert!(
            admissions.try_admit(Renewal, None).is_none(),
            "the pool is used up"
        );
    }
}

/// The commands on the documents of waiters are hints, and may be slow.
#[tokio::test]
async fn releases_do_not_wait_for_the_documents_of_waiters() {
    let admissions = Admissions::new(DEFAULT_POOL);
    let of_lines = all_of(&admissions, Line);
    let mut waiting = Box::pin(admissions.admit(Line, None));
    assert!(is_pending(waiting.as_mut()).await);
    assert_eq!((of_lines.len(), all_of(&admissions, Release).len()), (2, 3));
}

/// What may wait for a blocked document leaves places of its group to others.
#[tokio::test]
async fn repeated_commands_do_not_use_up_their_group() {
    for (repeated, first) in [(Repeated, First), (RepeatedRenewal, Renewal)] {
        let admissions = Admissions::new(DEFAULT_POOL);
        let admitted = all_of(&admissions, repeated);
        assert_eq!(admitted.len(), 3);
        assert!(admissions.try_admit(first, None).is_some());
    }
}

/// Other calls go on, and a call whose last request has failed goes on beside them.
#[tokio::test]
async fn repeated_commands_have_their_turns() {
    let admissions = Admissions::new(DEFAULT_POOL);
    let mut in_use = all_of(&admissions, First);
    let mut repeated = Box::pin(admissions.admit(Repeated, None));
    let mut others: Vec<_> = (0..2).map(|_| Box::pin(admissions.admit(First, None))).collect();
    assert!(is_pending(repeated.as_mut()).await);
    for other in &mut others {
        assert!(is_pending(other.as_mut()).await);
    }
    in_use.truncate(4);
    // There is one place, and each gives it back at once.
    assert!(!is_pending(others[0].as_mut()).await);
    assert!(!is_pending(repeated.as_mut()).await);
    assert!(!is_pending(others[1].as_mut()).await);
}

#[tokio::test]
async fn renewals_come_first_then_releases_and_calls_in_turns() {
    let admissions = Admissions::new(3);
    let in_use = admissions.try_admit(First, None);
    let classes = [First, First, Woken, Release, Renewal];
    let mut waiting: Vec<_> = classes
        .map(|class| Box::pin(admissions.admit(class, None)))
        .into();
    for wait in &mut waiting {
        assert!(is_pending(wait.as_mut()).await);
    }
    drop(in_use);
    // There is one place, and each gives it back at once.
    for next in [4, 3, 0, 2, 1] {
        assert!(!is_pending(waiting[next].as_mut()).await, "{next}");
    }
}

/// Requests of lanes keep no place for long, so that they may use those of copies, which can wait for a while; a renewal cannot.
#[tokio::test]
async fn requests_of_lanes_use_two_places_more_and_renewals_and_releases_keep_theirs() {
    const LANE: Option<Lane> = Some(Lane(1));
    let admissions = Admissions::new(DEFAULT_POOL);
    let is_alone = |admission: Admission| admission.into_member().is_err();
    let mut claims: Vec<_> = std::iter::from_fn(|| admissions.try_admit(First, LANE)).collect();
    assert_eq!(claims.len(), 7);
    let (release, renewal) = (
        admissions.try_admit(Release, LANE),
        admissions.try_admit(Renewal, None),
    );
    assert!(!is_alone(release.unwrap()) && is_alone(renewal.unwrap()));
    let last = claims.pop().unwrap();
    assert!(!is_alone(last) && !is_alone(claims.pop().unwrap()));
    assert!(claims.into_iter().all(is_alone));
}

/// Otherwise they would never leave a place to what has none of its own.
#[tokio::test]
async fn requests_of_lanes_use_no_places_more_while_others_wait() {
    const LANE: Option<Lane> = Some(Lane(1));
    for other in [Copy, First, Line] {
        let admissions = Admissions::new(DEFAULT_POOL);
        let mut claims: Vec<_> = std::iter::from_fn(|| admissions.try_admit(Woken, LANE)).collect();
        let mut waiting = Box::pin(admissions.admit(other, None));
        assert!(is_pending(waiting.as_mut()).await);
        while is_pending(waiting.as_mut()).await {
            assert!(admissions.try_admit(Woken, LANE).is_none());
            drop(claims.pop());
        }
        assert!((4..=6).contains(&claims.len()), "{other:?}: {}", claims.len());
    }
}

#[tokio::test]
async fn a_dropped_wait_gives_its_position_and_its_place_up() {
    let admissions = Admissions::new(3);
    let in_use = admissions.try_admit(First, None);
    let (mut first, mut second) = (
        Box::pin(admissions.admit(First, None)),
        Box::pin(admissions.admit(First, None)),
    );
    assert!(is_pending(first.as_mut()).await && is_pending(second.as_mut()).await);
    assert!(admissions.try_admit(First, None).is_none(), "others wait");
    drop(in_use);
    // The first one was admitted, and did not notice it.
    drop(first);
    drop(second.await);
    assert_eq!(admissions.in_flight(), 0);
}

#[tokio::test]
async fn the_last_places_have_a_short_limit() {
    let admissions = Admissions::new(DEFAULT_POOL);
    let crowded: Vec<bool> = all_of(&admissions, First)
        .iter()
        .map(|one| one.is_crowded)
        .collect();
    assert_eq!(crowded, [false, false, true, true, true]);
    let admissions = Admissions::new(DEFAULT_POOL);
    assert!(all_of(&admissions, Repeated).iter().all(|one| !one.is_crowded));
    assert!(all_of(&admissions, Copy).iter().all(|one| one.is_crowded));
}
