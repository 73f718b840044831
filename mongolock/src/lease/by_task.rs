use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use tokio::task::{Id, try_id};

use super::Lease;
use crate::sync::lock;

/// The leases of a provider by the tasks that have received them: a call finds those of its task, however many others there are.
#[derive(Default)]
pub(crate) struct LeasesByTask(Mutex<HashMap<Id, Vec<Weak<Lease>>>>);

/// A lease that was received by a task; dropped with the lease.
pub(super) struct OfTask {
    task: Id,
    /// The address of the lease, which is unique until this is dropped.
    lease: usize,
    all: Arc<LeasesByTask>,
}

impl LeasesByTask {
    /// The leases that the present task has received and that are held; none outside a task.
    pub(crate) fn of_present(&self) -> Vec<Arc<Lease>> {
        let Some(task) = try_id() else {
            return Vec::new();
        };
        let weak = lock(&self.0).get(&task).cloned().unwrap_or_default();
        // A lease may be dropped here, which takes the mutex.
        let leases = weak.iter().filter_map(Weak::upgrade);
        leases.filter(|lease| !lease.is_over()).collect()
    }

    /// Notes that the present task has received this lease, which it may pass on.
    pub(super) fn add(self: &Arc<Self>, lease: &Arc<Lease>) {
        let Some(task) = try_id() else {
            return;
        };
        lease.task.get_or_init(|| {
            let leases = &mut *lock(&self.0);
            // Most tasks hold one lock.
            let leases = leases.entry(task).or_insert_with(|| Vec::with_capacity(1));
            leases.push(Arc::downgrade(lease));
            OfTask {
                task,
                lease: Arc::as_ptr(lease).addr(),
                all: Arc::clone(self),
            }
        });
    }
}

impl Drop for OfTask {
    fn drop(&mut self) {
        let all = &mut *lock(&self.all.0);
        let Some(leases) = all.get_mut(&self.task) else {
            return;
        };
        if let Some(at) = leases.iter().position(|weak| weak.as_ptr().addr() == self.lease) {
            drop(leases.swap_remove(at));
        }
        if leases.is_empty() {
            all.remove(&self.task);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LossReason;
    use crate::lease::tests::lease;
    use crate::options::Options;

    /// A lease that this task receives.
    fn received(all: &Arc<LeasesByTask>, name: &str) -> Arc<Lease> {
        let lease = Arc::new(lease(name, &Options::default()));
        all.add(&lease);
        lease
    }

    fn names(all: &LeasesByTask) -> Vec<String> {
        let leases = all.of_present();
        leases.iter().map(|lease| lease.name().to_owned()).collect()
    }

    #[tokio::test]
    async fn a_task_finds_what_it_has_received_and_still_holds() {
        let all = Arc::new(LeasesByTask::default());
        let elsewhere = Arc::clone(&all);
        let other = tokio::spawn(async move { received(&elsewhere, "other") });
        let other = other.await.unwrap();
        let own = Arc::clone(&all);
        let task = tokio::spawn(async move {
            let [first, second, third] = ["a", "b", "c"].map(|name| received(&own, name));
            assert_eq!(names(&own), ["a", "b", "c"]);
            drop(first);
            assert_eq!(names(&own), ["c", "b"]);
            second.lose(LossReason::Gone);
            assert_eq!(names(&own), ["c"]);
            drop(third);
            assert_eq!(names(&own), [""; 0]);
        });
        task.await.unwrap();
        assert_eq!(names(&all), [""; 0], "outside a task");
        drop(other);
        assert!(lock(&all.0).is_empty());
    }
}
