//! Tests of the test support itself: the other suites rely on its servers, its proxy and its fail points. That servers of each kind
//! start, stop and answer is shown by the suites that use them.

mod behaviours_table;
mod fail_points;
mod leftovers;
mod proxy;
mod servers;
