//! The user of this program, for the owners of leases.

use nix::unistd::{Uid, User, gethostname};

/// The name of the user.
fn user() -> String {
    let id = Uid::effective();
    let user = User::from_uid(id).ok().flatten();
    user.map_or_else(|| id.to_string(), |user| user.name)
}

/// The user and the host, as the owner of a lease.
pub(crate) fn person() -> String {
    let host = gethostname().unwrap_or_default();
    format!("{}@{}", user(), host.to_string_lossy())
}
