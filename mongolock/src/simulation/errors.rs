//! Errors of the driver, as the library gets them.

use std::sync::OnceLock;

use fastrand::Rng;
use mongodb::bson::doc;
use mongodb::error::{Error, ErrorKind, WriteFailure};

use crate::store::reply;

pub(super) const OUT_OF_TIME: i32 = 50;
pub(super) const NOT_PRIMARY: i32 = 10107;
pub(super) const STEPPED_DOWN: i32 = 11602;
const UNAUTHORIZED: i32 = 13;

/// Codes of a server that has done nothing and will soon work again.
const NOTHING_DONE: [i32; 6] = [91, 189, 11600, 13435, 13436, 133];

/// Codes of a server that has made the write, and could not have it confirmed.
const NOT_CONFIRMED: [i32; 4] = [64, 91, 189, 11602];

/// What becomes of a command that ends with an error.
pub(super) struct Fault {
    pub(super) error: Error,
    /// Whether the server makes the change all the same.
    pub(super) is_executed: bool,
}

pub(super) fn command(code: i32) -> Error {
    let fields = doc! { "code": code, "codeName": "Simulated", "errmsg": "simulated" };
    ErrorKind::Command(reply::read(&fields)).into()
}

pub(super) fn broken_connection() -> Error {
    std::io::Error::from(std::io::ErrorKind::ConnectionReset).into()
}

/// Any error that passes by itself.
pub(super) fn draw(rng: &mut Rng) -> Fault {
    let (error, is_executed) = match rng.u8(0..5) {
        0 => (broken_connection(), rng.bool()),
        1 => (no_server(), false),
        2 => (not_confirmed(*rng.choice(&NOT_CONFIRMED).unwrap_or(&64)), true),
        _ => (command(*rng.choice(&NOTHING_DONE).unwrap_or(&91)), false),
    };
    Fault { error, is_executed }
}

/// The one error after which asking again is useless.
pub(super) fn refusal() -> Fault {
    Fault {
        error: command(UNAUTHORIZED),
        is_executed: false,
    }
}

pub(super) fn is_permanent(error: &Error) -> bool {
    matches!(&*error.kind, ErrorKind::Command(command) if command.code == UNAUTHORIZED)
}

fn not_confirmed(code: i32) -> Error {
    let fields = doc! { "code": code, "codeName": "Simulated", "errmsg": "simulated" };
    ErrorKind::Write(WriteFailure::WriteConcernError(reply::read(&fields))).into()
}

/// The driver lets nobody else make this error: it is taken from a client of a port at which nothing listens.
pub(super) fn no_server() -> Error {
    static ERROR: OnceLock<Error> = OnceLock::new();
    ERROR
        .get_or_init(|| std::thread::spawn(ask_nobody).join().unwrap())
        .clone()
}

fn ask_nobody() -> Error {
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
