use mongolock::LockName;

#[derive(LockName)]
enum Lock {
    #[lock("report:<id>")]
    Report { id: u64 },
    #[lock("reports:<id>")]
    Reports { id: u64 },
    #[lock("invoice:<number>")]
    Invoice { number: String },
    #[lock("invoice:all")]
    AllInvoices,
}

fn main() {}
