use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The number of acquire requests of waiting calls that may be in flight in a provider. Each takes some 36 KB in the
/// driver until its reply, so that thousands of calls that begin to wait at once would take hundreds of megabytes. The
/// number is so large that it does not limit the throughput: the driver has ten connections by default.
const MAX_ADMITTED: usize = 128;

/// The same for the requests of calls that have found their locks held before: a call that was woken after minutes does
/// not wait behind thousands that have just begun.
const MAX_WOKEN: usize = 32;

/// Among which requests a request is admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AdmissionClass {
    /// The first requests of calls.
    First,
    /// The requests of calls that have found their locks held before.
    Woken,
}

/// Admits the acquire requests of the calls of a provider that wait for their locks, first come, first served.
///
/// A single try is not admitted: it has little time, and a caller that sends many of them at once limits them itself.
pub(crate) struct Admissions {
    first: Arc<Semaphore>,
    woken: Arc<Semaphore>,
}

/// The permit of one acquire request, kept until its reply arrives or is overdue: an overdue request counts among the
/// [overdue ones](super::OverdueRequests) instead, and must not keep requests for other names waiting.
pub(crate) struct Admission {
    _permit: OwnedSemaphorePermit,
}

impl Admissions {
    pub(super) fn new() -> Self {
        Self {
            first: Arc::new(Semaphore::new(MAX_ADMITTED)),
            woken: Arc::new(Semaphore::new(MAX_WOKEN)),
        }
    }

    /// The permit for the first request of a call if it can be sent at once; `None` while as many are in flight as may be,
    /// or others wait.
    pub(crate) fn try_admit(&self) -> Option<Admission> {
        let permit = Arc::clone(&self.first).try_acquire_owned().ok()?;
        Some(Admission { _permit: permit })
    }

    /// Waits for the permit of one request. Cancel safe: a dropped wait gives up its position in the order.
    pub(crate) async fn admit(&self, class: AdmissionClass) -> Admission {
        let permits = match class {
            AdmissionClass::First => &self.first,
            AdmissionClass::Woken => &self.woken,
        };
        match Arc::clone(permits).acquire_owned().await {
            Ok(permit) => Admission { _permit: permit },
            Err(_) => unreachable!("the semaphores are never closed"),
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
        drop(admissions.admit(AdmissionClass::Woken).await);
        let (mut first, mut second) = (
            Box::pin(admissions.admit(AdmissionClass::First)),
            Box::pin(admissions.admit(AdmissionClass::First)),
        );
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
