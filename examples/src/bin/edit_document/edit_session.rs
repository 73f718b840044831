//! The whole use of mongolock: a session that opens, saves and closes items, and how it ends.

use std::collections::HashMap;

use anyhow::Context;
use mongodb::bson::doc;
use mongodb::bson::oid::ObjectId;
use mongolock::{FencedExt, LockError, LockGuard, LockInfo, LockProvider};

use crate::items::{Item, Items};

/// The beginning of the names of all locks of items.
pub(crate) const PREFIX: &str = "edit:";

/// The result of opening an item.
#[derive(Debug)]
pub(crate) enum Opened {
    /// It is locked for this session, and was read after that.
    Yours(Item),
    /// Another session has it open: which one, since when, and how long its lease is still valid.
    Taken(LockInfo),
}

/// The result of saving an item.
#[derive(Debug)]
pub(crate) enum Saved {
    /// From opening the item until now no other session has had it.
    Yes,
    /// The lock had expired or was released: the user has to compare.
    Conflict {
        /// `Stale`: a later session has saved, and nothing was written. `Lost`: nothing was written; or the text was
        /// written, and a session that has opened the item meanwhile may not know it.
        why: LockError,
        /// The item as it is now.
        now: Item,
        /// Whether it differs from the item that was opened.
        changed: bool,
    },
}

/// The session of one user. Dropping it releases its items, in the background; a crash does not.
pub(crate) struct EditSession {
    id: String,
    locks: LockProvider,
    items: Items,
    open: HashMap<ObjectId, OpenItem>,
}

struct OpenItem {
    lock: LockGuard,
    item: Item,
}

impl EditSession {
    /// Begins a session, whose id is the owner of its locks. It has the options of `locks`: the `expiry` is the time after
    /// which the items of a crashed process are free, the `max_hold` is how long an item can be left open.
    pub(crate) fn begin(locks: &LockProvider, items: &Items, user: &str) -> Result<Self, LockError> {
        let id = format!("{user}#{}", ObjectId::new());
        Ok(Self {
            locks: locks.to_builder().owner(&id).build()?,
            items: items.clone(),
            open: HashMap::new(),
            id,
        })
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Opens an item, or returns the lock of the session that has it. It never waits for that session.
    pub(crate) async fn open(&mut self, id: ObjectId) -> anyhow::Result<Opened> {
        if let Some(open) = self.open.get(&id).filter(|open| !open.lock.is_lost()) {
            return Ok(Opened::Yours(open.item.clone()));
        }
        let name = lock_name(id);
        loop {
            if let Some(lock) = self.locks.lock(&name).try_acquire().await? {
                // Read under the lock: before it, other sessions could save.
                let item = self.items.read(id).await?;
                let open = OpenItem {
                    lock,
                    item: item.clone(),
                };
                self.open.insert(id, open);
                return Ok(Opened::Yours(item));
            }
            let holder = self.locks.admin().get(&name).await?;
            if let Some(holder) = holder.filter(|holder| !holder.remaining.is_zero()) {
                return Ok(Opened::Taken(holder));
            }
            // It was closed between the two requests.
        }
    }

    /// Saves an open item and closes it. If MongoDB fails to write, the item stays open, so that the user can try again.
    pub(crate) async fn save(&mut self, id: ObjectId, text: &str) -> anyhow::Result<Saved> {
        let open = self.opened(id)?;
        let before = open.item.clone();
        let written = match self.write(open, text).await {
            Err(error) if !is_conflict(&error) => {
                return Err(error).context("saving failed, and the item stays open: try again");
            }
            written => written,
        };
        // The write counts only if the lock was held until now, which the release finds out.
        let released = self.take(id)?.release().await;
        match written.and_then(|found| released.map(|()| found)) {
            Ok(true) => Ok(Saved::Yes),
            Ok(false) => anyhow::bail!("the item {id} does not exist any more, and the text was not saved"),
            Err(why) if is_conflict(&why) => {
                let now = self.items.read(id).await?;
                let changed = now != before;
                Ok(Saved::Conflict { why, now, changed })
            }
            Err(error) => Err(error).context("saved, but perhaps without the lock: compare the item"),
        }
    }

    /// Closes an item without saving, and returns whether it was locked until now.
    pub(crate) async fn close(&mut self, id: ObjectId) -> anyhow::Result<bool> {
        match self.take(id)?.release().await {
            Ok(()) => Ok(true),
            Err(error) if is_conflict(&error) => Ok(false),
            Err(error) => Err(error).context("cannot close the item now: it is free when its lease expires"),
        }
    }

    /// Ends the session without saving, and returns how many items that releases.
    pub(crate) async fn end(self) -> u64 {
        let held = self.open.values().filter(|open| !open.lock.is_lost()).count();
        // A dropped guard is released in the background; the shutdown waits until the server has confirmed it.
        drop(self.open);
        self.locks.shutdown().await;
        held as u64
    }

    /// Writes as the holder of the lock, and returns whether the item exists.
    async fn write(&self, open: &OpenItem, text: &str) -> Result<bool, LockError> {
        open.lock.context().ensure_held()?;
        let items = self.items.collection().fenced(open.lock.fencing_token());
        let change = doc! { "$set": { "text": text, "savedBy": &self.id } };
        let written = items.update_one(doc! { "_id": open.item.id }, change).await?;
        Ok(written.matched_count > 0)
    }

    fn opened(&self, id: ObjectId) -> anyhow::Result<&OpenItem> {
        self.open.get(&id).with_context(|| not_open(id))
    }

    /// Takes the lock of an open item, to release it.
    fn take(&mut self, id: ObjectId) -> anyhow::Result<LockGuard> {
        let open = self.open.remove(&id).with_context(|| not_open(id))?;
        Ok(open.lock)
    }
}

/// Ends any session, also one in another process or in a crashed one, and returns how many items that releases. A process
/// that still runs sees the loss at its next renewal, or when it saves.
pub(crate) async fn end_session(locks: &LockProvider, session: &str) -> Result<u64, LockError> {
    locks.admin().release_owner(session).await
}

/// The name of the lock of an item.
pub(crate) fn lock_name(id: ObjectId) -> String {
    format!("{PREFIX}{id}")
}

/// The item of a lock.
pub(crate) fn item_of(lock_name: &str) -> Option<ObjectId> {
    lock_name.strip_prefix(PREFIX)?.parse().ok()
}

fn not_open(id: ObjectId) -> String {
    format!("the item {id} is not open in this session: open it first")
}

/// Whether another session may have had the item meanwhile.
fn is_conflict(error: &LockError) -> bool {
    matches!(error, LockError::Lost { .. } | LockError::Stale { .. })
}
