//! The chain of the calls around a task: each refers to the next enclosing one.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use tokio::sync::Semaphore;

use crate::engine::{CancelShield, Engine, Lease};
use crate::few::Few;
use crate::sync::lock;
use crate::{FencingToken, permit_id};

/// A view of a hold for the code that runs under the lock: its name, its fencing token, and whether it is still held.
///
/// Inside a function with `#[distributed_lock]`, and inside [`DistributedLock::run`](crate::DistributedLock::run),
/// [`current`](Self::current) returns it. A context does not keep the lock held: after the end of the hold, it reports
/// the lock as lost.
#[derive(Clone)]
pub struct LockContext {
    pub(super) level: Arc<Level>,
}

/// One nesting level of holds in a task.
pub(super) struct Level {
    /// One lease, or those of all names if the call has several and has joined holds of them.
    pub(super) leases: Few<Arc<Lease>>,
    pub(super) view: View,
    /// The context of the enclosing call, of the same lock or of another one. A link to a call that has ended is
    /// replaced by the link to the next enclosing call, so that a chain of tasks, each started by the one before it,
    /// does not keep all their leases.
    outer: Mutex<Option<LockContext>>,
    /// Whether the call of this level is over: its guard is released or dropped, or the joined call has returned.
    has_ended: AtomicBool,
    /// The semaphore of the joined calls directly under this level, which run one at a time.
    inner_calls: OnceLock<Arc<Semaphore>>,
}

/// The locks of a call, which may be a part of those that it depends on.
pub(crate) struct View {
    /// The ids of the locks in their order, and their tokens.
    pub(crate) tokens: Few<(Arc<str>, FencingToken)>,
    /// The index of the name that represents all in errors and events: the one that the caller has written first.
    pub(crate) title: usize,
    /// The template of that name, as the call has used it.
    pub(crate) template: Option<&'static str>,
}

impl View {
    /// The locks of a call that has acquired all of them itself. A permit has no token.
    pub(super) fn of(lease: &Lease) -> Self {
        let token = |(id, token): (&Arc<str>, _)| match permit_id::number(id) {
            Some(_) => (Arc::clone(id), FencingToken::NONE),
            None => (Arc::clone(id), token),
        };
        Self {
            tokens: lease.tokens().map(token).collect(),
            title: lease.about.title,
            template: lease.about.template,
        }
    }
}

impl Drop for Level {
    /// Drops the levels of a chain one after the other: nested drops would overflow the stack.
    fn drop(&mut self) {
        let mut next = lock(&self.outer).take();
        while let Some(level) = next.and_then(|context| Arc::into_inner(context.level)) {
            next = lock(&level.outer).take();
        }
    }
}

impl LockContext {
    /// The context of a call that has acquired all of its locks itself.
    pub(crate) fn of(lease: &Arc<Lease>) -> Self {
        Self::new(Few::one(Arc::clone(lease)), View::of(lease))
    }

    /// The context of a call that depends on these leases, at least one.
    pub(crate) fn new(leases: Few<Arc<Lease>>, view: View) -> Self {
        let context = Self::within(Self::current(), leases, view);
        context.cut_ended_calls();
        context
    }

    pub(super) fn within(outer: Option<Self>, leases: Few<Arc<Lease>>, view: View) -> Self {
        Self {
            level: Arc::new(Level {
                leases,
                view,
                outer: Mutex::new(outer),
                has_ended: AtomicBool::new(false),
                inner_calls: OnceLock::new(),
            }),
        }
    }

    /// Marks the call of this context as ended. It then encloses no further calls; only tasks that run directly in its
    /// scope still see it.
    pub(crate) fn close(&self) {
        self.level.has_ended.store(true, Ordering::Release);
    }

    pub(super) fn has_ended(&self) -> bool {
        self.level.has_ended.load(Ordering::Acquire)
    }

    /// The context of the innermost enclosing call with such a lease of the same provider, and the lease.
    ///
    /// A call that has joined one name of a set encloses calls of its other names as well: it has the inner turn of the
    /// set itself.
    pub(crate) fn enclosing(
        engine: &Arc<Engine>,
        is_it: impl Fn(&Lease) -> bool,
    ) -> Option<(Self, Arc<Lease>)> {
        let with_lease = |context: Self| {
            let lease = context.leases().find(|lease| is_it(lease)).map(Arc::clone)?;
            Arc::ptr_eq(&lease.engine, engine).then_some((context, lease))
        };
        std::iter::successors(Self::current(), Self::outer).find_map(with_lease)
    }

    /// Prevents the cancellation of all bodies around a commit: those around this hold, and those around the caller.
    pub(crate) fn shield_bodies(&self) -> Vec<CancelShield> {
        let own = std::iter::successors(Some(self.clone()), Self::outer);
        let callers = std::iter::successors(Self::current(), Self::outer);
        own.chain(callers)
            .flat_map(|context| context.leases().map(Arc::clone).collect::<Vec<_>>())
            .map(|lease| lease.shield())
            .collect()
    }

    /// Whether the caller runs under a lock of this provider that is still held: the caller keeps it until its call ends.
    pub(crate) fn is_inside_hold(engine: &Arc<Engine>) -> bool {
        let is_held = |context: Self| Arc::ptr_eq(context.engine(), engine) && !context.is_lost();
        std::iter::successors(Self::current(), Self::outer).any(is_held)
    }

    /// An id of the level of this context, which is unique among the levels that exist at the same time.
    pub(crate) fn level_id(&self) -> usize {
        Arc::as_ptr(&self.level).addr()
    }

    /// The context of the innermost enclosing call that has not ended. Links to ended calls before it are removed.
    pub(super) fn outer(&self) -> Option<Self> {
        let mut link = lock(&self.level.outer);
        while let Some(ended) = link.take_if(|outer| outer.has_ended()) {
            link.clone_from(&lock(&ended.level.outer));
        }
        link.clone()
    }

    /// Removes all ended calls from the chain.
    pub(super) fn cut_ended_calls(&self) {
        std::iter::successors(Some(self.clone()), Self::outer).for_each(drop);
    }

    pub(crate) fn inner_calls(&self) -> Arc<Semaphore> {
        Arc::clone(self.level.inner_calls.get_or_init(|| Arc::new(Semaphore::new(1))))
    }
}
