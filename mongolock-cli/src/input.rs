//! Texts that must not be on the command line, which every user of the machine can read.

use std::fs;
use std::io::{self, Read};
use std::path::Path;

use crate::failure::Failure;

/// Whether the path means standard input or standard output.
pub(crate) fn is_standard(path: &Path) -> bool {
    path == Path::new("-")
}

/// The text of a file, or of standard input.
pub(crate) fn text(path: &Path) -> Result<String, Failure> {
    let read = if is_standard(path) {
        let mut text = String::new();
        io::stdin().read_to_string(&mut text).map(|_| text)
    } else {
        fs::read_to_string(path)
    };
    let shown = if is_standard(path) {
        "standard input".to_owned()
    } else {
        path.display().to_string()
    };
    let text = read.map_err(Failure::io(format_args!("cannot read {shown}")))?;
    // A file that an editor has written ends with a newline.
    match text.trim() {
        "" => Err(Failure::new(format!("{shown} is empty"))),
        text => Ok(text.to_owned()),
    }
}
