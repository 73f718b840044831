//! Whether the books are right.

use std::collections::{BTreeMap, BTreeSet};

use mongolock_examples::summary::Summary;

use crate::STOPPED;
use crate::bank::{Books, Entry, LIMIT, opening_balance};

/// Compares the balances with the journal, and the journal with the rules.
pub(crate) fn check(books: &Books, accounts: u32) -> Summary {
    let mut summary = Summary::default();
    summary.row("journal entries", books.journal.len());

    let opened: i64 = (1..=accounts).map(opening_balance).sum();
    let sum: i64 = books.accounts.iter().map(|account| account.balance).sum();
    let wrong = (sum != opened).then(|| format!("the balances sum up to {sum}, not {opened}"));
    summary.finding("sum of balances", &sum.to_string(), wrong);

    let passed = "each has its opening balance and its entries";
    summary.finding("accounts", passed, wrong_accounts(books, accounts));

    let negative = books.accounts.iter().filter(|account| account.balance < 0);
    let wrong = negative.map(|account| format!("account {} has {}", account.id, account.balance));
    summary.finding("below zero", "none", wrong);

    let pairs = pairs(&books.journal);
    let moved = |entries: &[&Entry]| entries.iter().map(|entry| entry.amount).sum::<i64>();
    let moved = pairs.iter().map(|(pair, entries)| (pair, moved(entries)));
    let wrong = moved.filter(|(_, moved)| *moved > LIMIT);
    let wrong = wrong.map(|(pair, moved)| format!("{moved} moved between {pair}, {LIMIT} is the limit"));
    summary.finding("over the limit", "none", wrong);

    let rise = |entries: &[&Entry]| entries.is_sorted_by(|earlier, later| earlier.token < later.token);
    let wrong = pairs.iter().filter(|(_, entries)| !rise(entries));
    let wrong = wrong.map(|(pair, _)| format!("tokens do not rise between {pair}"));
    let passed = "rise strictly between any two accounts, in the order of the entries";
    summary.finding("tokens", passed, wrong);

    let is_booked = books.journal.iter().any(|entry| entry.order == STOPPED.id);
    let wrong = is_booked.then(|| "the stopped transfer is in the journal".to_owned());
    summary.finding("stopped transfer", "is not in the journal", wrong);
    summary
}

/// The entries of each pair, in the order in which they were written.
fn pairs(journal: &[Entry]) -> BTreeMap<&str, Vec<&Entry>> {
    let mut pairs: BTreeMap<&str, Vec<&Entry>> = BTreeMap::new();
    for entry in journal {
        pairs.entry(&entry.pair).or_default().push(entry);
    }
    pairs
}

/// The accounts whose balances do not follow from the journal.
fn wrong_accounts(books: &Books, accounts: u32) -> Vec<String> {
    let balances: BTreeMap<_, _> = books.accounts.iter().map(|a| (a.id, a.balance)).collect();
    let mut expected: BTreeMap<_, _> = (1..=accounts).map(|id| (id, opening_balance(id))).collect();
    for entry in &books.journal {
        *expected.entry(entry.from).or_default() -= entry.amount;
        *expected.entry(entry.to).or_default() += entry.amount;
    }
    let ids: BTreeSet<_> = balances.keys().chain(expected.keys()).collect();
    let text = |amount: Option<&i64>| amount.map_or("nothing".to_owned(), i64::to_string);
    ids.into_iter()
        .map(|id| (id, balances.get(id), expected.get(id)))
        .filter(|(_, balance, expected)| balance != expected)
        .map(|(id, balance, expected)| {
            format!(
                "account {id} has {}, the journal says {}",
                text(balance),
                text(expected)
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use mongolock::FencingToken;

    use super::*;
    use crate::bank::Account;
    use crate::order::{Order, OrderId};

    fn entry(process: u32, (from, to): (u32, u32), amount: i64, token: i64) -> Entry {
        let order = Order {
            id: OrderId { process, number: 1 },
            from,
            to,
            amount,
        };
        Entry::new(&order, FencingToken::from(token))
    }

    /// Two accounts, with the balances that follow from the entries.
    fn books(journal: Vec<Entry>) -> Books {
        let mut accounts: Vec<_> = (1..=2).map(Account::opened).collect();
        for entry in &journal {
            accounts[entry.from as usize - 1].balance -= entry.amount;
            accounts[entry.to as usize - 1].balance += entry.amount;
        }
        Books { accounts, journal }
    }

    #[track_caller]
    fn finds(books: &Books, failures: &[&str]) {
        assert_eq!(check(books, 2).failures(), failures);
    }

    #[test]
    fn right_books_pass() {
        let right = vec![
            entry(2, (1, 2), 300, 5),
            entry(3, (2, 1), 150, 9),
            entry(4, (1, 2), 50, 10),
        ];
        finds(&books(right), &[]);
        finds(&books(Vec::new()), &[]);
    }

    #[test]
    fn wrong_balances_are_found() {
        let mut changed = books(vec![entry(2, (1, 2), 300, 5)]);
        changed.accounts[1].balance += 1;
        let account = "account 2 has 501, the journal says 500";
        finds(&changed, &["the balances sum up to 10201, not 10200", account]);

        let mut moved = books(Vec::new());
        moved.accounts[0].balance -= 1;
        moved.accounts[1].balance += 1;
        let first = "account 1 has 9999, the journal says 10000";
        finds(&moved, &[first, "account 2 has 201, the journal says 200"]);

        let mut missing = books(Vec::new());
        missing.accounts.pop();
        let account = "account 2 has nothing, the journal says 200";
        finds(&missing, &["the balances sum up to 10000, not 10200", account]);

        finds(&books(vec![entry(2, (2, 1), 201, 5)]), &["account 2 has -1"]);
    }

    #[test]
    fn both_directions_count_for_the_limit() {
        let journal = vec![entry(2, (1, 2), 300, 5), entry(3, (2, 1), 201, 6)];
        finds(&books(journal), &["501 moved between 1-2, 500 is the limit"]);
    }

    #[test]
    fn tokens_that_do_not_rise_are_found() {
        for second in [4, 5] {
            let journal = vec![entry(2, (1, 2), 10, 5), entry(3, (2, 1), 10, second)];
            finds(&books(journal), &["tokens do not rise between 1-2"]);
        }
    }

    #[test]
    fn the_stopped_transfer_is_found() {
        let journal = vec![entry(1, (1, 2), 10, 5)];
        finds(&books(journal), &["the stopped transfer is in the journal"]);
    }
}
