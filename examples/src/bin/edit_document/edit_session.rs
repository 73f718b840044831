//! The whole use of mongolock: a session in which a person opens, saves and closes items, and how it ends.

use std::collections::HashMap;

use anyhow::Context;
use mongodb::bson::doc;
use mongodb::bson::oid::ObjectId;
use mongolock::{FencedExt, LockError, LockGuard, LockInfo, LockProvider};

use crate::items::{Item, Items};

/// The names of all locks of items begin with this.
pub(crate) const PREFIX: &str = "edit:";

/// What has become of opening an item.
#[derive(Debug)]
pub(crate) enum Opened {
    /// It is locked for this session, and was read after that.
    Yours(Item),
    /// Another session has it open: whose, since when, and for how long yet at least.
    Taken(LockInfo),
}

/// What has become of saving an item.
#[derive(Debug)]
pub(crate) enum Saved {
    /// From opening it until now no other session has had the item.
    Yes,
    /// The lock had been taken away, or had ended by time: somebody has to compare.
    TooLate {
        /// `Stale`: a later session has saved, and nothing was written. `Lost`: nothing was written; or the own text
        /// was, and whoever has opened the item since then may not know it.
        why: LockError,
        /// The item as it is now.
        now: Item,
        /// Whether that is another than the one that was opened.
        changed: bool,
    },
}

/// One person's session. Dropping it gives back what it has open, in the background; a crash does not.
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
    /// Begins a session, whose id is the owner of its locks. With the options of `locks`: its `expiry` says when the
    /// items of a crashed process are free again, its `max_hold` how long an item can be left open.
    pub(crate) fn begin(locks: &LockProvider, items: &Items, person: &str) -> Result<Self, LockError> {
        let id = format!("{person}#{}", ObjectId::new());
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

    /// Opens an item, or says who has it. It never waits for them.
    pub(crate) async fn open(&mut self, id: ObjectId) -> anyhow::Result<Opened> {
        if let Some(open) = self.open.get(&id).filter(|open| !open.lock.is_lost()) {
            return Ok(Opened::Yours(open.item.clone()));
        }
        let name = lock_name(id);
        loop {
            if let Some(lock) = self.locks.lock(&name).try_acquire().await? {
                // Only now: until then others could save.
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

    /// Saves an open item and closes it. If MongoDB fails to write, the item stays open, so that it can be tried again.
    pub(crate) async fn save(&mut self, id: ObjectId, text: &str) -> anyhow::Result<Saved> {
        let open = self.opened(id)?;
        let before = open.item.clone();
        let written = match self.write(open, text).await {
            Err(error) if !is_too_late(&error) => {
                return Err(error).context("saving failed, and the item stays open: try again");
            }
            written => written,
        };
        // What was written counts only if nobody has taken the lock away meanwhile: the release says whether.
        let released = self.take(id)?.release().await;
        match written.and_then(|found| released.map(|()| found)) {
            Ok(true) => Ok(Saved::Yes),
            Ok(false) => anyhow::bail!("the item {id} is gone, and the text was not saved"),
            Err(why) if is_too_late(&why) => {
                let now = self.items.read(id).await?;
                let changed = now != before;
                Ok(Saved::TooLate { why, now, changed })
            }
            Err(error) => Err(error).context("saved, but perhaps no longer under the lock: compare it"),
        }
    }

    /// Closes an item unsaved, and says whether it was locked until now.
    pub(crate) async fn close(&mut self, id: ObjectId) -> anyhow::Result<bool> {
        match self.take(id)?.release().await {
            Ok(()) => Ok(true),
            Err(error) if is_too_late(&error) => Ok(false),
            Err(error) => Err(error).context("cannot close the item now: it is free when its lease ends"),
        }
    }

    /// Ends the session: all that it has open is given back, unsaved. Says how many items that were.
    pub(crate) async fn end(self) -> u64 {
        let held = self.open.values().filter(|open| !open.lock.is_lost()).count();
        // A dropped guard is released in the background; the shutdown waits until the server knows.
        drop(self.open);
        self.locks.shutdown().await;
        held as u64
    }

    /// Writes as the holder of the lock; says whether the item was there.
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

    /// The lock of an open item, to be released.
    fn take(&mut self, id: ObjectId) -> anyhow::Result<LockGuard> {
        let open = self.open.remove(&id).with_context(|| not_open(id))?;
        Ok(open.lock)
    }
}

/// Ends any session, also one whose process has crashed or runs elsewhere, and says how many items it had open. If its
/// process lives, it learns of that at its next renewal or when it saves.
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
fn is_too_late(error: &LockError) -> bool {
    matches!(error, LockError::Lost { .. } | LockError::Stale { .. })
}
