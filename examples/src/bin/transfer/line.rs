//! The line of a transfer.

use mongolock::FencingToken;

use crate::order::Order;

pub(crate) const HEADING: &str = "process    from -> to  amount     fencing token";

pub(crate) fn line(order: &Order, token: Option<FencingToken>, outcome: &str) -> String {
    let Order {
        id, from, to, amount, ..
    } = order;
    let token = token.map_or("-".to_owned(), |token| token.to_string());
    format!(
        "{:>7}  {from:>6} -> {to:<2}  {amount:>6}  {token:>16}  {outcome}",
        id.process
    )
}
