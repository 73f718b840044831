use std::sync::Arc;

use super::LockSet;
use crate::context::{LockContext, View};
use crate::engine::{Engine, Lease};
use crate::name::RenderedName;
use crate::{FencingToken, LockError};

/// The holds that a call of a set joins, and the names that it has to acquire.
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

    /// The leases that are joined.
    pub(super) fn leases(&self) -> impl Iterator<Item = &Arc<Lease>> + Clone {
        self.joined.iter().flatten()
    }

    pub(super) fn ensure_held(&self) -> Result<(), LockError> {
        self.leases().try_for_each(|lease| lease.ensure_held())
    }

    /// The context of a call that has joined holds, with the lease of the other names if there are any.
    pub(super) fn context(&self, set: &LockSet, own: Option<&Arc<Lease>>) -> LockContext {
        let mut leases: Vec<Arc<Lease>> = Vec::new();
        let mut tokens: Vec<(Arc<str>, FencingToken)> = Vec::new();
        for (name, joined) in set.kind.names.iter().zip(&self.joined) {
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
            title: set.kind.title,
        };
        let first = leases.remove(0);
        LockContext::of_view(
            first,
            leases,
            view,
            &set.engine,
            set.kind.names[set.kind.title].template(),
        )
    }
}
