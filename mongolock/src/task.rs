//! Where the library starts its tasks: the simulation stops and crashes them with the process that they belong to.

#[cfg(test)]
pub(crate) use crate::simulation::spawn;
#[cfg(not(test))]
pub(crate) use tokio::spawn;
