//! What the driver's words mean, where they hide it.

/// Words of the driver, what they mean, and what to do.
pub(super) struct Known {
    /// What stands in the driver's text: one of these.
    pub(super) words: &'static [&'static str],
    /// What it means; `None` where the driver's own words say it.
    pub(super) meaning: Option<&'static str>,
    pub(super) help: &'static str,
}

/// The first row of a table whose words stand in a text of the driver.
pub(super) fn find(table: &'static [Known], text: &str) -> Option<&'static Known> {
    let stands = |known: &&Known| known.words.iter().any(|words| text.contains(words));
    table.iter().find(stands)
}
