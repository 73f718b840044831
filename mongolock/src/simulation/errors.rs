//! Errors of the driver, as the library gets them.

use std::sync::OnceLock;

use fastrand::Rng;
use mongodb::bson::doc;
use mongodb::error::{Error, ErrorKind, WriteFailure};

use crate::store::reply;

pub(crate) const OUT_OF_TIME: i32 = 50;
pub(super) const OVERLOADED: i32 = 462;
pub(super) const NOT_PRIMARY: i32 = 10107;
pub(crate) const STEPPED_DOWN: i32 = 11602;
const UNAUTHORIZED: i32 = 13;

/// The codes of transient errors after which the server has not applied the command.
const NOTHING_DONE: [i32; 6] = [91, 189, 11600, 13435, 13436, 133];

/// The codes of write concern errors: the write was made, and is not confirmed.
const NOT_CONFIRMED: [i32; 4] = [64, 91, 189, 11602];

/// An error, and what happens to the command that ends with it.
pub(super) struct Fault {
    pub(super) error: Error,
    /// Whether the server applies the command all the same.
    pub(super) is_executed: bool,
}

pub(super) fn command(code: i32) -> Error {
    let fields = doc! { "code": code, "codeName": "Simulated", "errmsg": "simulated" };
    ErrorKind::Command(reply::read(&fields)).into()
}

pub(super) fn broken_connection() -> Error {
    std::io::Error::from(std::io::ErrorKind::ConnectionReset).into()
}

/// A random transient error.
pub(super) fn draw(rng: &mut Rng) -> Fault {
    let (error, is_executed) = match rng.u8(0..5) {
        0 => (broken_connection(), rng.bool()),
        1 => (no_server(), false),
        2 => (not_confirmed(*rng.choice(&NOT_CONFIRMED).unwrap_or(&64)), true),
        _ => (command(*rng.choice(&NOTHING_DONE).unwrap_or(&91)), false),
    };
    Fault { error, is_executed }
}

/// The error after which a repetition is useless.
pub(super) fn refusal() -> Fault {
    Fault {
        error: command(UNAUTHORIZED),
        is_executed: false,
    }
}

pub(super) fn is_permanent(error: &Error) -> bool {
    matches!(&*error.kind, ErrorKind::Command(command) if command.code == UNAUTHORIZED)
}

pub(super) fn is_not_confirmed(error: &Error) -> bool {
    matches!(&*error.kind, ErrorKind::Write(WriteFailure::WriteConcernError(_)))
}

/// The error for a write that was made, and that no majority has confirmed.
pub(crate) fn not_confirmed(code: i32) -> Error {
    let fields = doc! { "code": code, "codeName": "Simulated", "errmsg": "simulated" };
    ErrorKind::Write(WriteFailure::WriteConcernError(reply::read(&fields))).into()
}

/// The error for a server that cannot be reached. Only the driver can construct it, so it is taken from a client of a
/// port without a server.
pub(super) fn no_server() -> Error {
    static ERROR: OnceLock<Error> = OnceLock::new();
    ERROR
        .get_or_init(|| std::thread::spawn(ping_no_server).join().unwrap())
        .clone()
}

fn ping_no_server() -> Error {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let uri = "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=1";
        let client = mongodb::Client::with_uri_str(uri).await.unwrap();
        let database = client.database("admin");
        database.run_command(doc! { "ping": 1 }).await.unwrap_err()
    })
}
