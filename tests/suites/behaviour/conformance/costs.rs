//! How many commands each kind of hold costs.

use futures_util::future::try_join_all;
use mongolock_tests::names;

use super::kind::HOLDS;
use crate::fixture::Fixture;

#[tokio::test]
async fn each_kind_costs_as_many_commands_as_its_table_says() {
    let fixture = Fixture::mongodb().await;
    let (provider, commands) = fixture.recorded_patient().await;
    let rival = fixture.rival();
    for kind in HOLDS {
        let (target, expected) = (kind.of(&provider, None), kind.expects());
        let hold = target.acquire().await.unwrap();
        assert_eq!(names(&commands.take()), expected.acquire, "{kind:?}");
        hold.release().await.unwrap();
        assert_eq!(names(&commands.take()), expected.release, "{kind:?}");
        let busy = kind.of(&rival, None).acquire().await.unwrap();
        assert!(target.try_acquire().await.unwrap().is_none());
        assert_eq!(names(&commands.take()), expected.busy, "{kind:?}");
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

/// The number of commands does not depend on the number of locks.
#[tokio::test]
async fn a_set_costs_three_commands() {
    let fixture = Fixture::mongodb().await;
    let (provider, commands) = fixture.recorded_patient().await;
    for count in [2, 10, 50] {
        let set = provider.lock_all((0..count).map(|number| format!("{count}:{number}")));
        set.acquire().await.unwrap().release().await.unwrap();
        assert_eq!(
            names(&commands.take()),
            ["update", "find", "update"],
            "{count} names"
        );
    }
}
