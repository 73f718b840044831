//! A real MongoDB for tests and examples.
//!
//! - [`test_db`]: a fresh database on the one server of the test process ([`shared`]). `MONGODB_URI` names another
//!   server instead.
//! - [`Server`]: a server or a replica set of one's own, to be killed, stopped and stepped down.
//! - [`Proxy`] and [`FailPoint`]: a bad network, and a server that answers with errors.
//! - [`Deployment::from_env_or_start`]: what an example calls.
//!
//! Servers end with the process that started them, however it ends. The `mongod` is that of `MONGOD`, of `PATH`, or
//! one fetched into cargo's target directory.
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

mod apart;
mod database;
mod deployment;
mod error;
mod fail_point;
mod fetch;
mod mongod;
mod node;
mod options;
mod place;
mod proxy;
mod server;
mod wait;
mod watchdog;

pub use crate::database::{TestDb, test_db};
pub use crate::deployment::{Deployment, shared};
pub use crate::error::{SupportError, must};
pub use crate::fail_point::{FailPoint, FailPointGuard};
pub use crate::mongod::MongodSource;
pub use crate::node::Node;
pub use crate::options::ServerOptions;
pub use crate::proxy::{Direction, Fault, Injected, Proxy};
pub use crate::server::Server;
pub use crate::wait::eventually;
