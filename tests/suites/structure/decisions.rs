//! What decides when the library acts has the time and a random number as parameters, and waits for nothing.

use crate::tokens::{Token, read};

/// What such a file does not contain: sequences of tokens.
const REFUSED: &[&[&str]] = &[
    &["Instant", "::", "now"],
    &[".", "elapsed"],
    &["Moment", "::", "present"],
    &["DateTime", "::", "now"],
    &["SystemTime"],
    &["fastrand"],
    &["Luck", "::", "draw"],
    &[".", "await"],
    &["async"],
];

/// Where a source reads a clock, draws or waits: one text for each place.
pub(crate) fn refused(path: &str, source: &str) -> Vec<String> {
    let tokens = read(source);
    let starts = |rest: &[Token], words: &[&str]| {
        rest.len() >= words.len() && rest.iter().zip(words).all(|(token, word)| token.is(word))
    };
    let places = (0..tokens.len()).flat_map(|index| {
        let rest = &tokens[index..];
        let found = REFUSED.iter().filter(move |words| starts(rest, words));
        found.map(move |words| format!("{path}: {}", words.concat()))
    });
    places.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_draws_and_waits_are_found_outside_tests() {
        let source = "
            fn decide(now: Instant) -> bool { self.since.elapsed() > X || Instant::now() > now }
            async fn wait() { sleep(fastrand::u64(..)).await }
            fn both() { (DateTime::now(), Moment::present()) }
            // Instant::now() in a comment
            #[cfg(test)]
            mod tests { fn now() { Instant::now(); } }";
        let found = refused("a.rs", source);
        let expected = [
            "a.rs: .elapsed",
            "a.rs: Instant::now",
            "a.rs: async",
            "a.rs: fastrand",
            "a.rs: .await",
            "a.rs: DateTime::now",
            "a.rs: Moment::present",
        ];
        assert_eq!(found, expected);
    }
}
