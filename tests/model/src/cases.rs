//! Every model that is explored, with what must come of it.

use crate::check::explore;
use crate::lease::{Counts, IN_ORDER, Lease, ONE_HOLDER, RISES};
use crate::protocol::Rules;

/// One model with its bounds.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// Whether it shows what it must, which it prints under its name.
    pub(crate) run: fn(&str) -> bool,
}

impl Case {
    /// Whether it takes minutes.
    pub(crate) fn is_long(&self) -> bool {
        self.name.starts_with("long: ")
    }
}

/// A table of cases. A row has the name of the case, its model, and the fields of the model that differ. If a rule or an
/// assumption is missing, the property that must break stands behind the arrow.
macro_rules! cases {
    ($($name:literal: $model:expr $(, $($field:ident).+ = $value:expr)* $(=> $broken:expr)?;)+) => {
        vec![$(Case {
            name: $name,
            run: |name| {
                #[allow(unused_mut)]
                let mut model = $model;
                $(model.$($field).+ = $value;)*
                explore(name, model, None$(.or(Some($broken)))?)
            },
        }),+]
    };
}

/// Two processes, which acquire the lock this many times together, and no faults.
fn lease(claims: u8) -> Lease {
    Lease {
        rules: Rules::with_expiry(2),
        processes: 2,
        has_peer: false,
        most: Counts {
            claims,
            ..Counts::default()
        },
        horizon: 5,
        late_effects: false,
        retention: None,
        deletes_at_once: false,
        is_fenced: true,
        clocks: [0, 0],
        majority: true,
    }
}

/// Commands may take effect late.
fn late(claims: u8) -> Lease {
    Lease {
        late_effects: true,
        ..lease(claims)
    }
}

/// One process of the library, and a peer that deletes documents.
fn peer() -> Lease {
    Lease {
        processes: 1,
        has_peer: true,
        ..lease(3)
    }
}

/// All of them.
pub(crate) fn all() -> Vec<Case> {
    cases! {
        "three claims of two processes": lease(3), horizon = 4;
        "commands that take effect late": late(2), horizon = 4;
        "the TTL index, and a peer that deletes documents": peer(), retention = Some(1), horizon = 4;
        "an election": lease(2), most.elections = 1, horizon = 4;
        "an election, clocks apart by the takeover margin":
            lease(2), most.elections = 1, rules.takeover_margin = 1, clocks = [0, 1];

        "no fence, and a process that pauses": lease(2), is_fenced = false => IN_ORDER;
        "a release that deletes, and tokens that count from 1":
            lease(3), rules.is_peer = true => IN_ORDER;
        "replies before a majority has the write (w: 1)":
            lease(2), most.elections = 1, majority = false => ONE_HOLDER;
        "clocks further apart than the takeover margin":
            lease(2), most.elections = 1, rules.expiry = 3, rules.takeover_margin = 1, clocks = [0, 2]
            => ONE_HOLDER;
        "a document deleted while an acquire request waits in the server":
            late(3), rules.expiry = 1, horizon = 1, retention = Some(0) => RISES;
        "a document deleted within the millisecond of its lease":
            peer(), horizon = 2, deletes_at_once = true => RISES;

        "long: three claims of two processes": lease(3);
        "long: the TTL index, a peer that deletes documents": peer(), retention = Some(1);
        "long: commands that take effect late": late(3), horizon = 3;
        "long: three processes": lease(3), processes = 3;
        "long: elections, clocks apart by the margin":
            lease(2), most.elections = 2, rules.takeover_margin = 1, clocks = [1, 0];
    }
}
