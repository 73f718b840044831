//! The memory that this process uses.

use anyhow::Context;

/// The resident set size in bytes. It counts whole pages and memory that the allocator keeps, so only a difference over
/// many thousand objects is meaningful.
pub(crate) fn resident() -> anyhow::Result<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    let pages = statm.split(' ').nth(1).context("the second field of statm")?;
    let page = u64::try_from(rustix::param::page_size())?;
    Ok(pages.parse::<u64>()? * page)
}

/// The share of one of `count` objects in a growth from `before` to `after`.
#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
pub(crate) fn each(before: u64, after: u64, count: usize) -> f64 {
    after.saturating_sub(before) as f64 / count as f64
}
