//! How long a provider leaves a lock to others, and which names it looks at.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_request_that_found_the_lock_held_tells_the_time_that_the_provider_needs() {
    let [a] = Provider::several();
    a.lines.found_held("n", None, Duration::from_millis(7));
    a.enter("n", &Queue::new()).await;
    assert_eq!(
        a.documents("n").await[0].time_slot,
        LINE_MARGIN + Duration::from_millis(14)
    );
}

#[tokio::test(start_paused = true)]
async fn a_document_has_the_time_that_its_provider_needs() {
    let [a] = Provider::several();
    let queue = Queue::new();
    a.enter("n", &queue).await;
    assert_eq!(a.documents("n").await[0].time_slot, LINE_MARGIN);
    let far = Duration::from_millis(40);
    a.acquire_within("n", &queue, far).await;
    a.acquire_within("n", &queue, far).await;
    assert_eq!(a.documents("n").await[0].time_slot, LINE_MARGIN + far * 2);
    // A request counts as the longest time that the others leave to all, and the mean follows slowly.
    a.acquire_within("n", &queue, far * 5).await;
    let mean = (far * 7 + LINE_SLOTS_MAX) / 8;
    // The document has whole milliseconds.
    let time_slot = a.documents("n").await[0].time_slot;
    assert_eq!(time_slot.as_millis(), (LINE_MARGIN + mean * 2).as_millis());

    let polling = OwnAcquisition {
        request: Duration::ZERO,
        waiting_since: None,
        user: queue.user(),
        has_stream: false,
    };
    a.lines.acquired(&Arc::from("n"), || polling);
    sleep(SETTLES).await;
    assert!(a.documents("n").await[0].time_slot >= LINE_SLOT_POLLING);
}

#[tokio::test(start_paused = true)]
async fn a_releaser_leaves_the_lock_to_others_until_one_of_them_has_it() {
    let [a, b] = Provider::several();
    let queue = Queue::new();
    a.enter("n", &queue).await;
    a.acquire("n", &queue).await;
    a.lines.released("n");
    assert_eq!(a.yields_until(), None, "no other waiter is known");
    assert!(matches!(a.lines.rivals("n"), Rivals::None));

    b.enter("n", &queue).await;
    a.acquire("n", &queue).await;
    assert!(matches!(
        a.lines.rivals("n"),
        Rivals::Wait { has_stream: true, .. }
    ));
    a.lines.released("n");
    assert_eq!(a.yields_until(), Some(Instant::now() + YIELD_MAX));
    // Its own claims are no acquisition by another one.
    a.hears_of("n", &a);
    assert_eq!(a.yields_until(), Some(Instant::now() + YIELD_MAX));
    a.hears_of("n", &b);
    assert_eq!(a.yields_until(), None);
    // The event of the next acquisition may arrive before the reply to the release.
    a.acquire("n", &queue).await;
    a.hears_of("n", &b);
    a.lines.released("n");
    assert_eq!(a.yields_until(), None);
}

#[tokio::test(start_paused = true)]
async fn a_yield_ends_by_itself() {
    let (queue, claim) = (Queue::new(), claim_without_line(1));
    for (has_stream, longest) in [(true, YIELD_MAX), (false, YIELD_MAX_POLLING)] {
        let mut line = behind(&[], &queue, has_stream);
        line.held_by(Instant::now(), &claim);
        line.acquired(OwnAcquisition {
            request: Duration::ZERO,
            waiting_since: None,
            user: queue.user(),
            has_stream,
        });
        sleep(LINE_REMEMBER.saturating_sub(SETTLES)).await;
        line.released(Instant::now());
        assert_eq!(
            line.standing(Instant::now()).yields_until,
            Some(Instant::now() + longest)
        );
        sleep(LINE_REMEMBER_WITHOUT_LINE).await;
        assert_eq!(line.standing(Instant::now()).yields_until, None);
        line.released(Instant::now());
        assert_eq!(
            line.standing(Instant::now()).yields_until,
            None,
            "no such claim came again"
        );
    }
}

/// An event, a reply and a look may name the same claim: it is one acquisition.
#[tokio::test(start_paused = true)]
async fn a_claim_that_is_named_often_is_one_acquisition() {
    let queue = Queue::new();
    let mut line = behind(&["expired"], &queue, true);
    for number in 0..6 {
        assert_eq!(line.standing(Instant::now()).ahead, 1, "acquisition {number}");
        for _ in 0..10 {
            line.held_by(Instant::now(), &claim_without_line(number));
        }
    }
    assert_eq!(line.standing(Instant::now()).ahead, 0);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_polls_pauses_by_its_place_and_by_the_age_of_the_hold() {
    let queue = Queue::new();
    let first = behind(&[], &queue, false);
    assert_eq!(first.standing(Instant::now()).polling_pause, LINE_POLL);
    let mut line = behind(&["a", "b", "c"], &queue, false);
    assert_eq!(line.standing(Instant::now()).polling_pause, LINE_POLL * 3);
    line.held_by(Instant::now(), &claim_without_line(1));
    assert_eq!(
        line.standing(Instant::now()).polling_pause,
        LINE_POLL * 3,
        "the hold has just begun"
    );
    sleep(Duration::from_secs(8)).await;
    line.held_by(Instant::now(), &claim_without_line(1));
    assert_eq!(
        line.standing(Instant::now()).polling_pause,
        Duration::from_secs(8) / LINE_POLL_PART
    );
    line.held_by(Instant::now(), &claim_without_line(2));
    assert_eq!(line.standing(Instant::now()).polling_pause, LINE_POLL * 3);
}

/// After a failover to a clock that is behind, the end of the line is in the future.
#[tokio::test(start_paused = true)]
async fn the_last_place_never_goes_back() {
    let queue = Queue::new();
    let mut line = Line::new(queue.user(), true);
    let last_of = |line: &mut Line| {
        line.want_move(None);
        let Some(Write::Place(PlaceRequest { last, .. })) = line.take_write() else {
            panic!("a move is due");
        };
        last.map(DateTime::timestamp_millis)
    };
    assert_eq!(last_of(&mut line), None);
    for (places, expected) in [
        (vec![5, 60_000], 60_000),
        (vec![7], 60_000),
        (vec![], 60_000),
        (vec![9, i64::MAX], i64::MAX),
        (vec![i64::MIN], i64::MAX),
    ] {
        let places: Vec<Waiter> = places
            .into_iter()
            .map(|at| waiter("a", at, LINE_MARGIN))
            .collect();
        line.read(&places, "own");
        assert_eq!(last_of(&mut line), Some(expected));
    }
    assert!(!line.wants_write());
}

/// A process whose callers never wait would never hear of the waiters of others.
/// The times between the looks at the line of a name that is acquired again and again for this time.
async fn looks_within(busy: &Provider, queue: &Queue, time: Duration) -> Vec<Duration> {
    let (mut looks, mut last, begun) = (Vec::new(), Instant::now(), Instant::now());
    while begun.elapsed() < time {
        let acquired = OwnAcquisition {
            request: Duration::ZERO,
            waiting_since: None,
            user: queue.user(),
            has_stream: false,
        };
        if busy.lines.acquired(&Arc::from("n"), || acquired) {
            looks.push(last.elapsed());
            last = Instant::now();
            assert!(
                busy.lines.read_reacquired().await.is_empty(),
                "no other provider waits"
            );
        }
        busy.lines.released("n");
        sleep(LINE_REACQUIRED / 10).await;
    }
    looks
}

#[tokio::test(start_paused = true)]
async fn a_name_that_is_taken_again_at_once_is_looked_at_soon_and_then_once_a_second() {
    let [busy, waiting] = Provider::several();
    let queue = Queue::new();
    assert!(looks_within(&busy, &queue, Duration::ZERO).await.is_empty());
    let expected = [0, 1, 2, 4, 8, 10, 10].map(|tenths| LINE_REACQUIRED * tenths);
    for begins_after in [LINE_REACQUIRED * 2, LINE_REACQUIRED_EVERY * 4] {
        sleep(begins_after).await;
        let looks = looks_within(&busy, &queue, LINE_REACQUIRED_EVERY * 4).await;
        assert_eq!(looks.len(), expected.len());
        for (looked, expected) in looks.iter().zip(expected) {
            let late = looked.saturating_sub(expected);
            assert!(late <= LINE_REACQUIRED / 4, "{looks:?}");
        }
    }
    waiting.enter("n", &queue).await;
    busy.lines.note_reacquired(&Arc::from("n"));
    assert_eq!(busy.lines.read_reacquired().await, [Arc::from("n")]);
}
