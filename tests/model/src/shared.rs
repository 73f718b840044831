//! What several models have: the numbers of what happens, messages on their way, and processes that are alike.

/// How often something happens in all processes together: so far in a state, and at most in a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Counts {
    /// A process begins to acquire the lock, with a claim of its own.
    pub(crate) claims: u8,
    /// A request is sent again.
    pub(crate) copies: u8,
    /// A renewal is sent.
    pub(crate) renewals: u8,
    /// An operator releases the lock by force.
    pub(crate) forced: u8,
    /// The primary changes.
    pub(crate) elections: u8,
    /// A transaction begins.
    pub(crate) transactions: u8,
}

/// Takes a message from those that are on their way: it arrives, or it is lost. `None` if it is not there.
pub(crate) fn take<M: PartialEq>(messages: &mut Vec<M>, message: &M) -> Option<M> {
    let index = messages.iter().position(|other| other == message)?;
    Some(messages.remove(index))
}

/// The items of a sorted list with their places, and of those that are alike the first one only: they have the same steps.
pub(crate) fn unlike<T: PartialEq>(items: &[T]) -> impl Iterator<Item = (usize, &T)> {
    let is_first = move |(place, item): &(usize, &T)| *place == 0 || items[place - 1] != **item;
    items.iter().enumerate().filter(is_first)
}

// Properties of several models, and of the cases that must break them.
pub(crate) const ONE_HOLDER: &str = "no two processes rely on the lock";
pub(crate) const RISES: &str = "a later holder has a greater token";
pub(crate) const IN_ORDER: &str = "fenced writes take effect in the order of the holders";
