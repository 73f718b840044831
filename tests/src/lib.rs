//! A real MongoDB for tests and examples.

mod apart;
mod database;
mod deployment;
mod error;
mod fetch;
mod mongod;
mod node;
mod options;
mod server;
mod wait;
mod watchdog;

pub use crate::database::{TestDb, test_db};
pub use crate::deployment::{Deployment, shared};
pub use crate::error::{SupportError, must};
pub use crate::mongod::MongodSource;
pub use crate::node::Node;
pub use crate::options::ServerOptions;
pub use crate::server::Server;
pub use crate::wait::eventually;
