//! The crates that cargo has built for a test, for files that the test compiles itself.

use std::env;

use proc_macro::TokenStream;

/// The arguments of the compiler, which compiles the caller at this moment, that name built crates: a `&[&str]` of pairs,
/// `--extern NAME=FILE` and `-L DIRECTORY`.
#[proc_macro]
pub fn built_crates(_: TokenStream) -> TokenStream {
    let arguments: Vec<String> = env::args().collect();
    let pairs = arguments
        .windows(2)
        .filter(|pair| matches!(&*pair[0], "--extern" | "-L"));
    let named: Vec<&String> = pairs.flatten().collect();
    let list: TokenStream = format!("&{named:?}").parse().unwrap_or_default();
    list
}
