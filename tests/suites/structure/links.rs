//! Links that rustdoc does not check: those to headings of the guide, and those of the texts that crates.io and the repository
//! show, which are absolute. What they name in this repository exists.

use std::fs;
use std::path::{Path, PathBuf};

use crate::{assert_none, workspace};

const REPOSITORY: &str = "https://github.com/mongolock/mongolock/";

/// Where the documentation of the newest version is: links of the documentation itself must not leave their version.
pub(crate) const DOCUMENTATION: &str = "https://docs.rs/mongolock/latest/mongolock/";

/// Texts that are read outside the documentation.
const ABSOLUTE: [&str; 4] = [
    "README.md",
    "CHANGELOG.md",
    "BENCHMARKS.md",
    "mongolock-cli/README.md",
];

#[derive(Debug, PartialEq, Eq)]
struct Link {
    target: String,
    /// The line in its file, counted from 1.
    line: usize,
}

/// The links of a Markdown text, or of the comments of a Rust file that are documentation, except those in code.
fn links(text: &str, is_rust: bool) -> Vec<Link> {
    let mut found = Vec::new();
    let mut is_code = false;
    for (number, line) in text.lines().enumerate() {
        let comment = ["///", "//!"]
            .iter()
            .find_map(|mark| line.trim_start().strip_prefix(mark));
        let line = if is_rust {
            comment.unwrap_or_default().trim_start()
        } else {
            line
        };
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

/// What is wrong with a link. `documentation` is the file of a text that rustdoc shows, and `None` for another text.
fn problem(target: &str, documentation: Option<&Path>) -> Option<String> {
    let (place, heading) = match target.split_once('#') {
        Some((place, heading)) => (place, Some(heading)),
        None => (target, None),
    };
    let is_absolute = place.starts_with("https://") || place.starts_with("http://");
    let exists = if let Some(page) = place.strip_prefix(REPOSITORY) {
        page_of_repository_exists(page)
    } else if let Some(page) = place.strip_prefix(DOCUMENTATION) {
        let guide = page
            .strip_prefix("guide/")
            .and_then(|page| page.strip_suffix("/index.html"));
        let is_front = matches!(page, "" | "guide/index.html");
        documentation.is_none() && guide.map_or(is_front, |page| has_heading(page, heading))
    } else if is_absolute {
        true
    } else if let Some(file) = documentation {
        let own = file.file_stem().and_then(|own| own.to_str()).unwrap_or_default();
        let page = place.trim_start_matches("crate::").trim_start_matches("guide::");
        let page = if page.is_empty() { own } else { page };
        is_item(place) && (heading.is_none() || has_heading(page, heading))
    } else {
        place.is_empty()
    };
    (!exists)
        .then(|| format!("`{target}` does not exist, or is a relative or an absolute link in the wrong text"))
}

/// Whether a file or a directory is there; pages of the host itself, such as lists of commits, are not checked.
fn page_of_repository_exists(page: &str) -> bool {
    if let Some(file) = page.strip_prefix("blob/main/") {
        return workspace().join(file).is_file();
    }
    page.strip_prefix("tree/main/")
        .is_none_or(|directory| workspace().join(directory).is_dir())
}

/// Whether the guide has the page, and the page has the heading if there is one.
fn has_heading(page: &str, heading: Option<&str>) -> bool {
    let text = fs::read_to_string(guide().join(page).with_extension("md"));
    let is_heading = |line: &str| line.starts_with('#') && Some(slug(line).as_str()) == heading;
    text.is_ok_and(|text| heading.is_none() || text.lines().any(is_heading))
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

/// Whether this is the path of a Rust item, such as `crate::LockGuard`, which rustdoc checks, and not that of a file.
fn is_item(place: &str) -> bool {
    place.chars().all(|c| c.is_alphanumeric() || "_:@()".contains(c))
}

fn guide() -> PathBuf {
    workspace().join("mongolock/src/guide")
}

/// All files below a directory with one of these extensions.
fn files(directory: &Path, extensions: &[&str]) -> Vec<PathBuf> {
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
fn links_lead_to_pages_and_headings_that_exist() {
    let absolute = ABSOLUTE.map(|name| (workspace().join(name), false));
    let source = files(&workspace().join("mongolock/src"), &["rs"]);
    let documentation = files(&guide(), &["md"]).into_iter().chain(source);
    let mut count = 0;
    let mut problems = Vec::new();
    for (file, is_documentation) in absolute.into_iter().chain(documentation.map(|file| (file, true))) {
        let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let is_rust = file.extension().is_some_and(|extension| extension == "rs");
        for Link { target, line } in links(&text, is_rust) {
            count += 1;
            let wrong = problem(&target, is_documentation.then_some(&file));
            problems.extend(wrong.map(|wrong| format!("{}:{line}: {wrong}", file.display())));
        }
    }
    assert!(count > 150, "only {count} links were found");
    assert_none(&problems);
}

#[test]
fn links_are_found_outside_code() {
    let text = "See [a](b.md#c), `[d](e)` and [`f`](crate::F).\n```\n[g](h)\n```\n[i]: https://j k\n<img src=\"l.png\">";
    let found = |text: &str, is_rust| -> Vec<(String, usize)> {
        let links = links(text, is_rust).into_iter();
        links.map(|link| (link.target, link.line)).collect()
    };
    let expected = [("b.md#c", 1), ("crate::F", 1), ("https://j", 5), ("l.png", 6)];
    let owned = |(target, line): (&str, usize)| (target.to_owned(), line);
    assert_eq!(found(text, false), expected.map(owned));
    assert_eq!(
        found("    /// [a](b)\nc[d](e);\n//! [f](g)", true),
        [("b", 1), ("g", 3)].map(owned)
    );
}

#[test]
fn links_that_lead_nowhere_are_refused() {
    let page = Path::new("fencing.md");
    let headings = [
        "crate::guide::fencing#claim-before-you-read",
        "guide::fencing#a-table",
        "#claim-before-you-read",
        "fencing#a-table",
    ];
    for good in headings.iter().chain(&[
        "LockGuard::release",
        "macro@distributed_lock",
        "https://example.com/",
    ]) {
        assert_eq!(problem(good, Some(page)), None);
    }
    for bad in [
        "#no-such-heading",
        "crate::guide::jobs#a-table",
        "guide/fencing.md",
        DOCUMENTATION,
    ] {
        assert!(problem(bad, Some(page)).is_some(), "{bad}");
    }
    for (base, good, bad) in [
        (REPOSITORY, "blob/main/README.md#options", "blob/main/tests"),
        (REPOSITORY, "tree/main/tests", "tree/main/no_such_directory"),
        (
            DOCUMENTATION,
            "guide/fencing/index.html#a-table",
            "guide/fencing/index.html#a-chair",
        ),
        (
            DOCUMENTATION,
            "guide/fencing/index.html",
            "guide/fences/index.html",
        ),
        (DOCUMENTATION, "guide/index.html", "struct.LockGuard.html"),
        ("", "#options", "CHANGELOG.md"),
    ] {
        assert_eq!(problem(&format!("{base}{good}"), None), None);
        assert!(problem(&format!("{base}{bad}"), None).is_some(), "{bad}");
    }
}
