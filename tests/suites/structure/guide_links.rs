//! The links in the guide to the crate's own documentation lead to something: rustdoc does not check absolute links.

use std::fs;
use std::path::{Path, PathBuf};

const DOCS: &str = "https://docs.rs/mongolock/latest/mongolock/";

/// The sources of one crate, by their paths.
type Sources = Vec<(PathBuf, String)>;

/// The links of this text to the crate's documentation, without the part that all of them have.
fn links(text: &str) -> Vec<&str> {
    let ends = |c: char| c.is_whitespace() || c == ')';
    text.split(DOCS)
        .skip(1)
        .filter_map(|rest| rest.split(ends).next())
        .collect()
}

/// Why the link leads nowhere; `None` if it leads to a page, an item, or a part of one.
fn problem(link: &str, sources: &Sources) -> Option<String> {
    let (place, anchor) = match link.split_once('#') {
        Some((place, anchor)) => (place, Some(anchor)),
        None => (link, None),
    };
    let page = place
        .strip_prefix("guide/")
        .and_then(|page| page.strip_suffix("/index.html"));
    let leads_somewhere = match (page, place.strip_suffix(".html")) {
        (Some(page), _) => page_part(page, anchor, sources),
        (None, Some(item)) => item_part(item, anchor, sources),
        (None, None) => false,
    };
    (!leads_somewhere).then(|| format!("{link} leads nowhere"))
}

/// Whether the guide lists the page, and the page has the heading that the anchor names.
fn page_part(page: &str, anchor: Option<&str>, sources: &Sources) -> bool {
    let ends_with = |end: &str| sources.iter().find(|(path, _)| path.ends_with(end));
    let Some(anchor) = anchor else {
        let row = format!("]: {DOCS}guide/{page}/index.html");
        return ends_with("src/guide.rs").is_some_and(|(_, text)| text.contains(&row));
    };
    let page = ends_with(&format!("guide/{page}.md"));
    page.is_some_and(|(_, text)| {
        text.lines()
            .any(|line| line.starts_with('#') && slug(line) == anchor)
    })
}

/// The anchor of a heading, as rustdoc makes it.
fn slug(heading: &str) -> String {
    let text = heading.trim_start_matches(['#', ' ']);
    let kept = text
        .chars()
        .filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() })
        .collect()
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
    let mut texts = sources.iter().map(|(_, text)| text);
    texts.any(|text| has_word(text, &declared) && has_word(text, &part))
}

/// Whether these words are in the text, and the last of them ends there.
fn has_word(text: &str, words: &str) -> bool {
    let goes_on = |rest: &str| rest.starts_with(|c: char| c.is_alphanumeric() || c == '_');
    let mut found = text.match_indices(words);
    words.is_empty() || found.any(|(at, _)| !goes_on(&text[at + words.len()..]))
}

fn read(folder: &Path, sources: &mut Sources) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read(&path, sources);
        } else {
            let text = fs::read_to_string(&path).unwrap();
            sources.push((path, text));
        }
    }
}

fn sources() -> Sources {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut sources = Sources::new();
    for source in ["mongolock/src", "mongolock-macros/src"] {
        read(&workspace.join(source), &mut sources);
    }
    sources
}

#[test]
fn each_link_of_the_guide_to_the_documentation_leads_somewhere() {
    let sources = sources();
    let in_guide =
        |path: &Path| path.ends_with("src/guide.rs") || path.extension().is_some_and(|end| end == "md");
    let pages = sources.iter().filter(|(path, _)| in_guide(path));
    let all: Vec<&str> = pages.flat_map(|(_, text)| links(text)).collect();
    assert!(all.len() > 100, "only {} links were found", all.len());
    let problems: Vec<String> = all
        .into_iter()
        .filter_map(|link| problem(link, &sources))
        .collect();
    crate::assert_none(&problems);
}

#[test]
fn a_link_that_leads_nowhere_is_reported() {
    let sources = sources();
    for link in [
        "struct.LockGuard.html#method.release",
        "enum.LockError.html#variant.Timeout",
        "attr.distributed_lock.html",
        "derive.LockName.html",
        "guide/fencing/index.html#one-document-fencedcollection",
    ] {
        assert_eq!(problem(link, &sources), None);
    }
    for link in [
        "struct.LockGuards.html",
        "struct.LockGuard.html#method.releases",
        "enum.LockError.html#variant.Time",
        "attr.lock.html",
        "derive.Lock.html",
        "struct.LockGuard",
        "guide/fences/index.html",
        "guide/fencing/index.html#no-such-heading",
    ] {
        assert!(problem(link, &sources).is_some(), "{link}");
    }
}
