//! Links that rustdoc does not check: those to headings of the guide, and those of the texts that crates.io and the repository
//! show, which are absolute. What they name in this repository exists.

use std::fs;
use std::path::{Path, PathBuf};

use crate::{assert_none, workspace};

const REPOSITORY: &str = "https://github.com/mongolock/mongolock/";

/// The documentation of the newest version. Its own links must not lead there, because they would leave the version that is read.
pub(crate) const DOCUMENTATION: &str = "https://docs.rs/mongolock/latest/mongolock/";

/// The texts that are read outside the documentation.
const ABSOLUTE: &str = "README.md CHANGELOG.md docs/BENCHMARKS.md mongolock-cli/README.md";

/// What the links of a text lead to, with the number of their lines: `[text](target)` and `[label]: target` outside code. Of a
/// Rust file only the comments count that are documentation.
fn links(text: &str, is_rust: bool) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut is_code = false;
    for (number, line) in (1..).zip(text.lines().map(str::trim_start)) {
        let comment = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
        let line = if is_rust {
            comment.unwrap_or_default().trim_start()
        } else {
            line
        };
        is_code ^= line.starts_with("```");
        let prose: String = line.split('`').step_by(2).filter(|_| !is_code).collect();
        let definition = prose.split_once("]: ").filter(|_| prose.starts_with('['));
        let defined = definition.map(|(_, target)| target).into_iter();
        let targets = defined.chain(prose.split("](").skip(1));
        let targets = targets.filter_map(|target| target.split([' ', ')']).next());
        found.extend(targets.map(|target| (number, target.to_owned())));
    }
    found
}

/// Whether a link leads somewhere. `documentation` is the file of a text that rustdoc shows, and `None` for another text.
fn leads_somewhere(target: &str, documentation: Option<&Path>) -> bool {
    let (place, heading) = match target.split_once('#') {
        Some((place, heading)) => (place, Some(heading)),
        None => (target, None),
    };
    if let Some(page) = place.strip_prefix(REPOSITORY) {
        // Pages of the host itself, such as lists of commits, are not checked.
        let file = page
            .strip_prefix("blob/main/")
            .map(|file| workspace().join(file).is_file());
        let folder = page
            .strip_prefix("tree/main/")
            .map(|folder| workspace().join(folder).is_dir());
        file.or(folder).unwrap_or(true)
    } else if let Some(page) = place.strip_prefix(DOCUMENTATION) {
        let guide = page
            .strip_prefix("guide/")
            .and_then(|page| page.strip_suffix("/index.html"));
        let is_front = matches!(page, "" | "guide/index.html");
        documentation.is_none() && guide.map_or(is_front, |page| has_heading(page, heading))
    } else if place.starts_with("https://") {
        true
    } else if let Some(file) = documentation {
        let own = file.file_stem().and_then(|own| own.to_str()).unwrap_or_default();
        let page = place.trim_start_matches("crate::").trim_start_matches("guide::");
        let page = if page.is_empty() { own } else { page };
        // rustdoc checks the path of an item, and takes that of a file as it is.
        let is_item = place.chars().all(|c| c.is_alphanumeric() || "_:@()".contains(c));
        is_item && (heading.is_none() || has_heading(page, heading))
    } else {
        place.is_empty()
    }
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

fn guide() -> PathBuf {
    workspace().join("mongolock/src/guide")
}

/// All files below a directory.
fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let paths = entries.map(|entry| entry.expect("the directory can be read").path());
    paths
        .flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] })
        .collect()
}

fn has_kind(file: &Path, kind: &str) -> bool {
    file.extension().is_some_and(|extension| extension == kind)
}

#[test]
fn links_lead_to_pages_and_headings_that_exist() {
    let absolute = ABSOLUTE.split(' ').map(|name| (workspace().join(name), false));
    let mut shown = files(&workspace().join("mongolock/src"));
    shown.retain(|file| has_kind(file, "rs") || file.starts_with(guide()));
    let mut count = 0;
    let mut problems = Vec::new();
    for (file, is_shown) in absolute.chain(shown.into_iter().map(|file| (file, true))) {
        let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        for (line, target) in links(&text, has_kind(&file, "rs")) {
            count += 1;
            if !leads_somewhere(&target, is_shown.then_some(&file)) {
                let file = file.display();
                problems.push(format!("{file}:{line}: `{target}` leads nowhere from here"));
            }
        }
    }
    assert!(count > 400, "only {count} links were found");
    assert_none(&problems);
}

/// The texts of the macro crate are shown in the documentation of the library, where rustdoc takes their links as they are:
/// `struct.LockError.html` must be a struct of the library, and no alias.
#[test]
fn links_of_the_macros_lead_to_items_of_the_library() {
    let sources = files(&workspace().join("mongolock/src"))
        .into_iter()
        .filter(|file| has_kind(file, "rs"));
    let sources: String = sources
        .map(|file| fs::read_to_string(file).expect("a source"))
        .collect();
    let texts = files(&workspace().join("mongolock-macros/src"))
        .into_iter()
        .filter(|file| has_kind(file, "md"));
    let mut count = 0;
    let mut problems = Vec::new();
    for file in texts {
        let text = fs::read_to_string(&file).expect("a text");
        for (line, target) in links(&text, false) {
            let Some((page, _)) = target.split_once(".html") else {
                continue;
            };
            count += 1;
            let (kind, name) = page.split_once('.').expect("a kind and a name");
            let is_macro = ["attr", "derive"].contains(&kind);
            let declaration = format!("\npub {kind} {name}");
            let is_item = |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric());
            if !is_macro && !sources.split(&declaration).skip(1).any(is_item) {
                let file = file.display();
                problems.push(format!("{file}:{line}: the library has no {kind} {name}"));
            }
        }
    }
    assert!(count > 20, "only {count} links were found");
    assert_none(&problems);
}

#[test]
fn links_are_found_outside_code() {
    let text = "See [a](b.md#c), `[d](e)` and [`f`](crate::F).\n```\n[g](h)\n```\n[i]: https://j k";
    let owned = |(line, target): (usize, &str)| (line, target.to_owned());
    let expected = [(1, "b.md#c"), (1, "crate::F"), (5, "https://j")].map(owned);
    assert_eq!(links(text, false), expected);
    let comments = links("    /// [a](b)\nc[d](e);\n//! [f](g)", true);
    assert_eq!(comments, [(1, "b"), (3, "g")].map(owned));
}

#[test]
fn links_that_lead_nowhere_are_refused() {
    let page = Path::new("fencing.md");
    let good = "#a-table fencing#a-table crate::guide::fencing#a-table macro@distributed_lock https://j";
    for good in good.split(' ') {
        assert!(leads_somewhere(good, Some(page)), "{good}");
    }
    for bad in [
        "#a-chair",
        "crate::guide::jobs#a-table",
        "guide/fencing.md",
        DOCUMENTATION,
    ] {
        assert!(!leads_somewhere(bad, Some(page)), "{bad}");
    }
    for (base, good, bad) in [
        (REPOSITORY, "blob/main/README.md#options", "blob/main/tests"),
        (REPOSITORY, "tree/main/tests", "tree/main/no_such_directory"),
        (
            DOCUMENTATION,
            "guide/fencing/index.html#a-table",
            "guide/fencing/index.html#a-chair",
        ),
        (DOCUMENTATION, "guide/index.html", "struct.LockGuard.html"),
        ("", "#options", "CHANGELOG.md"),
    ] {
        assert!(leads_somewhere(&format!("{base}{good}"), None), "{good}");
        assert!(!leads_somewhere(&format!("{base}{bad}"), None), "{bad}");
    }
}
