//! The corpus of the fuzz targets, which the unit tests read as well.

use std::fs;
use std::path::Path;

/// The texts for one target, with the names of their files; `None` in the package, which does not have the fuzz targets.
pub(crate) fn texts(target: &str) -> Option<Vec<(String, String)>> {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fuzz");
    if !fuzz.join("Cargo.toml").exists() {
        eprintln!("skipped: the corpus is in the repository only");
        return None;
    }
    let folder = fuzz.join("corpus").join(target);
    let files = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let text = |entry: std::io::Result<fs::DirEntry>| {
        let path = entry.expect("a file").path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        (name, fs::read_to_string(path).expect("the corpus is text"))
    };
    Some(files.map(text).collect())
}
