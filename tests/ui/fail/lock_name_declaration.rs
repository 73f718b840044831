use mongolock::LockName;

#[derive(LockName)]
enum Lock {
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
struct Report {
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

fn main() {}
