use mongolock::LockName;

#[derive(LockName)]
enum Lock<'a> {
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

fn main() {}
