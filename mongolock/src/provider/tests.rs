use super::*;
use crate::task::is_pending;

#[test]
fn a_provider_is_made_without_a_runtime() {
    assert_eq!(LockProvider::in_memory().lock(7).name(), "7");
}

/// The background task ends although the shutdown is not awaited and a clone of the provider still exists.
#[tokio::test(start_paused = true)]
async fn a_dropped_shutdown_is_one() {
    let provider = LockProvider::in_memory();
    let guard = provider.lock("held").await.unwrap();
    let mut shutdown = Box::pin(provider.shutdown_after(Duration::from_secs(1)));
    assert!(is_pending(shutdown.as_mut()).await);
    drop(shutdown);
    assert!(guard.is_lost());
    let metrics = tokio::runtime::Handle::current().metrics();
    let ended = async {
        while metrics.num_alive_tasks() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let limit = Duration::from_secs(60);
    tokio::time::timeout(limit, ended).await.expect("its tasks end");
}
