use std::fmt;

use mongolock::LockName;

#[derive(LockName)]
#[lock("report:<id>")]
struct Report {
    id: u64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.id.fmt(f)
    }
}

fn main() {}
