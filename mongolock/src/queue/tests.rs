use super::*;
use crate::task::is_pending;

fn join<H>(queues: &Arc<Queues<H>>, name: &str) -> Arc<Entry<H>> {
    queues.join(&Arc::from(name))
}

#[tokio::test]
async fn turns_come_in_order_and_leave_nothing_behind() {
    let queues = Queues::<()>::new();
    let first = join(&queues, "n").turn().await;
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut waiters = tokio::task::JoinSet::new();
    for index in 0..5 {
        let (queues, order) = (Arc::clone(&queues), Arc::clone(&order));
        waiters.spawn(async move {
            let _turn = join(&queues, "n").turn().await;
            lock(&order).push(index);
        });
        tokio::task::yield_now().await;
    }
    drop(first);
    while waiters.join_next().await.is_some() {}
    assert_eq!(*lock(&order), [0, 1, 2, 3, 4]);
    assert!(lock(&queues.names).is_empty());
}

#[tokio::test]
async fn a_cancelled_waiter_leaves_and_trying_never_waits() {
    let queues = Queues::<()>::new();
    let first = join(&queues, "n").try_turn().unwrap();
    assert!(join(&queues, "n").try_turn().is_none());
    assert!(join(&queues, "other").try_turn().is_some());
    let short = std::time::Duration::from_millis(1);
    assert!(
        tokio::time::timeout(short, join(&queues, "n").turn())
            .await
            .is_err()
    );
    drop(first);
    queues.until_idle().await;
    assert!(join(&queues, "n").try_turn().is_some());
}

/// A caller that gets a hold with its turn and does not want it passes both on.
#[tokio::test]
async fn passing_a_turn_on_passes_its_hold_on() {
    let queues = Queues::new();
    let front = join(&queues, "n");
    let hold = Arc::new(());
    let turn = front.try_turn().unwrap();
    turn.entry.handed_over.put(Arc::clone(&hold));
    turn.pass_on();
    assert_eq!(Arc::strong_count(&hold), 1, "no caller waits for it");

    let turn = front.try_turn().unwrap();
    turn.entry.handed_over.put(Arc::clone(&hold));
    let waiting = tokio::spawn(async move { front.turn().await.take_over().is_some() });
    tokio::task::yield_now().await;
    turn.pass_on();
    assert!(waiting.await.unwrap(), "the waiter has it");
}

#[tokio::test]
async fn a_turn_tells_which_set_the_next_caller_wants() {
    let queues = Queues::<()>::new();
    let entry = join(&queues, "a");
    let turn = entry.try_turn().unwrap();
    assert!(turn.next_set().is_none(), "no caller waits");
    let set: SetNames = ["a", "b"].map(Arc::from).into();
    let mut first = Box::pin(entry.turn_for(Some(Arc::clone(&set))));
    let mut second = Box::pin(entry.turn());
    assert!(is_pending(first.as_mut()).await && is_pending(second.as_mut()).await);
    assert_eq!(turn.next_set(), Some(set));
    drop(first);
    assert!(turn.next_set().is_none(), "the next one wants the name alone");
}

#[tokio::test]
async fn the_requests_in_flight_are_counted() {
    let queues = Queues::<()>::new();
    let entry = join(&queues, "n");
    assert!(!entry.has_requests());
    let own = entry.try_request_permit();
    assert!(own.is_some() && entry.has_requests());
    drop(own);
    assert!(!entry.has_requests());
}

/// The waiter is cancelled before or after the hold is handed over to it: the hold is released in both cases.
#[tokio::test]
async fn a_hold_that_no_waiter_takes_is_released() {
    let queues = Queues::new();
    let (front, behind) = (join(&queues, "n"), join(&queues, "n"));
    let is_left = || !front.handed_over.is_empty();
    let hold = Arc::new(());

    front.turn().await.hand_over(Arc::clone(&hold));
    assert!(!is_left());

    let turn = front.turn().await;
    let mut waiting = Box::pin(behind.turn());
    assert!(is_pending(waiting.as_mut()).await);
    turn.hand_over(Arc::clone(&hold));
    assert!(is_left(), "the waiter has not taken the hold yet");
    drop(waiting);
    assert!(!is_left());
    assert_eq!(Arc::strong_count(&hold), 1, "dropping a hold releases it");
}
