use std::sync::Arc;
use std::time::Duration;

use super::{Holds, ProviderMark, WaiterEntry};
use crate::LockError;
use crate::store::WaitersState;
use crate::store::mongo::MongoStore;
use crate::timing::COMMAND_LIMIT;

/// The name in the document of a check. No user's lock can have it, because names with a control character are refused.
const CHECK_NAME: &str = "mongolock\u{1f}waiters";

impl MongoStore {
    /// Sends each command of the waiters once, for a document that no other process reads, and ensures the indexes.
    pub(crate) async fn check_waiters(&self) -> WaitersState {
        match self.try_waiters().await {
            Ok(()) => self.ensure_waiters_indexes().await.into(),
            Err(error) => WaitersState::after(&error),
        }
    }

    async fn try_waiters(&self) -> Result<(), LockError> {
        let entry = WaiterEntry {
            name: Arc::from(CHECK_NAME),
            provider: ProviderMark::random(),
            owner: Arc::from("mongolock"),
            waited: None,
            time_slot: Duration::ZERO,
            last: None,
            keeps_place: false,
            holds: Holds::default(),
        };
        let names = [Arc::clone(&entry.name)];
        self.move_to_end(std::slice::from_ref(&entry), COMMAND_LIMIT)
            .await?;
        self.prolong_waits(&entry.provider, &names, COMMAND_LIMIT).await?;
        self.lines(&names, COMMAND_LIMIT).await?;
        self.leave_lines(&entry.provider, &names, COMMAND_LIMIT).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_lock_of_a_user_can_have_the_name_of_a_check() {
        assert!(crate::name::RenderedName::new(CHECK_NAME).check().is_err());
    }
}
