//! How much memory this process uses.

use anyhow::Context;

/// The resident set in bytes. It counts whole pages and what the allocator keeps for later, so that only differences
/// over many thousand things mean something.
pub(crate) fn resident() -> anyhow::Result<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    let pages = statm.split(' ').nth(1).context("the second field of statm")?;
    let page = u64::try_from(rustix::param::page_size())?;
    Ok(pages.parse::<u64>()? * page)
}

/// What each of so many things takes.
#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
pub(crate) fn each(before: u64, after: u64, count: usize) -> f64 {
    after.saturating_sub(before) as f64 / count as f64
}
