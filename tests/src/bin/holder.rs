//! Starts a server, prints its process ids and directories, and waits to be killed. A test uses it to check that
//! nothing is left behind.

use std::env;
use std::io::{self, Read, Write};

use mongolock_tests::{Server, ServerOptions, SupportError};

#[tokio::main]
async fn main() -> Result<(), SupportError> {
    let options = match env::args().nth(1).as_deref() {
        Some("three") => ServerOptions::three_members(),
        _ => ServerOptions::single(),
    };
    let server = Server::start(options).await?;
    for node in server.nodes() {
        println!(
            "{} {}",
            node.pid().unwrap_or_default(),
            node.directory().display()
        );
    }
    println!("ready");
    let say = |source| SupportError::Io {
        what: "holder's own pipes".to_owned(),
        source,
    };
    io::stdout().flush().map_err(say)?;
    io::stdin().read_to_end(&mut Vec::new()).map(drop).map_err(say)
}
