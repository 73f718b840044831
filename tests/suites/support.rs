//! Does the test support itself do what the suites rely on?

#[path = "support/binary.rs"]
mod binary;
#[path = "support/fail_points.rs"]
mod fail_points;
#[path = "support/faults.rs"]
mod faults;
#[path = "support/foreign.rs"]
mod foreign;
#[path = "support/leftovers.rs"]
mod leftovers;
#[path = "support/proxy.rs"]
mod proxy;
#[path = "support/servers.rs"]
mod servers;
