//! What a link to the crate's documentation leads to: rustdoc does not check absolute links.

use std::fs;
use std::path::PathBuf;

use crate::workspace;

pub(crate) const DOCUMENTATION: &str = "https://docs.rs/mongolock/latest/mongolock/";

/// The sources of the library and of its macros, by their paths.
pub(crate) struct Sources(Vec<(PathBuf, String)>);

impl Sources {
    pub(crate) fn read() -> Self {
        let folders = ["mongolock/src", "mongolock-macros/src"].map(|folder| workspace().join(folder));
        let texts = folders
            .iter()
            .flat_map(|folder| super::links::files(folder, &["rs", "md"]));
        Self(texts.map(|path| (path.clone(), read(&path))).collect())
    }

    fn with_end(&self, end: &str) -> Option<&str> {
        let mut all = self.0.iter();
        all.find(|(path, _)| path.ends_with(end))
            .map(|(_, text)| text.as_str())
    }
}

fn read(path: &PathBuf) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Whether a link leads to a page, an item, or a part of one; it is given without [`DOCUMENTATION`].
pub(crate) fn exists(link: &str, sources: &Sources) -> bool {
    let (place, anchor) = match link.split_once('#') {
        Some((place, anchor)) => (place, Some(anchor)),
        None => (link, None),
    };
    let page = place
        .strip_prefix("guide/")
        .and_then(|page| page.strip_suffix("/index.html"));
    match (page, place.strip_suffix(".html")) {
        _ if matches!(place, "" | "guide/index.html") => true,
        (Some(page), _) => page_part(page, anchor, sources),
        (None, Some(item)) => match item.strip_suffix("/index") {
            Some(module) => anchor.is_none() && is_module(module, sources),
            None => item_part(item, anchor, sources),
        },
        (None, None) => false,
    }
}

/// Whether the guide lists the page, and the page has the heading that the anchor names.
fn page_part(page: &str, anchor: Option<&str>, sources: &Sources) -> bool {
    let Some(anchor) = anchor else {
        let row = format!("]: {DOCUMENTATION}guide/{page}/index.html");
        return sources
            .with_end("src/guide.rs")
            .is_some_and(|text| text.contains(&row));
    };
    let page = sources.with_end(&format!("guide/{page}.md"));
    let is_heading = |line: &str| line.starts_with('#') && slug(line) == anchor;
    page.is_some_and(|text| text.lines().any(is_heading))
}

/// The anchor of a heading, as rustdoc makes it.
pub(crate) fn slug(heading: &str) -> String {
    let text = heading.trim_start_matches(['#', ' ']);
    let kept = text
        .chars()
        .filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() })
        .collect()
}

/// Whether the crate has a public module of this name.
fn is_module(name: &str, sources: &Sources) -> bool {
    let root = sources.with_end("mongolock/src/lib.rs");
    root.is_some_and(|text| has_word(text, &format!("pub mod {name}")))
}

/// Whether an item such as `struct.LockGuard` exists, and has the method or the variant that the anchor names.
fn item_part(item: &str, anchor: Option<&str>, sources: &Sources) -> bool {
    let Some((kind, name)) = item.split_once('.') else {
        return false;
    };
    let declared = match kind {
        "attr" => format!("#[proc_macro_attribute]\npub fn {name}"),
        "derive" => format!("#[proc_macro_derive({name}"),
        _ => format!("pub {kind} {name}"),
    };
    let part = match anchor.and_then(|anchor| anchor.split_once('.')) {
        None => String::new(),
        Some(("variant", variant)) => format!("    {variant}"),
        Some((_, method)) => format!("fn {method}"),
    };
    let implemented = format!("impl {name}");
    let texts = || sources.0.iter().map(|(_, text)| text);
    let has_part =
        |text: &str| (has_word(text, &declared) || has_word(text, &implemented)) && has_word(text, &part);
    texts().any(|text| has_word(text, &declared)) && texts().any(|text| has_part(text))
}

/// Whether these words are in the text, and the last of them ends there.
fn has_word(text: &str, words: &str) -> bool {
    let goes_on = |rest: &str| rest.starts_with(|c: char| c.is_alphanumeric() || c == '_');
    let mut found = text.match_indices(words);
    words.is_empty() || found.any(|(at, _)| !goes_on(&text[at + words.len()..]))
}

#[test]
fn a_link_that_leads_nowhere_is_reported() {
    let sources = Sources::read();
    for link in [
        "struct.LockGuard.html#method.release",
        "enum.LockError.html#variant.Timeout",
        "attr.distributed_lock.html",
        "blocking/index.html",
        "derive.LockName.html",
        "guide/fencing/index.html#one-document-fencedcollection",
    ] {
        assert!(exists(link, &sources), "{link}");
    }
    for link in [
        "struct.LockGuards.html",
        "struct.LockGuard.html#method.releases",
        "enum.LockError.html#variant.Time",
        "attr.lock.html",
        "waiting/index.html",
        "derive.Lock.html",
        "struct.LockGuard",
        "guide/fences/index.html",
        "guide/fencing/index.html#no-such-heading",
    ] {
        assert!(!exists(link, &sources), "{link}");
    }
}
