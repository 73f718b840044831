#![allow(non_camel_case_types)]

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

fn main() {}
