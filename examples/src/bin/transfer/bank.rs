//! The accounts and the journal in MongoDB.

use anyhow::Context;
use mongodb::bson::{Document, Timestamp, doc};
use mongodb::options::{ReturnDocument, WriteConcern};
use mongodb::{Client, ClientSession, Collection, Database};
use mongolock::FencingToken;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::approval::Approval;
use crate::order::{Order, OrderId, Pair};

/// How much may be moved between two accounts, both directions together.
pub(crate) const LIMIT: i64 = 500;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Account {
    #[serde(rename = "_id")]
    pub(crate) id: u32,
    pub(crate) balance: i64,
}

/// An entry of the journal: a transfer that was made.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// An order is booked once.
    #[serde(rename = "_id")]
    pub(crate) order: OrderId,
    pub(crate) pair: String,
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) amount: i64,
    pub(crate) token: FencingToken,
    /// Set by the server, which never sets the same one twice: the order of the entries.
    pub(crate) at: Timestamp,
}

/// The server puts its own in the place of this one.
const SET_BY_SERVER: Timestamp = Timestamp {
    time: 0,
    increment: 0,
};

/// What was booked under which token, and what the two accounts have after it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Receipt {
    pub(crate) token: FencingToken,
    pub(crate) from: i64,
    pub(crate) to: i64,
}

/// All that is written.
#[derive(Debug)]
pub(crate) struct Books {
    pub(crate) accounts: Vec<Account>,
    /// In the order in which they were written.
    pub(crate) journal: Vec<Entry>,
}

#[derive(Debug)]
pub(crate) struct Bank {
    accounts: Collection<Account>,
    journal: Collection<Entry>,
    approval: Approval,
    guarded: bool,
}

/// What an account has at the beginning. The first pays in the transfer that is stopped: it can whatever the others
/// have done to it meanwhile, and only the limit is in the way.
pub(crate) fn opening_balance(account: u32) -> i64 {
    if account == 1 { 20 * LIMIT } else { 200 }
}

impl Bank {
    pub(crate) fn new(database: &Database, approval: Approval, guarded: bool) -> Self {
        Self {
            accounts: database.collection("accounts"),
            journal: database.collection("journal"),
            approval,
            guarded,
        }
    }

    pub(crate) fn client(&self) -> &Client {
        self.accounts.client()
    }

    /// Whether the lock guards the commits.
    pub(crate) fn is_guarded(&self) -> bool {
        self.guarded
    }

    /// Waits for the approval of a transfer.
    pub(crate) async fn approval(&self, order: &Order, token: FencingToken) {
        self.approval.wait(order, token).await;
    }

    /// How much the journal says was moved between two accounts.
    pub(crate) async fn moved(&self, pair: Pair) -> mongodb::error::Result<i64> {
        let sum = [
            doc! { "$match": { "pair": pair.to_string() } },
            doc! { "$group": { "_id": null, "moved": { "$sum": "$amount" } } },
        ];
        let mut sums = self.journal.aggregate(sum).with_type::<Moved>().await?;
        if !sums.advance().await? {
            return Ok(0);
        }
        sums.deserialize_current().map(|sum| sum.moved)
    }

    /// Writes both balances and the entry; `None` if the account cannot pay.
    pub(crate) async fn book(
        &self,
        order: &Order,
        token: FencingToken,
        session: &mut ClientSession,
    ) -> mongodb::error::Result<Option<Receipt>> {
        let able = doc! { "_id": order.from, "balance": { "$gte": order.amount } };
        let Some(from) = self.add(able, -order.amount, session).await? else {
            return Ok(None);
        };
        let Some(to) = self.add(doc! { "_id": order.to }, order.amount, session).await? else {
            return Err(mongodb::error::Error::custom(format!(
                "account {} is gone",
                order.to
            )));
        };
        let entry = Entry {
            order: order.id,
            pair: order.pair().to_string(),
            from: order.from,
            to: order.to,
            amount: order.amount,
            token,
            at: SET_BY_SERVER,
        };
        self.journal.insert_one(entry).session(session).await?;
        Ok(Some(Receipt { token, from, to }))
    }

    /// The balance after the change.
    async fn add(
        &self,
        account: Document,
        amount: i64,
        session: &mut ClientSession,
    ) -> mongodb::error::Result<Option<i64>> {
        let change = doc! { "$inc": { "balance": amount } };
        let changed = self.accounts.find_one_and_update(account, change);
        let changed = changed
            .return_document(ReturnDocument::After)
            .session(session)
            .await?;
        Ok(changed.map(|account| account.balance))
    }

    /// Opens the accounts 1 to `accounts`, in a transaction: if that does not work, no transfer will.
    pub(crate) async fn open(&self, database: &Database, accounts: u32) -> anyhow::Result<()> {
        for collection in [self.accounts.name(), self.journal.name()] {
            let created = database.create_collection(collection).await;
            created.with_context(|| format!("cannot create the collection `{collection}`"))?;
        }
        self.insert(accounts).await.context(
            "cannot open the accounts in a transaction, which takes a replica set or a sharded cluster \
             (a standalone server has no transactions)",
        )
    }

    async fn insert(&self, accounts: u32) -> mongodb::error::Result<()> {
        let opened = (1..=accounts).map(|id| Account {
            id,
            balance: opening_balance(id),
        });
        let opened: Vec<_> = opened.collect();
        let mut session = self.client().start_session().await?;
        let transaction = session
            .start_transaction()
            .write_concern(WriteConcern::majority());
        transaction
            .and_run2(async move |session| {
                let inserted = self.accounts.insert_many(&opened).session(session);
                inserted.await.map(drop)
            })
            .await
    }

    pub(crate) async fn books(&self) -> anyhow::Result<Books> {
        Ok(Books {
            accounts: all(&self.accounts, doc! { "_id": 1 })
                .await
                .context("cannot read the accounts")?,
            journal: all(&self.journal, doc! { "at": 1 })
                .await
                .context("cannot read the journal")?,
        })
    }
}

#[derive(Deserialize)]
struct Moved {
    moved: i64,
}

async fn all<T: DeserializeOwned + Send + Sync>(
    collection: &Collection<T>,
    order: Document,
) -> mongodb::error::Result<Vec<T>> {
    let mut documents = Vec::new();
    let mut found = collection.find(doc! {}).sort(order).await?;
    while found.advance().await? {
        documents.push(found.deserialize_current()?);
    }
    Ok(documents)
}
