//! How much memory this process uses.

use anyhow::Context;

use crate::samples::number;

/// The resident set in bytes. It counts whole pages and memory that the allocator keeps for later, so that only
/// differences over many thousand things mean something.
pub(crate) fn resident() -> anyhow::Result<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    let pages = statm.split(' ').nth(1).context("the second field of statm")?;
    let page = u64::try_from(rustix::param::page_size())?;
    Ok(pages.parse::<u64>()? * page)
}

/// The memory that each of this number of things takes, in bytes.
pub(crate) fn each(before: u64, after: u64, count: usize) -> f64 {
    number(after.saturating_sub(before)) / number(count)
}
