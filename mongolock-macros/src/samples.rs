//! What the unit tests feed to the parsers: tokens, random texts with fixed seeds, and the corpus of the fuzz targets.

use std::fs;
use std::ops::RangeInclusive;
use std::path::Path;

use fastrand::Rng;
use proc_macro2::TokenStream;

/// The tokens of this code.
#[track_caller]
pub(crate) fn tokens(code: &str) -> TokenStream {
    let tokens = code.parse();
    tokens.unwrap_or_else(|error| panic!("{code}: {error}"))
}

/// The rows of a table, each with what is written before `=>` and what is expected.
pub(crate) fn rows(table: &str) -> impl Iterator<Item = (&str, &str)> {
    let rows = table.lines().map(str::trim).filter(|row| !row.is_empty());
    rows.map(|row| {
        row.split_once(" => ")
            .unwrap_or_else(|| panic!("no `=>` in {row}"))
    })
}

/// Calls a property with many sources of random values, each with a seed of its own.
pub(crate) fn each_seed(property: impl Fn(&mut Rng)) {
    (0..256).for_each(|seed| property(&mut Rng::with_seed(seed)));
}

/// A text with so many of these characters.
pub(crate) fn text(random: &mut Rng, characters: &str, length: RangeInclusive<usize>) -> String {
    let characters: Vec<char> = characters.chars().collect();
    let length = random.usize(length);
    (0..length).filter_map(|_| random.choice(&characters)).collect()
}

/// One of these words, which are separated by `|`; it may be empty.
pub(crate) fn word(random: &mut Rng, words: &str) -> String {
    random
        .choice(words.split('|').collect::<Vec<_>>())
        .unwrap_or_default()
        .to_owned()
}

/// The texts for a fuzz target, with the names of their files; none in the package, which does not have the fuzz targets.
pub(crate) fn corpus(target: &str) -> Vec<(String, String)> {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fuzz");
    if !fuzz.join("Cargo.toml").exists() {
        eprintln!("skipped: the corpus is in the repository only");
        return Vec::new();
    }
    let files = fs::read_dir(fuzz.join("corpus").join(target)).expect("the target has a corpus");
    let paths = files.map(|file| file.expect("a file").path());
    paths
        .map(|path| {
            (
                path.display().to_string(),
                fs::read_to_string(path).expect("the corpus is text"),
            )
        })
        .collect()
}

/// The messages in generated code, one for each `compile_error!`.
pub(crate) fn messages(code: TokenStream) -> Vec<String> {
    let file: syn::File = syn::parse2(code).unwrap();
    let messages = file.items.into_iter().filter_map(|item| match item {
        syn::Item::Macro(call) => Some(call.mac.parse_body::<syn::LitStr>().unwrap().value()),
        _ => None,
    });
    messages.collect()
}
