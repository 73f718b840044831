//! Says which feature is missing before the driver does, which is compiled later and names its own features; and has the
//! tests that start servers compiled where they are: the package has neither them nor the crate that starts the servers.

use std::env;
use std::path::Path;

/// The features of which one must be on: the driver does not build without TLS.
const TLS: [&str; 2] = ["rustls-tls", "openssl-tls"];

/// One of the files that are left out of the package.
const SERVER_TESTS: &str = "src/store/mongo/encoder/tests.rs";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(server_tests)");
    if Path::new(SERVER_TESTS).exists() {
        println!("cargo::rustc-cfg=server_tests");
    }
    if !TLS.into_iter().any(is_on) {
        let [first, second] = TLS;
        println!(
            "cargo::error=no TLS implementation is chosen: switch on the feature `{first}` or `{second}` of mongolock \
             (`{first}` also if the application has the driver use another implementation of rustls)"
        );
    }
}

/// Whether a feature of this crate is on.
fn is_on(feature: &str) -> bool {
    let name = feature.to_uppercase().replace('-', "_");
    env::var_os(format!("CARGO_FEATURE_{name}")).is_some()
}
