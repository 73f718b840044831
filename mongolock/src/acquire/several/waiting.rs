//! The wait of a call for several locks until one of them looks free, while the call holds nothing.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::AcquireSeveral;
use crate::acquire::asking::ends_call;
use crate::acquire::pacing::Pacing;
use crate::acquire::query;
use crate::engine::Engine;
use crate::lease::Entry;
use crate::line::Standing;
use crate::queue::Holder;
use crate::store::Looked;
use crate::timing::{LINE_POLL, LOOK_LIMIT};
use crate::{LockError, trace};

impl AcquireSeveral<'_> {
    /// Waits in the queue of one name until its lock looks free, or until it is time for a round without a look. It looks and
    /// does not claim: a claim of this name alone would keep the lock from others, and a round at each look would write the
    /// free locks again and again.
    pub(super) async fn wait_until_free(
        &self,
        entry: &Arc<Entry>,
        pacing: &mut Pacing<'_>,
        lock_id: &Arc<str>,
        mut holder: Holder,
    ) -> Result<(), LockError> {
        let name = entry.name();
        loop {
            let remaining = holder.remaining(Instant::now());
            let pause = pacing.after_held(lock_id, remaining);
            trace::waiting(name, remaining, pause);
            pacing.pause(pause).await;
            if self.asks_in_its_place(name) {
                return Ok(());
            }
            loop {
                match self.look(name, entry).await {
                    Ok(Some(other)) => {
                        holder = other;
                        break;
                    }
                    Ok(None) => {
                        // Two calls that have each taken a part must not come again at the same time.
                        sleep(Duration::from_micros(fastrand::u64(0..2_000))).await;
                        return Ok(());
                    }
                    Err(error) if ends_call(&error, false, self.call.refused_for(entry)) => {
                        return Err(error);
                    }
                    Err(error) => {
                        let pause = pacing.after_error(Some(&error));
                        self.failed(std::slice::from_ref(entry), error, pause);
                        pacing.pause(pause).await;
                    }
                }
            }
        }
    }

    /// Whether the call sends its round without a look: it gets no events of releases and stands first in line, and its round would
    /// come too late after a look. Not while one holder keeps the lock for long, because each round takes the other locks
    /// for a moment.
    fn asks_in_its_place(&self, name: &Arc<str>) -> bool {
        let Engine { lines, notifier, .. } = &**self.call.engine;
        let is_near = |standing: Standing| standing.ahead == 0 && standing.polling_pause <= LINE_POLL;
        lines.standing(name).is_some_and(is_near) && !notifier.hears_of(name)
    }

    /// The holder of a lock; `None` if the lock looks free, or is held by a claim that this process has given up.
    async fn look(&self, name: &Arc<str>, entry: &Arc<Entry>) -> Result<Option<Holder>, LockError> {
        let margin = self.call.engine.config.options.takeover_margin;
        let (store, names) = (Arc::clone(&self.call.engine.store), [Arc::clone(name)]);
        let looking = || async move { store.look(Looked::Names(&names), margin, LOOK_LIMIT).await };
        let mut running = query::start(&self.call.engine.store, entry, looking).await?;
        let is_given_up = |id: &Arc<str>| self.call.frees(id);
        let lease = running.remove(name);
        let Some(lease) = lease.filter(|lease| !lease.holder.as_ref().is_some_and(is_given_up)) else {
            entry.front().set_no_holder();
            return Ok(None);
        };
        if let Some(id) = &lease.holder {
            self.call.engine.lines.held_by(name, id);
        }
        let holder = Holder::of_lease(Instant::now(), &lease);
        entry.front().set_holder(holder.clone());
        Ok(Some(holder))
    }
}
