//! The accounts and the journal in MongoDB.

use std::mem::swap;
use std::time::Duration;

use anyhow::Context;
use mongodb::bson::{Document, Timestamp, doc};
use mongodb::options::{ReturnDocument, WriteConcern};
use mongodb::{ClientSession, Collection, Database};
use mongolock::FencingToken;
use mongolock_examples::worker::Signal;
use serde::{Deserialize, Serialize};

/// How much may be moved between two accounts, both directions together.
pub(crate) const LIMIT: i64 = 500;

/// An order for one transfer, and, in the journal, a transfer that was made.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Order {
    /// An order is booked once.
    #[serde(rename = "_id")]
    pub(crate) id: OrderId,
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) amount: i64,
}

/// The process that makes a transfer, and its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OrderId {
    pub(crate) process: u32,
    pub(crate) number: u32,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Entry {
    #[serde(flatten)]
    pub(crate) order: Order,
    pub(crate) pair: String,
    pub(crate) token: FencingToken,
    /// The order of the entries: the server replaces a timestamp of zero by its own, never twice by the same one.
    pub(crate) at: Timestamp,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Account {
    #[serde(rename = "_id")]
    pub(crate) id: u32,
    pub(crate) balance: i64,
}

#[derive(Debug)]
pub(crate) struct Bank {
    pub(crate) database: Database,
    /// How long a transfer waits between reading and writing for an approval. Here it is only time that passes.
    pub(crate) approval: Duration,
    /// The approval comes with this signal instead, and the process is stopped meanwhile.
    pub(crate) go: Option<Signal>,
    /// Whether the lock guards the commits.
    pub(crate) is_guarded: bool,
}

impl Order {
    /// The order with this number: every process begins with the accounts 1 and 2, and continues with all pairs in both
    /// directions.
    pub(crate) fn numbered(process: u32, number: u32, accounts: u32) -> Self {
        let turn = number - 1;
        let one = turn / (accounts - 1) % accounts;
        let other = (one + 1 + turn % (accounts - 1)) % accounts;
        let (mut from, mut to) = (one + 1, other + 1);
        if !(process + number).is_multiple_of(2) {
            swap(&mut from, &mut to);
        }
        let amount = 10 * i64::from(1 + (3 * process + 5 * number) % 12);
        let id = OrderId { process, number };
        Self { id, from, to, amount }
    }

    /// Both accounts in a fixed order, such as `1-2`: the same for transfers in both directions.
    pub(crate) fn pair(&self) -> String {
        format!("{}-{}", self.from.min(self.to), self.from.max(self.to))
    }

    pub(crate) fn entry(&self, token: FencingToken) -> Entry {
        let (order, pair) = (self.clone(), self.pair());
        let [time, increment] = [0, 0];
        let at = Timestamp { time, increment };
        Entry {
            order,
            pair,
            token,
            at,
        }
    }
}

impl Account {
    /// Account 1 pays in the stopped transfer: it has enough for that, whatever the others have transferred meanwhile, so that
    /// only the limit is in the way.
    pub(crate) fn opened(id: u32) -> Self {
        let balance = if id == 1 { 20 * LIMIT } else { 200 };
        Self { id, balance }
    }
}

impl Bank {
    pub(crate) fn new(database: &Database, approval: u64, go: Option<Signal>) -> Self {
        let (database, approval) = (database.clone(), Duration::from_millis(approval));
        let is_guarded = true;
        Self {
            database,
            approval,
            go,
            is_guarded,
        }
    }

    pub(crate) fn accounts(&self) -> Collection<Account> {
        self.database.collection("accounts")
    }

    pub(crate) fn journal(&self) -> Collection<Entry> {
        self.database.collection("journal")
    }

    /// How much the journal says was moved between two accounts.
    pub(crate) async fn moved(&self, pair: &str) -> mongodb::error::Result<i64> {
        let mut entries = self.journal().find(doc! { "pair": pair }).await?;
        let mut moved = 0;
        while entries.advance().await? {
            moved += entries.deserialize_current()?.order.amount;
        }
        Ok(moved)
    }

    /// Writes both balances and the entry, and returns the balances; `None` if the account cannot pay.
    pub(crate) async fn book(
        &self,
        order: &Order,
        token: FencingToken,
        session: &mut ClientSession,
    ) -> mongodb::error::Result<Option<[i64; 2]>> {
        let able = doc! { "_id": order.from, "balance": { "$gte": order.amount } };
        let Some(from) = self.add(able, -order.amount, session).await? else {
            return Ok(None);
        };
        let Some(to) = self.add(doc! { "_id": order.to }, order.amount, session).await? else {
            let missing = format!("account {} does not exist", order.to);
            return Err(mongodb::error::Error::custom(missing));
        };
        self.journal()
            .insert_one(order.entry(token))
            .session(session)
            .await?;
        Ok(Some([from, to]))
    }

    /// The balance after the change; `None` if no account matches.
    async fn add(
        &self,
        account: Document,
        amount: i64,
        session: &mut ClientSession,
    ) -> mongodb::error::Result<Option<i64>> {
        let change = doc! { "$inc": { "balance": amount } };
        let accounts = self.accounts();
        let change = accounts.find_one_and_update(account, change);
        let changed = change
            .return_document(ReturnDocument::After)
            .session(session)
            .await?;
        Ok(changed.map(|account| account.balance))
    }

    /// Opens the accounts 1 to `accounts`, in a transaction: if that fails, every transfer will.
    pub(crate) async fn open(&self, accounts: u32) -> anyhow::Result<()> {
        for collection in ["accounts", "journal"] {
            let created = self.database.create_collection(collection).await;
            created.with_context(|| format!("cannot create the collection `{collection}`"))?;
        }
        let opened: Vec<_> = (1..=accounts).map(Account::opened).collect();
        let mut session = self.database.client().start_session().await?;
        let transaction = session
            .start_transaction()
            .write_concern(WriteConcern::majority());
        let inserted = transaction
            .and_run2(async move |session| self.accounts().insert_many(&opened).session(session).await)
            .await;
        inserted.context(
            "cannot open the accounts in a transaction: this needs a replica set or a sharded cluster, a standalone \
             server has no transactions",
        )?;
        Ok(())
    }
}
