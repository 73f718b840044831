//! Whether the books are right.

use std::collections::{BTreeMap, BTreeSet};

use crate::bank::{Books, Entry, LIMIT, opening_balance};
use crate::order::OrderId;

/// One thing that must hold, and what was found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) what: &'static str,
    /// What is wrong, or else what is right.
    pub(crate) found: Result<String, String>,
}

/// Compares the balances with the journal, and the journal with the rules.
pub(crate) fn judge(books: &Books, accounts: u32, stopped: OrderId) -> Vec<Finding> {
    let pairs = pairs(&books.journal);
    let finding = |what, found| Finding { what, found };
    vec![
        finding("sum of balances", sum(books, accounts)),
        finding("accounts", each_account(books, accounts)),
        finding("below zero", below_zero(books)),
        finding("over the limit", over_the_limit(&pairs)),
        finding("tokens", tokens(&pairs)),
        finding("stopped transfer", not_booked(&books.journal, stopped)),
    ]
}

/// The entries of each pair, in the order in which they were written.
fn pairs(journal: &[Entry]) -> BTreeMap<&str, Vec<&Entry>> {
    let mut pairs: BTreeMap<&str, Vec<&Entry>> = BTreeMap::new();
    for entry in journal {
        pairs.entry(&entry.pair).or_default().push(entry);
    }
    pairs
}

fn sum(books: &Books, accounts: u32) -> Result<String, String> {
    let opened: i64 = (1..=accounts).map(opening_balance).sum();
    let sum: i64 = books.accounts.iter().map(|account| account.balance).sum();
    right_if(sum == opened, format!("{sum} of {opened}"))
}

fn each_account(books: &Books, accounts: u32) -> Result<String, String> {
    let balances: BTreeMap<_, _> = books.accounts.iter().map(|a| (a.id, a.balance)).collect();
    let mut expected: BTreeMap<_, _> = (1..=accounts).map(|id| (id, opening_balance(id))).collect();
    for entry in &books.journal {
        *expected.entry(entry.from).or_default() -= entry.amount;
        *expected.entry(entry.to).or_default() += entry.amount;
    }
    let ids: BTreeSet<_> = balances.keys().chain(expected.keys()).collect();
    let wrong = ids.into_iter().filter_map(|id| {
        let (balance, expected) = (balances.get(id), expected.get(id));
        let text = |amount: Option<&i64>| amount.map_or("nothing".to_owned(), i64::to_string);
        (balance != expected).then(|| {
            format!(
                "account {id} has {}, the journal says {}",
                text(balance),
                text(expected)
            )
        })
    });
    none_of(wrong, "each has its opening balance and its entries")
}

fn below_zero(books: &Books) -> Result<String, String> {
    let wrong = books.accounts.iter().filter(|account| account.balance < 0);
    none_of(
        wrong.map(|account| format!("account {} has {}", account.id, account.balance)),
        "none",
    )
}

fn over_the_limit(pairs: &BTreeMap<&str, Vec<&Entry>>) -> Result<String, String> {
    let moved = |entries: &Vec<&Entry>| entries.iter().map(|entry| entry.amount).sum::<i64>();
    let wrong = pairs.iter().map(|(pair, entries)| (pair, moved(entries)));
    let wrong = wrong.filter(|(_, moved)| *moved > LIMIT);
    none_of(
        wrong.map(|(pair, moved)| format!("{moved} moved between {pair}, {LIMIT} is the limit")),
        "none",
    )
}

fn tokens(pairs: &BTreeMap<&str, Vec<&Entry>>) -> Result<String, String> {
    let rose = |entries: &Vec<&Entry>| entries.is_sorted_by(|earlier, later| earlier.token < later.token);
    let wrong = pairs.iter().filter(|(_, entries)| !rose(entries));
    none_of(
        wrong.map(|(pair, _)| format!("did not rise between {pair}")),
        "rose strictly between any two accounts, in the order of the entries",
    )
}

fn not_booked(journal: &[Entry], stopped: OrderId) -> Result<String, String> {
    let booked = journal.iter().any(|entry| entry.order == stopped);
    if booked {
        Err("is in the journal".to_owned())
    } else {
        Ok("is not in the journal".to_owned())
    }
}

fn none_of(wrong: impl Iterator<Item = String>, right: &str) -> Result<String, String> {
    let wrong: Vec<_> = wrong.collect();
    if wrong.is_empty() {
        Ok(right.to_owned())
    } else {
        Err(wrong.join("; "))
    }
}

fn right_if(is_right: bool, text: String) -> Result<String, String> {
    if is_right { Ok(text) } else { Err(text) }
}

#[cfg(test)]
mod tests {
    use mongodb::bson::Timestamp;

    use super::*;
    use crate::bank::Account;
    use crate::order::Pair;

    const STOPPED: OrderId = OrderId {
        process: 1,
        number: 1,
    };

    fn entry(process: u32, (from, to): (u32, u32), amount: i64, token: i64) -> Entry {
        Entry {
            order: OrderId { process, number: 1 },
            pair: Pair::of(from, to).to_string(),
            from,
            to,
            amount,
            token: mongodb::bson::from_bson(token.into()).unwrap(),
            at: Timestamp {
                time: 0,
                increment: 0,
            },
        }
    }

    /// Two accounts, with the balances that follow from the entries.
    fn books(journal: Vec<Entry>) -> Books {
        let mut accounts: Vec<_> = (1..=2)
            .map(|id| Account {
                id,
                balance: opening_balance(id),
            })
            .collect();
        for entry in &journal {
            accounts[entry.from as usize - 1].balance -= entry.amount;
            accounts[entry.to as usize - 1].balance += entry.amount;
        }
        Books { accounts, journal }
    }

    /// What is wrong, each with its text.
    fn wrong(books: &Books) -> Vec<(&'static str, String)> {
        let findings = judge(books, 2, STOPPED).into_iter();
        findings
            .filter_map(|finding| Some((finding.what, finding.found.err()?)))
            .collect()
    }

    #[test]
    fn right_books_are_right() {
        let right = vec![
            entry(2, (1, 2), 300, 5),
            entry(3, (2, 1), 150, 9),
            entry(4, (1, 2), 50, 10),
        ];
        assert_eq!(wrong(&books(right)), []);
        assert_eq!(wrong(&books(Vec::new())), []);
    }

    #[test]
    fn a_changed_balance_is_found() {
        let mut changed = books(vec![entry(2, (1, 2), 300, 5)]);
        changed.accounts[1].balance += 1;
        let found = wrong(&changed);
        assert_eq!(found[0], ("sum of balances", "10201 of 10200".to_owned()));
        let text = "account 2 has 501, the journal says 500".to_owned();
        assert_eq!(found[1..], [("accounts", text)]);
    }

    #[test]
    fn money_on_the_wrong_account_is_found() {
        let mut moved = books(Vec::new());
        moved.accounts[0].balance -= 1;
        moved.accounts[1].balance += 1;
        let found = wrong(&moved);
        assert!(matches!(&found[..], [("accounts", _)]), "{found:?}");
    }

    #[test]
    fn a_missing_account_is_found() {
        let mut missing = books(Vec::new());
        missing.accounts.pop();
        let found = wrong(&missing);
        let text = "account 2 has nothing, the journal says 200".to_owned();
        assert_eq!(found[1], ("accounts", text));
    }

    #[test]
    fn an_account_below_zero_is_found() {
        let found = wrong(&books(vec![entry(2, (2, 1), 201, 5)]));
        assert_eq!(found, [("below zero", "account 2 has -1".to_owned())]);
    }

    #[test]
    fn both_directions_count_for_the_limit() {
        let found = wrong(&books(vec![entry(2, (1, 2), 300, 5), entry(3, (2, 1), 201, 6)]));
        let text = "501 moved between 1-2, 500 is the limit".to_owned();
        assert_eq!(found, [("over the limit", text)]);
    }

    #[test]
    fn tokens_that_do_not_rise_are_found() {
        for second in [4, 5] {
            let found = wrong(&books(vec![
                entry(2, (1, 2), 10, 5),
                entry(3, (2, 1), 10, second),
            ]));
            assert_eq!(found, [("tokens", "did not rise between 1-2".to_owned())]);
        }
    }

    #[test]
    fn the_stopped_transfer_is_found() {
        let found = wrong(&books(vec![entry(1, (1, 2), 10, 5)]));
        assert!(matches!(&found[..], [("stopped transfer", _)]), "{found:?}");
    }
}
