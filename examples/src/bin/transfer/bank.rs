//! The accounts and the journal in MongoDB.

use std::time::Duration;

use anyhow::Context;
use mongodb::bson::{Document, Timestamp, doc};
use mongodb::options::{ReturnDocument, WriteConcern};
use mongodb::{Client, ClientSession, Collection, Database};
use mongolock::FencingToken;
use mongolock_examples::worker::Signal;
use mongolock_examples::{all, print};
use serde::{Deserialize, Serialize};

use crate::line;
use crate::order::{Order, OrderId};

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
    /// The order of the entries: the server sets it, never twice to the same value.
    pub(crate) at: Timestamp,
}

/// The token of a booking, and the two balances after it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Receipt {
    pub(crate) token: FencingToken,
    pub(crate) from_balance: i64,
    pub(crate) to_balance: i64,
}

/// Everything that was written; the journal in the order of its entries.
#[derive(Debug)]
pub(crate) struct Books {
    pub(crate) accounts: Vec<Account>,
    pub(crate) journal: Vec<Entry>,
}

/// The approval that a transfer waits for between reading and writing. Here it is only time that passes.
#[derive(Debug)]
pub(crate) enum Approval {
    Takes(Duration),
    /// It comes with a signal of the program.
    ComesWith(Signal),
}

#[derive(Debug)]
pub(crate) struct Bank {
    accounts: Collection<Account>,
    journal: Collection<Entry>,
    approval: Approval,
    is_guarded: bool,
}

/// The balance of an account at the beginning. Account 1 pays in the stopped transfer: it has enough for that, whatever
/// the others have transferred meanwhile, so that only the limit is in the way.
pub(crate) fn opening_balance(account: u32) -> i64 {
    if account == 1 { 20 * LIMIT } else { 200 }
}

impl Account {
    pub(crate) fn opened(id: u32) -> Self {
        Self {
            id,
            balance: opening_balance(id),
        }
    }
}

impl Entry {
    pub(crate) fn new(order: &Order, token: FencingToken) -> Self {
        Self {
            order: order.id,
            pair: order.pair(),
            from: order.from,
            to: order.to,
            amount: order.amount,
            token,
            // The server replaces a timestamp of zero by its own.
            at: Timestamp {
                time: 0,
                increment: 0,
            },
        }
    }
}

impl Bank {
    pub(crate) fn new(database: &Database, approval: Approval, is_guarded: bool) -> Self {
        Self {
            accounts: database.collection("accounts"),
            journal: database.collection("journal"),
            approval,
            is_guarded,
        }
    }

    pub(crate) fn client(&self) -> &Client {
        self.accounts.client()
    }

    /// Whether the lock guards the commits.
    pub(crate) fn is_guarded(&self) -> bool {
        self.is_guarded
    }

    /// Waits for the approval of a transfer.
    pub(crate) async fn approval(&self, order: &Order, token: FencingToken) {
        match &self.approval {
            Approval::Takes(time) => tokio::time::sleep(*time).await,
            Approval::ComesWith(signal) => {
                // The program stops this process when it reads the line. Without the program, the process ends.
                let _ = print(line(order, Some(token), "waits for its approval"));
                let _ = signal.wait().await;
            }
        }
    }

    /// How much the journal says was moved between two accounts.
    pub(crate) async fn moved(&self, pair: &str) -> mongodb::error::Result<i64> {
        let sum = [
            doc! { "$match": { "pair": pair } },
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
        let Some(from_balance) = self.add(able, -order.amount, session).await? else {
            return Ok(None);
        };
        let Some(to_balance) = self.add(doc! { "_id": order.to }, order.amount, session).await? else {
            let missing = format!("account {} does not exist", order.to);
            return Err(mongodb::error::Error::custom(missing));
        };
        let entry = Entry::new(order, token);
        self.journal.insert_one(entry).session(session).await?;
        Ok(Some(Receipt {
            token,
            from_balance,
            to_balance,
        }))
    }

    /// The balance after the change; `None` if no account matches.
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

    /// Opens the accounts 1 to `accounts`, in a transaction: if that fails, every transfer will.
    pub(crate) async fn open(&self, database: &Database, accounts: u32) -> anyhow::Result<()> {
        for collection in [self.accounts.name(), self.journal.name()] {
            let created = database.create_collection(collection).await;
            created.with_context(|| format!("cannot create the collection `{collection}`"))?;
        }
        let opened: Vec<_> = (1..=accounts).map(Account::opened).collect();
        let mut session = self.client().start_session().await?;
        let transaction = session
            .start_transaction()
            .write_concern(WriteConcern::majority());
        let inserted = transaction
            .and_run2(async move |session| self.accounts.insert_many(&opened).session(session).await)
            .await;
        inserted.context(
            "cannot open the accounts in a transaction: this needs a replica set or a sharded cluster, a standalone \
             server has no transactions",
        )?;
        Ok(())
    }

    pub(crate) async fn books(&self) -> anyhow::Result<Books> {
        Ok(Books {
            accounts: all(&self.accounts, doc! { "_id": 1 }).await?,
            journal: all(&self.journal, doc! { "at": 1 }).await?,
        })
    }
}

#[derive(Deserialize)]
struct Moved {
    moved: i64,
}
