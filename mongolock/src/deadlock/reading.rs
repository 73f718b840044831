use std::collections::BTreeSet;
use std::sync::Arc;

use super::rule::World;
use crate::LockError;
use crate::store::{NestedWait, Store};
use crate::timing::{DEADLOCK_HOPS, LINE_READ_LIMIT};

/// Reads who holds a name, what those wait for, who holds that, and so on. What lies behind the last hop counts as free.
pub(crate) async fn read(store: &Store, awaited: Arc<str>) -> Result<World, LockError> {
    let mut world = World::default();
    let mut names = BTreeSet::from([awaited]);
    for _ in 0..DEADLOCK_HOPS {
        let asked: Vec<Arc<str>> = names.into_iter().collect();
        let found = store.holders(&asked, LINE_READ_LIMIT).await?;
        let holds: BTreeSet<Arc<str>> = found.values().flatten().cloned().collect();
        world.holders.extend(found);
        let holds: Vec<Arc<str>> = holds.into_iter().collect();
        let waits = store.nested_waits(&holds, LINE_READ_LIMIT).await?;
        let is_known = |wait: &NestedWait| world.waits.contains(wait);
        let new: Vec<NestedWait> = waits.into_iter().filter(|wait| !is_known(wait)).collect();
        let awaited = new.iter().map(|wait| &wait.name);
        names = awaited
            .filter(|name| !world.holders.contains_key(*name))
            .cloned()
            .collect();
        world.waits.extend(new);
        if names.is_empty() {
            break;
        }
    }
    Ok(world)
}
