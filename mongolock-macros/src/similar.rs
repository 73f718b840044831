//! The known word that a misspelt word probably means, for "did you mean" in messages.

/// The most similar of `known`, if it is similar enough to be a useful suggestion.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .map(|candidate| (distance(&fold(word), &fold(candidate)), candidate))
        .filter(|(distance, candidate)| *distance <= largest_distance(word, candidate))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Whether two texts differ in one character, or only in case, `_` and `-`. Each has at least four letters, because short
/// texts are often similar by chance.
pub(crate) fn differ_by_one(one: &str, other: &str) -> bool {
    let is_long = |text: &str| text.chars().filter(|c| c.is_alphabetic()).count() >= 4;
    one != other && is_long(one) && is_long(other) && distance(&fold(one), &fold(other)) <= 1
}

/// The letters of a word in lower case, so that `onBusy`, `on-busy` and `on_busy` are equal.
fn fold(word: &str) -> Vec<char> {
    word.chars()
        .filter(|c| *c != '_' && *c != '-')
        .flat_map(char::to_lowercase)
        .collect()
}

/// The largest distance at which two words are similar: a third of the letters of the longer one, because short words
/// are often similar by chance.
fn largest_distance(word: &str, candidate: &str) -> usize {
    word.chars().count().max(candidate.chars().count()) / 3
}

/// The number of letters to insert, drop, replace or swap with the next letter (optimal string alignment).
fn distance(from: &[char], to: &[char]) -> usize {
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in to.iter().enumerate() {
            let mut best = (last[j] + usize::from(a != b))
                .min(last[j + 1] + 1)
                .min(row[j] + 1);
            if i > 0 && j > 0 && *a == to[j - 1] && from[i - 1] == *b {
                best = best.min(before_last[j - 1] + 1);
            }
            row.push(best);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggests_the_most_similar_word_if_it_is_similar() {
        let known = ["name", "expiry", "max_hold", "on_busy"];
        for (word, meant) in [
            ("nam", Some("name")),
            ("nmae", Some("name")),
            ("expire", Some("expiry")),
            ("maxHold", Some("max_hold")),
            ("on-busy", Some("on_busy")),
            ("ttl", None),
            ("x", None),
        ] {
            assert_eq!(nearest(word, known), meant);
        }
        assert_eq!(nearest("", ["y", ""]), Some(""));
        assert_eq!(nearest("name", []), None);
    }

    #[test]
    fn only_texts_of_four_letters_differ_by_one() {
        for (one, other, expected) in [
            ("report:", "reports:", true),
            ("user:", "User:", true),
            ("user:", "user:", false),
            ("a:", "x:", false),
            ("job:", "jobs:", false),
        ] {
            assert_eq!(differ_by_one(one, other), expected);
        }
    }
}
