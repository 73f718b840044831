//! What is to be transferred.

use std::fmt;

use serde::{Deserialize, Serialize};

/// An order for one transfer.
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

impl Order {
    /// The order with this number: every process begins with the accounts 1 and 2, and continues with all pairs in both
    /// directions.
    pub(crate) fn numbered(id: OrderId, accounts: u32) -> Self {
        let OrderId { process, number } = id;
        let turn = number - 1;
        // The accounts form a circle: first the pairs of neighbours, then those with one account between them, and so on.
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

    /// Both accounts in a fixed order, such as `1-2`: the same for transfers in both directions.
    pub(crate) fn pair(&self) -> String {
        format!("{}-{}", self.from.min(self.to), self.from.max(self.to))
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn orders(process: u32, accounts: u32) -> impl Iterator<Item = Order> {
        (1..=200).map(move |number| Order::numbered(OrderId { process, number }, accounts))
    }

    #[test]
    fn orders_begin_with_the_first_pair_and_contain_all_pairs_in_both_directions() {
        for accounts in 2..=20 {
            for process in 2..=64 {
                let first = orders(process, accounts).next().unwrap();
                assert_eq!(first.pair(), "1-2");
                assert!((10..=120).contains(&first.amount));
            }
        }
        for accounts in [2, 3, 5] {
            let all = || (2..=3).flat_map(|process| orders(process, accounts));
            let ways: BTreeSet<_> = all().map(|order| (order.from, order.to)).collect();
            let pairs: BTreeSet<_> = all().map(|order| order.pair()).collect();
            assert_eq!(ways.len(), (accounts * (accounts - 1)) as usize);
            assert_eq!(pairs.len(), ways.len() / 2);
            assert!(ways.iter().all(|(from, to)| from != to));
        }
    }
}
