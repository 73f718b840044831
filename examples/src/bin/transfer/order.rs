//! What is to be transferred.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One transfer that somebody has ordered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) id: OrderId,
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) amount: i64,
}

/// The process that makes the transfer, and its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OrderId {
    pub(crate) process: u32,
    pub(crate) number: u32,
}

/// Two accounts, whichever of them pays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Pair {
    low: u32,
    high: u32,
}

impl Pair {
    pub(crate) fn of(one: u32, other: u32) -> Self {
        Self {
            low: one.min(other),
            high: one.max(other),
        }
    }
}

/// As in the names of the locks: `1-2`.
impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.low, self.high)
    }
}

/// For errors.
impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OrderId { process, number } = self.id;
        let Self { from, to, amount, .. } = self;
        write!(
            f,
            "process {process}, transfer {number}: {amount} from {from} to {to}"
        )
    }
}

impl Order {
    /// The order with this number: all processes begin with the accounts 1 and 2, and go round all pairs in both
    /// directions from there.
    pub(crate) fn numbered(id: OrderId, accounts: u32) -> Self {
        let OrderId { process, number } = id;
        let turn = number - 1;
        // Neighbours first, then those two apart, and so on round the circle.
        let distance = 1 + turn / accounts % (accounts - 1);
        let one = turn % accounts;
        let other = (one + distance) % accounts;
        let (from, to) = if (process + number).is_multiple_of(2) {
            (one, other)
        } else {
            (other, one)
        };
        Self {
            id,
            from: from + 1,
            to: to + 1,
            amount: 10 * i64::from(1 + (3 * process + 5 * number) % 12),
        }
    }

    /// Both accounts in a fixed order: a transfer and the one in the other direction are of one pair.
    pub(crate) fn pair(&self) -> Pair {
        Pair::of(self.from, self.to)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn orders(process: u32, accounts: u32) -> impl Iterator<Item = Order> {
        (1..=200).map(move |number| Order::numbered(OrderId { process, number }, accounts))
    }

    #[test]
    fn both_directions_are_one_pair() {
        assert_eq!(Pair::of(2, 1), Pair::of(1, 2));
        assert_eq!(Pair::of(10, 9).to_string(), "9-10");
    }

    #[test]
    fn orders_begin_with_the_first_pair() {
        for process in 2..=64 {
            for accounts in 2..=20 {
                let first = orders(process, accounts).next().unwrap();
                assert_eq!(first.pair(), Pair::of(1, 2));
                assert!((10..=120).contains(&first.amount));
            }
        }
    }

    #[test]
    fn orders_go_round_all_pairs_in_both_directions() {
        for accounts in [2, 3, 5] {
            let ways: BTreeSet<_> = (2..=3)
                .flat_map(|process| orders(process, accounts))
                .map(|order| (order.from, order.to))
                .collect();
            assert_eq!(ways.len(), (accounts * (accounts - 1)) as usize);
            assert!(ways.iter().all(|(from, to)| from != to));
        }
    }
}
