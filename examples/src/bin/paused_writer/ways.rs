//! The three ways to write what was read under a lock: this is the part to copy.

use std::fmt;

use mongodb::Collection;
use mongodb::bson::{Document, doc};
use mongolock::{FencedExt, LockContext, LockError};

use crate::account::Account;

/// The last one wins, whether it still has the lock or not.
async fn plain(accounts: &Collection<Account>, changed: &Account) -> Result<(), LockError> {
    accounts.replace_one(same(changed), changed).await?;
    Ok(())
}

/// The document remembers the greatest token that has written it, and refuses a smaller one with `LockError::Stale`.
/// All who write it have to come with their tokens.
async fn fenced(
    accounts: &Collection<Account>,
    changed: &Account,
    lock: &LockContext,
) -> Result<(), LockError> {
    let accounts = accounts.fenced(lock.fencing_token());
    accounts.replace_one(same(changed), changed).await?;
    Ok(())
}

/// The transaction is committed only if the lock is still held; else the error is `LockError::Lost`. It takes any number
/// of writes, and needs no field in the documents. The driver repeats the whole of it after errors that pass.
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

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Fenced => "fenced",
            Self::Guarded => "guarded commit",
        }
    }

    /// Whether this is the error with which it refuses a late write.
    pub(crate) fn refuses_with(self, error: &LockError) -> bool {
        match self {
            Self::Plain => false,
            Self::Fenced => matches!(error, LockError::Stale { .. }),
            Self::Guarded => matches!(error, LockError::Lost { .. }),
        }
    }
}

/// As on the command line, and in the names of the locks and accounts.
impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain => "plain",
            Self::Fenced => "fenced",
            Self::Guarded => "guarded",
        })
    }
}
