//! Makes sure that everything the core waits for ends.

use std::sync::Arc;

use scopeguard::ScopeGuard;

use super::state::{Engine, Event};

/// A command, the change stream or a shutdown, which must end exactly once for the core, also if its runtime ends or its future is
/// dropped: if it ends without another event, this one is applied. Taking the event out prevents that.
pub(super) fn ends_with<F: FnOnce() -> Event>(
    engine: &Arc<Engine>,
    otherwise: F,
) -> ScopeGuard<F, impl FnOnce(F) + use<F>> {
    let engine = Arc::downgrade(engine);
    scopeguard::guard(otherwise, move |event| {
        if let Some(engine) = engine.upgrade() {
            engine.apply(event());
        }
    })
}
