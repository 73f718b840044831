//! Tests of the test support itself: the other suites rely on its servers, its proxy and its fail points.

mod behaviours_table;
mod binary;
mod fail_points;
mod foreign;
mod leftovers;
mod proxy;
mod servers;
