//! The self-tests of the test support: servers, proxy and fail points do what the other suites rely on.

mod behaviours_table;
mod binary;
mod fail_points;
mod faults;
mod foreign;
mod leftovers;
mod proxy;
mod servers;
