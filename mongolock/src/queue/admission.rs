use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The number of acquire requests of waiting calls that may be in flight in a provider. Each takes some 36 KB in the
/// driver until its reply, so that thousands of calls that begin to wait at once would take hundreds of megabytes. The
/// number is so large that it does not limit the throughput: the driver has ten connections by default.
const MAX_ADMITTED: usize = 128;

/// Admits the acquire requests of the calls of a provider that wait for their locks, first come, first served.
///
/// A single try is not admitted: it has little time, and a caller that sends many of them at once limits them itself.
pub(crate) struct Admissions(Arc<Semaphore>);

/// The permit of one acquire request, kept until its reply arrives or is overdue: an overdue request counts among the
/// [overdue ones](super::OverdueRequests) instead, and must not keep requests for other names waiting.
pub(crate) struct Admission {
    _permit: OwnedSemaphorePermit,
}

impl Admissions {
    pub(super) fn new() -> Self {
        Self(Arc::new(Semaphore::new(MAX_ADMITTED)))
    }

    /// The permit for a request that is sent at once; `None` while as many are in flight as may be, or others wait.
    pub(crate) fn try_admit(&self) -> Option<Admission> {
        let permit = Arc::clone(&self.0).try_acquire_owned().ok()?;
        Some(Admission { _permit: permit })
    }

    /// Waits for the permit of one request. Cancel safe: a dropped wait gives up its position in the order.
    pub(crate) async fn admit(&self) -> Admission {
        match Arc::clone(&self.0).acquire_owned().await {
            Ok(permit) => Admission { _permit: permit },
            Err(_) => unreachable!("the semaphore is never closed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::is_pending;

    #[tokio::test]
    async fn as_many_as_allowed_are_admitted_in_the_order_of_their_arrival() {
        let admissions = Admissions::new();
        let mut admitted: Vec<Admission> = (0..MAX_ADMITTED)
            .map(|_| admissions.try_admit().expect("there is room"))
            .collect();
        assert!(admissions.try_admit().is_none());
        let (mut first, mut second) = (Box::pin(admissions.admit()), Box::pin(admissions.admit()));
        assert!(is_pending(first.as_mut()).await && is_pending(second.as_mut()).await);
        admitted.pop();
        assert!(admissions.try_admit().is_none(), "it is for the first that waits");
        assert!(is_pending(second.as_mut()).await);
        let first = first.await;
        assert!(is_pending(second.as_mut()).await);
        drop(first);
        second.await;
    }
}
