//! The account that the writers change: one document, read and written as a whole.

use anyhow::Context;
use mongodb::bson::doc;
use mongodb::{Collection, Database};
use serde::{Deserialize, Serialize};

use crate::ways::Way;

/// What is in an account before anybody writes, and what each writer adds.
pub(crate) const OPENING: i64 = 100;
pub(crate) const FIRST_DEPOSIT: i64 = 10;
pub(crate) const SECOND_DEPOSIT: i64 = 50;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Account {
    #[serde(rename = "_id")]
    pub(crate) id: String,
    pub(crate) balance: i64,
}

pub(crate) fn accounts(database: &Database) -> Collection<Account> {
    database.collection("accounts")
}

/// Makes the account of this way to write, or makes it as new.
pub(crate) async fn open(accounts: &Collection<Account>, way: Way) -> anyhow::Result<()> {
    let id = way.to_string();
    let account = Account {
        id: id.clone(),
        balance: OPENING,
    };
    let opened = accounts
        .replace_one(doc! { "_id": id }, account)
        .upsert(true)
        .await;
    opened.map(drop).context("cannot open the account")
}

pub(crate) async fn read(accounts: &Collection<Account>, way: Way) -> anyhow::Result<Account> {
    let account = accounts.find_one(doc! { "_id": way.to_string() }).await;
    account
        .context("cannot read the account")?
        .context("the account is gone")
}
