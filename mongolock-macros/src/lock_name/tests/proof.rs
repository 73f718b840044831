//! The proof that two templates do not overlap agrees with what they render.

use std::collections::HashSet;

use proptest::prelude::*;

use super::super::automaton::Automaton;
use super::super::declaration::Declaration;
use super::super::language::{Values, escaped};
use super::super::pattern::{Pattern, Segment};
use super::*;

fn escape(value: &str, separator: char) -> String {
    value.chars().map(|one| escaped(one, Some(separator))).collect()
}

/// A field of each kind whose language differs.
const KINDS: [&str; 3] = ["String", "u64", "i64"];

/// Templates with up to two placeholders of every kind, and text of a small alphabet at every place.
fn small_templates() -> Vec<(String, Vec<&'static str>)> {
    let texts = ["", ":", "1", "-", "a", "%", "3"];
    let mut all = vec![
        ("1".to_owned(), vec![]),
        ("a:1".to_owned(), vec![]),
        ("-1".to_owned(), vec![]),
        ("%2D1-1".to_owned(), vec![]),
        ("1%3A:1".to_owned(), vec![]),
        ("%3%3A3".to_owned(), vec![]),
    ];
    for before in texts {
        for after in texts {
            for kind in KINDS {
                all.push((format!("{before}<a>{after}"), vec![kind]));
            }
        }
    }
    for before in ["", "1", "a:"] {
        for between in [":", "1", "-", "3", ":%"] {
            for after in ["", "1", ":a"] {
                for first in KINDS {
                    for second in KINDS {
                        all.push((format!("{before}<a>{between}<b>{after}"), vec![first, second]));
                    }
                }
            }
        }
    }
    all
}

/// The values of a kind, as Rust displays them: all texts of up to two characters of a small alphabet, and all integers
/// of up to two digits of it.
fn small_values(kind: &str) -> Vec<String> {
    match kind {
        "u64" => ["0", "1", "3", "10", "11", "13", "31"]
            .map(str::to_owned)
            .to_vec(),
        "i64" => ["0", "1", "3", "-1", "-3", "11", "13", "-11", "-13"]
            .map(str::to_owned)
            .to_vec(),
        _ => {
            let alphabet = [":", "1", "3", "-", "a", "%", "2D"];
            let pairs = alphabet
                .iter()
                .flat_map(|a| alphabet.iter().map(move |b| format!("{a}{b}")));
            pairs.chain(alphabet.map(str::to_owned)).collect()
        }
    }
}

/// The names that a template of `small_templates` gives, rendered by the runtime's `escape`.
fn small_names(template: &str, kinds: &[&str]) -> HashSet<String> {
    match kinds {
        [] => HashSet::from([template.to_owned()]),
        [only] => {
            let values = small_values(only);
            values
                .iter()
                .map(|value| template.replace("<a>", value))
                .collect()
        }
        [first, second, ..] => {
            let separator = template.split("<a>").nth(1).unwrap().chars().next().unwrap();
            let (before, after) = template.split_once("<a>").unwrap();
            let mut names = HashSet::new();
            for one in small_values(first) {
                let one = escape(&one, separator);
                for other in small_values(second) {
                    names.insert(format!("{before}{one}{}", after.replace("<b>", &other)));
                }
            }
            names
        }
    }
}

/// The parts of a template whose fields `a` and `b` have these types.
fn language(template: &str, kinds: &[&str]) -> Vec<Segment> {
    let fields = ["a", "b"].iter().zip(kinds).map(|(name, kind)| {
        let (name, kind) = (quote::format_ident!("{name}"), quote::format_ident!("{kind}"));
        quote!(#name: #kind)
    });
    let item = quote!(#[lock(#template)] struct L { #(#fields),* });
    let mut errors = Errors::default();
    let declaration = Declaration::parse(item, &mut errors).unwrap();
    let pattern = Pattern::bind(&declaration.variants[0], &declaration, &mut errors);
    assert!(errors.is_empty(), "{template}: {}", errors.into_tokens());
    pattern.unwrap().language
}

/// For every two of the templates: if two values of a small alphabet give one name, the automaton finds an overlap; and
/// the name that it finds for an overlap is given by both templates, as reading it and rendering it again shows.
#[test]
fn the_proof_agrees_with_all_short_values() {
    let templates: Vec<_> = small_templates()
        .into_iter()
        .map(|(template, kinds)| {
            let language = language(&template, &kinds);
            let names = small_names(&template, &kinds);
            let automaton = Automaton::of(&language);
            assert!(
                names.iter().all(|name| witness::is_rendered_by(&language, name)),
                "{template}"
            );
            (template, kinds, language, names, automaton)
        })
        .collect();
    let (mut pairs, mut overlaps) = (0, 0);
    for (at, (one, one_kinds, one_language, one_names, one_automaton)) in templates.iter().enumerate() {
        for (other, other_kinds, other_language, other_names, other_automaton) in &templates[..at] {
            pairs += 1;
            let what = || format!("`{one}` {one_kinds:?} and `{other}` {other_kinds:?}");
            match one_automaton.common_word(other_automaton) {
                None => assert!(one_names.is_disjoint(other_names), "{} overlap", what()),
                Some(name) => {
                    overlaps += 1;
                    for language in [one_language, other_language] {
                        assert!(witness::is_rendered_by(language, &name), "{}: {name}", what());
                    }
                }
            }
        }
    }
    assert!(
        pairs > 100_000 && overlaps > 1000 && pairs - overlaps > 1000,
        "{pairs}, {overlaps}"
    );
}

proptest! {
    #[test]
    fn no_item_makes_the_derive_panic(template in "[<>a-c:%0.]{0,16}", other in "[<>a-c:%0.]{0,16}") {
        derive(quote!(enum L { #[lock(#template)] A { a: u8, b: String }, #[lock(#other)] B(u8) }));
    }

    #[test]
    fn a_name_is_rendered_by_its_template(first in "[%:0-9a-zé]{1,9}", second in "[%:0-9a-zé]{1,9}") {
        let language = language("a:<a>:<b>:z", &["String", "String"]);
        let name = format!("a:{}:{second}:z", escape(&first, ':'));
        prop_assert!(witness::is_rendered_by(&language, &name));
        prop_assert!(!witness::is_rendered_by(&language, &name[..name.len() - 1]));
    }

    #[test]
    fn every_number_is_a_value_of_its_type(unsigned: u64, signed: i64) {
        prop_assert!(Values::of_integer("u64").contains(&unsigned.to_string()));
        prop_assert!(Values::of_integer("i64").contains(&signed.to_string()));
        let language = [language("<a>-x", &["i64"]), language("<a>-<b>", &["i64", "u64"])];
        let escaped = escape(&signed.to_string(), '-');
        let names = [format!("{signed}-x"), format!("{escaped}-{unsigned}")];
        for (language, name) in language.iter().zip(names) {
            prop_assert!(witness::is_rendered_by(language, &name));
            let word = Automaton::of(&[Segment::Text(name.clone())]);
            prop_assert_eq!(Automaton::of(language).common_word(&word), Some(name));
        }
    }
}
