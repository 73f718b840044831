use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;

use super::LockSet;
use crate::context::{LockContext, View};
use crate::engine::Engine;
use crate::lease::Lease;
use crate::name::RenderedName;
use crate::options::OnBusy;
use crate::run::inner_call_slot;
use crate::{FencingToken, LockError, task};

/// What a call of a set joins, and what it has to acquire.
pub(super) struct Parts {
    /// The enclosing calls that hold names of the set, each once, in one order for all callers.
    pub(super) outer: Vec<LockContext>,
    /// For each name the lease that is joined.
    joined: Vec<Option<Arc<Lease>>>,
    /// The other names.
    pub(super) rest: Vec<RenderedName>,
}

impl Parts {
    pub(super) fn of(engine: &Arc<Engine>, names: &[RenderedName]) -> Self {
        let (mut outer, mut joined, mut rest) = (Vec::new(), Vec::with_capacity(names.len()), Vec::new());
        for name in names {
            let (context, lease) = LockContext::enclosing(engine, name.text()).unzip();
            if context.is_none() {
                rest.push(name.clone());
            }
            outer.extend(context);
            joined.push(lease);
        }
        outer.sort_unstable_by_key(LockContext::level_id);
        outer.dedup_by_key(|outer| outer.level_id());
        Self { outer, joined, rest }
    }

    fn leases(&self) -> impl Iterator<Item = &Arc<Lease>> {
        self.joined.iter().flatten()
    }

    pub(super) fn ensure_held(&self) -> Result<(), LockError> {
        self.leases().try_for_each(|lease| lease.ensure_held())
    }

    pub(super) fn lost_error(&self) -> LockError {
        let lost = self.leases().find(|lease| lease.is_over());
        match lost.or_else(|| self.leases().next()) {
            Some(lease) => lease.lost_error(),
            None => unreachable!("this is asked only if a hold is joined"),
        }
    }

    /// Resolves when one of the joined holds is over.
    pub(super) async fn until_lost(&self) {
        task::any(self.leases().map(|lease| Box::pin(lease.until_over()))).await;
    }

    /// The inner-call slots of all enclosing calls: calls that join one of them run one at a time, whichever of its names they need.
    pub(super) async fn inner_call_slots(
        &self,
        on_busy: OnBusy,
    ) -> Result<Vec<OwnedSemaphorePermit>, LockError> {
        self.ensure_held()?;
        let mut slots = Vec::with_capacity(self.outer.len());
        for outer in &self.outer {
            let slot = inner_call_slot(outer, on_busy, self.until_lost()).await;
            slots.push(slot.ok_or_else(|| self.lost_error())??);
        }
        // A hold may have ended during the wait for another inner call.
        self.ensure_held()?;
        Ok(slots)
    }

    /// The context of a call that has joined holds, with the lease of the other names if there are any.
    pub(super) fn context(&self, set: &LockSet, own: Option<&Arc<Lease>>) -> LockContext {
        let mut leases: Vec<Arc<Lease>> = Vec::new();
        let mut tokens: Vec<(Arc<str>, FencingToken)> = Vec::new();
        for (name, joined) in set.names.iter().zip(&self.joined) {
            let Some(lease) = joined.as_ref().or(own) else {
                continue;
            };
            let token = lease.token_of(name.text()).unwrap_or(lease.token());
            tokens.push((Arc::clone(name.text()), token));
            if !leases.iter().any(|known| Arc::ptr_eq(known, lease)) {
                leases.push(Arc::clone(lease));
            }
        }
        let view = View {
            tokens,
            title: set.title,
        };
        let first = leases.remove(0);
        LockContext::of_view(first, leases, view, &set.engine, set.template())
    }
}
