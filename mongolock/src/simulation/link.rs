//! The commands that the store of a process sends to the simulated server.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::line::Line;
use super::stream;
use super::world::World;
use crate::LockError;
use crate::protocol::{Name, Reply, Row, RowOrder, Sight, Then};
use crate::store::{LockStream, Looked, MemoryStore, NotRun};

/// The network between one process and the server, for its store.
pub(crate) struct Link(pub(super) Arc<Line>);

impl Link {
    pub(crate) fn memory(&self) -> &MemoryStore {
        &self.0.world.memory
    }

    /// Runs rows as the real store does: one with a command, and several with an update and a query after it.
    pub(crate) async fn run(
        &self,
        rows: &[Row],
        order: RowOrder,
        limit: Duration,
    ) -> Result<Vec<Reply>, NotRun> {
        let (by, sent) = (self.0.number, rows.to_vec());
        let ran = self.0.send(rows.len(), move |world, now, most| {
            world.serve(by, now, &sent, order, most)
        });
        let ran = ran.await?;
        if let [_] = rows {
            return Ok(ran);
        }
        let is_known = order == RowOrder::Each || matches!(rows[0].then, Then::Rename { .. });
        if !rows.iter().any(Row::acquires)
            && is_known
            && ran.iter().all(|reply| reply.is_applied == Some(true))
        {
            let told = Reply {
                is_applied: Some(true),
                sight: None,
            };
            return Ok(vec![told; rows.len()]);
        }
        let names: Vec<Name> = rows.iter().map(|row| Arc::clone(&row.name)).collect();
        let found = self.look(Looked::Names(names), limit).await;
        let found = found.map_err(|error| NotRun {
            error,
            may_be_applied: true,
        })?;
        let found: HashMap<Name, Sight> = found.into_iter().collect();
        let reply = |row: &Row| after(row, found.get(&row.name).cloned());
        Ok(rows.iter().map(reply).collect())
    }

    pub(crate) async fn look(&self, looked: Looked, _: Duration) -> Result<Vec<(Name, Sight)>, LockError> {
        let by = self.0.number;
        let look = move |world: &World, _, _| world.look(by, &looked);
        self.0.send(0, look).await
    }

    pub(crate) async fn watch(&self, names: Option<&[Name]>) -> Result<LockStream, LockError> {
        stream::open(&self.0, names.map(<[Name]>::to_vec)).await
    }
}

/// The reply for a row whose document was read after its command.
fn after(row: &Row, sight: Option<Sight>) -> Reply {
    let has = |id: &Arc<str>| sight.as_ref().is_some_and(|sight| sight.has(id));
    Reply {
        is_applied: row.then.new_id().map(has),
        sight,
    }
}
