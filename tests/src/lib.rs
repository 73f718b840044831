//! Real MongoDB servers for the tests and the example programs.
//!
//! Most tests begin with [`test_db`], a fresh database on one of the servers that the tests of a process share. What breaks a
//! server has one of its own ([`Server`], [`LentServer`], [`Set`]); the network and the server fail on demand ([`Proxy`],
//! [`FailPoint`]); processes are killed and paused ([`Actor`]), and one checker judges their [`History`]. Functions return an
//! error for [`must`], or panic themselves.
//!
//! A server ends with the process that started it, also when that process is killed. The `mongod` binary is the one of
//! `MONGOD`, else the one on `PATH`, else one that is downloaded into cargo's target directory.
//!
//! ```no_run
//! use mongodb::bson::{Document, doc};
//! use mongolock_tests::{must, test_db};
//!
//! # #[tokio::main]
//! # async fn main() {
//! let db = test_db().await;
//! let stock = db.database().collection::<Document>("stock");
//! must(stock.insert_one(doc! { "_id": 1 }).await);
//! # }
//! ```

#![allow(
    clippy::missing_errors_doc,
    clippy::missing_panics_doc,
    clippy::must_use_candidate,
    reason = "an error or a panic fails the test with a message that says what was tried, and a result that is not used is seen in it"
)]

mod actor;
mod apart;
mod database;
mod deployment;
mod error;
mod fail_point;
mod history;
mod lent;
mod lock_documents;
mod mongod;
mod node;
mod options;
mod proxy;
mod purpose;
mod recorder;
mod rounds;
mod server;
mod set;
mod stable_api;
mod wait;
mod watchdog;
mod wrong_clock;

/// The examples of the macros' documentation, which `mongolock-macros` cannot run: it must not depend on `mongolock`.
#[cfg(doctest)]
mod macros {
    #[doc = include_str!("../../mongolock-macros/src/distributed_lock.md")]
    struct DistributedLock;

    #[doc = include_str!("../../mongolock-macros/src/lock_name.md")]
    struct LockName;
}

pub use crate::actor::{Actor, end_with_parent, order, say, tell};
pub use crate::database::{TestDb, test_db};
pub use crate::deployment::{Deployment, shared};
pub use crate::error::{SupportError, must};
pub use crate::fail_point::{FailPoint, FailPointGuard};
pub use crate::history::{Event, History, Hold, Outcome, Step, Verdict, monotonic_now};
pub use crate::lent::LentServer;
pub use crate::lock_documents::{change_lock, claim, lock_document, locks, transaction_on};
pub use crate::mongod::{find_mongod, target_directory};
pub use crate::node::Node;
pub use crate::options::ServerOptions;
pub use crate::proxy::{Direction, Fault, Injected, Proxy};
pub use crate::purpose::{Meant, Purpose};
pub use crate::recorder::{Commands, names, recorded, with_parameter};
pub use crate::rounds::rounds;
pub use crate::server::Server;
pub use crate::set::Set;
pub use crate::stable_api::{stable_client, stable_options};
pub use crate::wait::{AMPLE, BEFORE_EXPIRY, eventually, until};
pub use crate::wrong_clock::{one_clock_ahead, wrong_clock};
