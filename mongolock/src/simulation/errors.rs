//! Errors of the driver, as the library gets them.

use std::sync::OnceLock;

use mongodb::bson::doc;
use mongodb::error::{Error, ErrorKind, WriteFailure};
use tokio::runtime::Builder;

use super::choice;
use crate::store::reply;

pub(super) const OUT_OF_TIME: i32 = 50;
pub(super) const OVERLOADED: i32 = 462;
pub(super) const NOT_PRIMARY: i32 = 10107;

/// The codes of errors after which the server has not applied the command, and a repetition may succeed.
const NOTHING_DONE: [i32; 6] = [91, 189, 11600, 13435, 13436, 133];

/// The codes of write concern errors: the write was made, and is not confirmed.
const NOT_CONFIRMED: [i32; 4] = [64, 91, 189, 11602];

pub(super) fn command(code: i32) -> Error {
    let fields = doc! { "code": code, "codeName": "Simulated", "errmsg": "simulated" };
    ErrorKind::Command(reply::read(&fields)).into()
}

pub(super) fn broken_connection() -> Error {
    std::io::Error::from(std::io::ErrorKind::ConnectionReset).into()
}

/// The error of a command that was not applied.
pub(super) fn nothing_done() -> Error {
    choice(&[command(choice(&NOTHING_DONE)), no_server(), broken_connection()])
}

/// The error of a command that was applied.
pub(super) fn not_confirmed() -> Error {
    let fields = doc! { "code": choice(&NOT_CONFIRMED), "codeName": "Simulated", "errmsg": "simulated" };
    let concern = WriteFailure::WriteConcernError(reply::read(&fields));
    choice(&[ErrorKind::Write(concern).into(), broken_connection()])
}

/// The error for a server that cannot be reached. Only the driver can construct it, so it is taken from a client of a
/// port without a server.
pub(super) fn no_server() -> Error {
    static ERROR: OnceLock<Error> = OnceLock::new();
    let ask = || std::thread::spawn(ping_no_server).join();
    ERROR.get_or_init(|| ask().expect("it has no panics")).clone()
}

fn ping_no_server() -> Error {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("there are resources for it").block_on(async {
        let uri = "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=1";
        let client = mongodb::Client::with_uri_str(uri).await;
        let database = client.expect("the text is valid").database("admin");
        let ping = database.run_command(doc! { "ping": 1 }).await;
        ping.expect_err("no server has this port")
    })
}
