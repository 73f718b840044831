//! Links of the Markdown files that are read outside the repository, too: crates.io and docs.rs show them. So every link
//! is absolute, and what it names in this repository exists.

use std::fs;
use std::path::{Path, PathBuf};

use super::documentation::{self, DOCUMENTATION, Sources};
use crate::{assert_none, workspace};

const REPOSITORY: &str = "https://github.com/mongolock/mongolock/";

#[derive(Debug, PartialEq, Eq)]
struct Link {
    target: String,
    /// The line in its file, counted from 1.
    line: usize,
}

/// The links of a Markdown text, or of the documentation of a module, except those in code.
fn links(text: &str) -> Vec<Link> {
    let mut found = Vec::new();
    let mut is_code = false;
    for (number, line) in text.lines().enumerate() {
        let line = line.strip_prefix("//! ").unwrap_or(line);
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        }
        if is_code {
            continue;
        }
        let prose: String = line.split('`').step_by(2).collect();
        found.extend(targets(&prose).map(|target| Link {
            target: target.to_owned(),
            line: number + 1,
        }));
    }
    found
}

/// What the links of a line lead to: `[text](target)`, `[label]: target`, and attributes of HTML elements.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    let definition = line.split_once("]: ").filter(|_| line.starts_with('['));
    let definition = definition.map(|(_, rest)| rest);
    let after = |mark: &'static str| line.split(mark).skip(1);
    let marked = after("](").chain(after("href=\"")).chain(after("src=\""));
    definition
        .into_iter()
        .chain(marked)
        .map(|rest| rest.split([' ', ')', '"']).next().unwrap_or_default())
}

/// What is wrong with a link; `is_guide` for a page that is a part of the crate's documentation, where the names of items
/// are links as well.
fn problem(target: &str, is_guide: bool, sources: &Sources) -> Option<String> {
    let (place, _heading) = target.split_once('#').unwrap_or((target, ""));
    let exists = if let Some(page) = place.strip_prefix(REPOSITORY) {
        page_of_repository_exists(page)
    } else if let Some(link) = target.strip_prefix(DOCUMENTATION) {
        documentation::exists(link, sources)
    } else {
        let is_absolute = place.starts_with("https://") || place.starts_with("http://");
        let is_allowed = is_absolute || place.is_empty() || (is_guide && is_item(place));
        return (!is_allowed)
            .then(|| format!("`{target}` is relative: begin with {REPOSITORY} or {DOCUMENTATION}"));
    };
    (!exists).then(|| format!("`{target}` does not exist"))
}

/// Whether a file or a directory is there; pages of the host itself, such as lists of commits, are not checked.
fn page_of_repository_exists(page: &str) -> bool {
    if let Some(file) = page.strip_prefix("blob/main/") {
        return workspace().join(file).is_file();
    }
    page.strip_prefix("tree/main/")
        .is_none_or(|directory| workspace().join(directory).is_dir())
}

/// Whether this is the path of a Rust item, such as `crate::LockGuard`, and not that of a file.
fn is_item(place: &str) -> bool {
    place.chars().all(|c| c.is_alphanumeric() || c == '_' || c == ':')
}

/// All files below a directory with one of these extensions.
pub(crate) fn files(directory: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.expect("the directory can be read").path();
        if path.is_dir() {
            found.extend(files(&path, extensions));
        } else if path
            .extension()
            .is_some_and(|own| extensions.iter().any(|one| own == *one))
        {
            found.push(path);
        }
    }
    found
}

#[test]
fn the_links_lead_from_everywhere_to_pages_that_exist() {
    let texts = ["README.md", "CHANGELOG.md", "BENCHMARKS.md"].map(|name| workspace().join(name));
    let guide = files(&workspace().join("mongolock/src/guide"), &["md"]);
    assert!(guide.len() > 5, "the guide was not found: {guide:?}");
    let list_of_pages = workspace().join("mongolock/src/guide.rs");
    let pages = texts
        .iter()
        .map(|file| (file, false))
        .chain(guide.iter().chain([&list_of_pages]).map(|file| (file, true)));
    let sources = Sources::read();
    let mut count = 0;
    let mut problems = Vec::new();
    for (file, is_guide) in pages {
        let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        for Link { target, line } in links(&text) {
            count += 1;
            let wrong = problem(&target, is_guide, &sources);
            problems.extend(wrong.map(|wrong| format!("{}:{line}: {wrong}", file.display())));
        }
    }
    assert!(count > 150, "only {count} links were found");
    assert_none(&problems);
}

#[test]
fn links_are_found_outside_code() {
    let text = "See [a](b.md#c), `[d](e)` and [`f`](crate::F).\n```\n[g](h)\n```\n[i]: https://j k\n<img src=\"l.png\">";
    let found: Vec<_> = links(text)
        .into_iter()
        .map(|link| (link.target, link.line))
        .collect();
    let expected = [("b.md#c", 1), ("crate::F", 1), ("https://j", 5), ("l.png", 6)];
    assert_eq!(found, expected.map(|(target, line)| (target.to_owned(), line)));
}

#[test]
fn relative_links_and_pages_that_do_not_exist_are_refused() {
    let sources = Sources::read();
    let is_refused = |target: &str| problem(target, false, &sources).is_some();
    for relative in [
        "CHANGELOG.md",
        "../README.md",
        "guide::leases",
        "struct.LockGuard.html",
    ] {
        assert!(is_refused(relative), "{relative}");
    }
    assert!(problem("guide/leases.md", true, &sources).is_some());
    assert!(problem("crate::LockGuard", true, &sources).is_none());
    assert!(!is_refused("https://example.com/") && !is_refused("#options"));
    for (base, good, bad) in [
        (REPOSITORY, "blob/main/README.md#options", "blob/main/tests"),
        (REPOSITORY, "tree/main/tests", "tree/main/no_such_directory"),
        (
            DOCUMENTATION,
            "guide/leases/index.html",
            "guide/no_such_page/index.html",
        ),
        (
            DOCUMENTATION,
            "struct.LockGuard.html#method.release",
            "struct.LockGuar.html",
        ),
        (
            DOCUMENTATION,
            "attr.distributed_lock.html",
            "struct.distributed_lock.html",
        ),
        (DOCUMENTATION, "derive.LockName.html", "derive.Lock.html"),
    ] {
        assert!(!is_refused(&format!("{base}{good}")), "{good}");
        assert!(is_refused(&format!("{base}{bad}")), "{bad}");
    }
}
