//! Names that are declared with `#[derive(LockName)]`.

#![allow(unused)]

use std::fmt;

use mongolock::{LockError, LockName, LockProvider, distributed_lock};

// Declarations without a template, with two, or in the wrong place.
#[derive(LockName)]
enum Declared {
    #[lock("report:<id>")]
    #[lock("reports:<id>")]
    Report { id: u64 },
    Invoice(u32),
    #[lock(nightly)]
    Nightly,
    #[lock("order:<0>")]
    Order(#[lock] u8),
}

#[derive(LockName)]
struct WithoutAName {
    id: u64,
}

#[derive(LockName)]
#[lock("all")]
enum Empty {}

#[derive(LockName)]
union Both {
    one: u8,
    other: i8,
}

// Templates that can give the same name.
#[derive(LockName)]
enum Reports<'a> {
    #[lock("report:<id>")]
    Report { id: &'a str },
    #[lock("report:<kind>:<id>")]
    ReportOfKind { kind: &'a str, id: u64 },
}

#[derive(LockName)]
enum User<'a> {
    #[lock("user:<0>:lock")]
    One(&'a str),
    #[lock("user:<0>:<1>:lock")]
    Two(&'a str, &'a str),
}

#[derive(LockName)]
enum Same {
    #[lock("job:<0>")]
    Job(u8),
    #[lock("job:<0>")]
    Task(u8),
}

// The number of the first is never 300.
#[derive(LockName)]
enum Bounds {
    #[lock("port:<0>")]
    Port(u8),
    #[lock("port:300")]
    Default,
}

// The same, and two templates that look like one that is misspelt.
#[derive(LockName)]
enum NearMiss {
    #[lock("report:<id>")]
    Report { id: u64 },
    #[lock("reports:<id>")]
    Reports { id: u64 },
    #[lock("invoice:<number>")]
    Invoice { number: String },
    #[lock("invoice:all")]
    AllInvoices,
}

// Placeholders.
struct Opaque;

#[derive(LockName)]
enum Placeholders {
    #[lock("report:<tenent>:<id>")]
    Report { tenant: String, id: u64 },
    #[lock("invoice:<1>")]
    Invoice(u32),
    #[lock("order:{0}")]
    Order(u32),
    #[lock("user:<self.id>")]
    User { id: u32 },
    #[lock("page:<0><1>")]
    Page(u32, u32),
    #[lock("discount:<0>%<1>")]
    Discount(u32, u32),
}

#[derive(LockName)]
#[lock("opaque:<inner>:<option>")]
struct NotDisplay {
    inner: Opaque,
    option: Option<u8>,
}

// A type that is a name in text already.
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

// Types with the names of integers, in a module, because they hide these.
#[allow(non_camel_case_types)]
mod integers {
    use mongolock::LockName;

    type u64 = String;

    #[derive(LockName)]
    enum Lock {
        #[lock("report:<id>")]
        Report { id: u64 },
        #[lock("report:all")]
        AllReports,
    }

    #[derive(LockName)]
    #[lock("<0>:<1>")]
    struct Generic<i8: std::fmt::Display>(i8, u8);
}

// Declared names in the attribute, and by hand.
#[derive(LockName)]
enum Lock<'a> {
    #[lock("report:<tenant>:<id>")]
    Report { tenant: &'a str, id: u64 },
}

#[distributed_lock(name = Lock::Reprot { tenant, id })]
async fn misspelt_variant(tenant: &str, id: u64) -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = Lock::Report { tenant })]
async fn missing_field(tenant: &str) -> Result<(), LockError> { Ok(()) }

async fn misspelt_variant_by_hand(provider: &LockProvider) -> Result<(), LockError> {
    provider.lock(Lock::Repotr { tenant: "a", id: 1 }).acquire().await?.release().await
}

// A name that takes an argument away from the body.
#[derive(LockName)]
#[lock("owned:<tenant>")]
struct Owned {
    tenant: String,
}

#[distributed_lock(name = Owned { tenant })]
async fn moved_argument(tenant: String) -> Result<usize, LockError> {
    Ok(tenant.len())
}

fn main() {}
