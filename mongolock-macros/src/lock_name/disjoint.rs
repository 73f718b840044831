//! The proof that no two templates of a type can give the same name.

use super::automaton::Automaton;
use super::pattern::{Pattern, Segment};
use super::witness;
use crate::error::{Errors, lock_name};
use crate::similar;

/// Reports every two templates that can give the same name.
pub(crate) fn check(patterns: &[Pattern<'_>], errors: &mut Errors) {
    let automata: Vec<_> = patterns
        .iter()
        .map(|pattern| Automaton::of(&pattern.language))
        .collect();
    let mut note = near_misses(patterns);
    for (at, later) in patterns.iter().enumerate() {
        for (before, earlier) in patterns[..at].iter().enumerate() {
            if let Some(overlap) = overlap(earlier, &automata[before], later, &automata[at]) {
                errors.push(later.template.span(), overlap + &std::mem::take(&mut note));
            }
        }
    }
}

/// The message about two templates that are not disjoint.
fn overlap(one: &Pattern<'_>, ones: &Automaton, other: &Pattern<'_>, others: &Automaton) -> Option<String> {
    let name = ones.common_word(others)?;
    let templates = [one.template.value(), other.template.value()];
    if templates[0] == templates[1] {
        return Some(lock_name::same_template(templates[0]));
    }
    let is_shared = [one, other]
        .iter()
        .all(|pattern| witness::is_rendered_by(&pattern.language, &name));
    Some(lock_name::overlap(templates, is_shared.then_some(name.as_str())))
}

/// The beginnings of templates that look like misspellings of each other, as a sentence after the first message about
/// another mistake: the stable compiler has no notes without an error.
fn near_misses(patterns: &[Pattern<'_>]) -> String {
    let beginnings: Vec<_> = patterns
        .iter()
        .filter_map(|pattern| match pattern.language.first() {
            Some(Segment::Text(text)) => Some(text.as_str()),
            _ => None,
        })
        .collect();
    for (at, one) in beginnings.iter().enumerate() {
        for other in &beginnings[..at] {
            if one != other && similar::differ_by_one(one, other) {
                return lock_name::near_miss(other, one);
            }
        }
    }
    String::new()
}
