//! How many commands each kind of hold costs.

use futures_util::future::try_join_all;
use mongolock_tests::names;

use super::detached::HOUR;
use super::kind::CALLS;
use crate::fixture::Fixture;

/// Each step costs one command, also with a detached lease; a step of a set that asks for its locks also a query. A loser
/// sends nothing more.
#[tokio::test]
async fn each_change_of_hands_is_one_command() {
    let fixture = Fixture::mongodb().await;
    let (provider, commands) = fixture.recorded_patient().await;
    let rival = fixture.rival();
    for kind in CALLS {
        let (target, expected) = (kind.of(&provider, None), kind.expects());
        let sent = |step: &[&str]| assert_eq!(names(&commands.take()), step, "{kind:?}");
        let hold = target.acquire().await.unwrap();
        sent(expected.asks);
        let handle = hold.detach(HOUR).await.unwrap();
        sent(expected.ends);
        target.extend(&handle, HOUR).await.unwrap();
        sent(expected.asks);
        let hold = target.resume(&handle).await.unwrap();
        sent(expected.asks);
        let handle = hold.detach(HOUR).await.unwrap();
        sent(expected.ends);
        assert!(target.release(&handle).await.unwrap());
        sent(expected.ends);
        assert!(target.resume(&handle).await.is_err());
        sent(expected.asks);
        let hold = target.acquire().await.unwrap();
        sent(expected.asks);
        hold.release().await.unwrap();
        sent(expected.ends);
        let busy = kind.of(&rival, None).acquire().await.unwrap();
        assert!(target.try_acquire().await.unwrap().is_none());
        sent(expected.asks);
        busy.release().await.unwrap();
    }
}

/// The number of commands does not depend on the number of permits.
#[tokio::test]
async fn a_free_permit_costs_one_command_and_a_full_semaphore_two() {
    let fixture = Fixture::mongodb().await;
    let (provider, commands) = fixture.recorded_patient().await;
    let (free, full) = (provider.semaphore("free", 100), provider.semaphore("full", 3));
    free.acquire().await.unwrap().release().await.unwrap();
    assert_eq!(names(&commands.take()), ["findAndModify"; 2]);
    let rival = fixture.rival().semaphore("full", 3);
    let held = try_join_all((0..3).map(|_| rival.acquire())).await.unwrap();
    assert!(full.try_acquire().await.unwrap().is_none());
    assert_eq!(names(&commands.take()), ["findAndModify", "find"]);
    drop(held);
}
