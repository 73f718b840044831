//! The three ways to write what was read under a lock: this is the part to copy.

use std::fmt;

use mongodb::Collection;
use mongodb::bson::{Document, doc};
use mongolock::{FencedExt, LockContext, LockError};

use crate::Account;

/// The last write wins, whether its writer still holds the lock or not.
async fn plain(accounts: &Collection<Account>, changed: &Account) -> Result<(), LockError> {
    accounts.replace_one(same(changed), changed).await?;
    Ok(())
}

/// The document stores the greatest token that has written it, and rejects a smaller one with `LockError::Stale`. All
/// writers of the document have to send their tokens.
async fn fenced(
    accounts: &Collection<Account>,
    changed: &Account,
    lock: &LockContext,
) -> Result<(), LockError> {
    let accounts = accounts.fenced(lock.fencing_token());
    accounts.replace_one(same(changed), changed).await?;
    Ok(())
}

/// The transaction is committed only if the lock is still held; otherwise the error is `LockError::Lost`. It takes any
/// number of writes, and the documents need no additional field. The driver repeats all of it after transient errors.
async fn guarded(
    accounts: Collection<Account>,
    changed: Account,
    lock: LockContext,
) -> Result<(), LockError> {
    let mut session = accounts.client().start_session().await?;
    let transaction = session.start_transaction();
    transaction
        .and_run2(async move |session| {
            let write = accounts.replace_one(same(&changed), &changed);
            write.session(&mut *session).await?;
            Ok(lock.commit(session).await?)
        })
        .await?;
    Ok(())
}

fn same(account: &Account) -> Document {
    doc! { "_id": &account.id }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Way {
    Plain,
    Fenced,
    Guarded,
}

impl Way {
    pub(crate) const ALL: [Self; 3] = [Self::Plain, Self::Fenced, Self::Guarded];

    pub(crate) async fn write(
        self,
        accounts: &Collection<Account>,
        changed: Account,
        lock: LockContext,
    ) -> Result<(), LockError> {
        match self {
            Self::Plain => plain(accounts, &changed).await,
            Self::Fenced => fenced(accounts, &changed, &lock).await,
            Self::Guarded => guarded(accounts.clone(), changed, lock).await,
        }
    }

    /// The reason, if this is the error with which this way rejects a stale write.
    pub(crate) fn rejection(self, error: &anyhow::Error) -> Option<String> {
        match (self, error.downcast_ref()?) {
            (Self::Fenced, LockError::Stale { token, seen, .. }) => Some(format!(
                "LockError::Stale: token {token} is stale, the account was written with token {seen}"
            )),
            (Self::Guarded, LockError::Lost { token, .. }) => Some(format!(
                "LockError::Lost: the lock with token {token} is lost, the transaction is not committed"
            )),
            _ => None,
        }
    }

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Fenced => "fenced",
            Self::Guarded => "guarded commit",
        }
    }

    pub(crate) fn method(self) -> &'static str {
        match self {
            Self::Plain => "`replace_one` of the driver",
            Self::Fenced => "`replace_one` of a `FencedCollection`",
            Self::Guarded => "a transaction that ends with `LockContext::commit`",
        }
    }
}

/// The word on the command line and in the names of locks and accounts.
impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain => "plain",
            Self::Fenced => "fenced",
            Self::Guarded => "guarded",
        })
    }
}
