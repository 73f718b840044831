use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;

use super::{Lock, LockKind, Target};
use crate::LockError;
use crate::context::{LockContext, View};
use crate::engine::{Engine, Hold, Lease};
use crate::name::RenderedName;
use crate::options::{OnBusy, Options};
use crate::run::Acquired;
use crate::timing::SHORT_CALL;

/// What a call of a set joins, and what it has to acquire.
struct Parts {
    /// The enclosing calls that hold names of the set, each once, in one order for all callers.
    outer: Vec<LockContext>,
    /// For each name the lease that is joined.
    joined: Vec<Option<Arc<Lease>>>,
    /// The other names.
    rest: Vec<RenderedName>,
}

impl Parts {
    /// `None` if the call joins nothing.
    fn of(engine: &Arc<Engine>, target: &Target) -> Option<Self> {
        LockContext::current()?;
        let (mut outer, mut joined, mut rest) = (Vec::new(), Vec::new(), Vec::new());
        for name in &*target.names {
            let found = LockContext::enclosing(engine, |lease| target.is_hold(lease, &name.text));
            let (context, lease) = found.unzip();
            if context.is_none() {
                rest.push(name.clone());
            }
            outer.extend(context);
            joined.push(lease);
        }
        outer.sort_unstable_by_key(LockContext::level_id);
        outer.dedup_by_key(|outer| outer.level_id());
        (!outer.is_empty()).then_some(Self { outer, joined, rest })
    }

    /// The leases that are joined.
    fn leases(&self) -> impl Iterator<Item = &Arc<Lease>> + Clone {
        self.joined.iter().flatten()
    }

    fn ensure_held(&self) -> Result<(), LockError> {
        self.leases().try_for_each(|lease| lease.ensure_held())
    }

    /// What the call waits for; `None` if one of the leases ends before.
    async fn unless_over<T>(&self, awaited: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            value = awaited => Some(value),
            () = Lease::until_one_over(self.leases()) => None,
        }
    }

    /// The inner turns of the enclosing calls: calls that join one of their leases run one at a time, whichever of its names they need.
    /// Without waiting, an occupied turn is an error.
    async fn turns(&self, on_busy: OnBusy) -> Result<Vec<OwnedSemaphorePermit>, LockError> {
        let mut turns = Vec::with_capacity(self.outer.len());
        for outer in &self.outer {
            let inner = outer.inner_calls();
            let turn = match on_busy {
                OnBusy::TryOnce => inner.try_acquire_owned().ok(),
                OnBusy::Wait => self.unless_over(inner.acquire_owned()).await.and_then(Result::ok),
            };
            // A hold may have ended during the wait for another inner call.
            self.ensure_held()?;
            turns.push(turn.ok_or_else(|| outer.busy_error())?);
        }
        Ok(turns)
    }

    /// The context of a call that has joined holds, with the lease of the other names if there are any.
    fn context(&self, target: &Target, own: Option<&Arc<Lease>>) -> LockContext {
        let of_names = self.joined.iter().filter_map(|joined| joined.as_ref().or(own));
        // A permit has an id of its own.
        let token = |(name, lease): (&RenderedName, &Arc<Lease>)| match lease.token_of(&name.text) {
            Some(token) => (Arc::clone(&name.text), token),
            None => (Arc::clone(&lease.key().name), lease.token()),
        };
        let view = View {
            tokens: target.names.iter().zip(of_names.clone()).map(token).collect(),
            title: target.title,
            template: target.names[target.title].template,
        };
        let mut leases: Vec<Arc<Lease>> = Vec::new();
        for lease in of_names {
            if !leases.iter().any(|known| Arc::ptr_eq(known, lease)) {
                leases.push(Arc::clone(lease));
            }
        }
        LockContext::new(leases.into_iter().collect(), view)
    }
}

impl<K: LockKind> Lock<K> {
    /// Acquires the locks for a body, and joins those that the caller already runs under. A hold that is joined is busy only while
    /// another inner call runs under it, and the options of this call do not apply to it.
    pub(crate) async fn hold(&self, on_busy: OnBusy) -> Result<Acquired, LockError> {
        let on_lost = self.options.on_lost;
        self.check()?;
        let Some(parts) = Parts::of(&self.engine, &self.target) else {
            let own = self.begin(on_busy)?.await?;
            let context = LockContext::of(own.lease());
            return Ok(Acquired::new(context, Some(own), Vec::new(), on_lost));
        };
        let turns = parts.turns(on_busy).await?;
        let mut own = None;
        if !parts.rest.is_empty() {
            let acquiring = self.of_rest(&parts.rest).begin(on_busy)?;
            own = parts.unless_over(acquiring).await.transpose()?;
            parts.ensure_held()?;
        }
        let context = parts.context(&self.target, own.as_ref().map(Hold::lease));
        Ok(Acquired::new(context, own, turns, on_lost))
    }

    /// The set of the names that are not joined. The caller holds others meanwhile, so that the wait has a limit.
    fn of_rest(&self, rest: &[RenderedName]) -> Self {
        let mut options = Options::clone(&self.options);
        let limit = options.acquire_timeout.unwrap_or(SHORT_CALL);
        options.acquire_timeout = Some(limit.min(SHORT_CALL));
        Self::new(&self.engine, Target::several(rest.to_vec())).with(Arc::new(options))
    }
}
