use std::collections::HashSet;

use proc_macro2::TokenStream;
use proptest::prelude::*;
use quote::quote;

use super::automaton::Automaton;
use super::declaration::Declaration;
use super::language::Values;
use super::pattern::{Pattern, Segment};
use super::*;

/// The messages for an item, without the generated code.
fn messages(item: TokenStream) -> Vec<String> {
    let file: syn::File = syn::parse2(derive(item)).unwrap();
    let messages = file.items.into_iter().filter_map(|item| match item {
        syn::Item::Macro(call) => Some(call.mac.parse_body::<syn::LitStr>().unwrap().value()),
        _ => None,
    });
    messages.collect()
}

fn one(item: TokenStream) -> String {
    let mut messages = messages(item);
    assert_eq!(messages.len(), 1, "{messages:?}");
    messages.remove(0)
}

/// The message about two variants with these templates and fields.
fn overlap(one: (&str, TokenStream), other: (&str, TokenStream)) -> Option<String> {
    let [(first, first_fields), (second, second_fields)] = [one, other];
    let mut messages = messages(quote! {
        enum Lock {
            #[lock(#first)] First { #first_fields },
            #[lock(#second)] Second { #second_fields },
        }
    });
    assert!(messages.len() < 2, "{messages:?}");
    messages.pop()
}

#[test]
fn the_expansion_is_five_implementations() {
    for item in [
        quote!(
            enum Lock<'a, T: Display, const N: usize>
            where
                T: Copy,
            {
                #[lock("report:<tenant>:<id.get()>:<N>:<T::KIND>")]
                Report { tenant: &'a str, id: T, other: u8 },
                #[lock("invoice:<0>")]
                Invoice(&'a u32, u8),
                #[lock("nightly")]
                Nightly,
            }
        ),
        quote!(
            #[lock("nightly", crate = a::b)]
            pub(crate) struct Nightly;
        ),
        quote!(
            #[lock(crate = a::b)]
            #[lock("<0>")]
            struct Order(Id);
        ),
        quote!(
            #[lock("<r>")]
            struct Raw {
                r#r: i8,
            }
        ),
    ] {
        let expanded = derive(item);
        let file: syn::File = syn::parse2(expanded.clone()).expect("it has no mistake");
        assert_eq!(file.items.len(), 5, "{expanded}");
        assert!(file.items.iter().all(|item| matches!(item, syn::Item::Impl(_))));
        assert!(!expanded.to_string().contains("allow"));
    }
}

#[test]
fn an_item_with_a_mistake_is_still_implemented() {
    let expanded = derive(quote!(
        enum Lock<'a> {
            #[lock("")]
            A(&'a str),
        }
    ))
    .to_string();
    assert!(expanded.contains("compile_error") && expanded.contains("LockName for & Lock < 'a >"));
}

#[test]
fn mistakes_of_the_declaration_are_reported() {
    let example = "write `#[lock(\"report:<id>\")]` above it";
    assert_eq!(
        one(quote!(
            enum L {
                A,
            }
        )),
        format!("`A` has no lock name: {example}")
    );
    assert_eq!(
        one(quote!(
            struct L;
        )),
        format!("the struct has no lock name: {example}")
    );
    assert!(
        one(quote!(
            enum L {}
        ))
        .starts_with("`L` has no variants")
    );
    assert!(one(quote!(union L { a: u8 })).contains("enums and structs only"));
    assert!(
        one(quote!(
            #[lock("x")]
            enum L {
                #[lock("a")]
                A,
            }
        ))
        .starts_with("each variant has")
    );
    assert!(
        one(quote!(
            enum L {
                #[lock("a")]
                #[lock("b")]
                A,
            }
        ))
        .contains("twice")
    );
    assert!(
        one(quote!(
            enum L {
                #[lock("a", crate = b)]
                A,
            }
        ))
        .contains("whole type")
    );
    assert!(
        one(quote!(
            enum L {
                #[lock("a")]
                A(#[lock("b")] u8),
            }
        ))
        .contains("a field has no")
    );
    for attribute in [
        quote!(#[lock]),
        quote!(#[lock(a)]),
        quote!(#[lock = "a"]),
        quote!(#[lock("a"x)]),
    ] {
        let message = one(quote!(enum L { #attribute A }));
        assert!(message.starts_with("`#[lock]` takes the template"), "{message}");
    }
}

#[test]
fn mistakes_of_placeholders_are_reported() {
    let report = |template: &str| {
        one(quote!(
            enum L {
                #[lock(#template)]
                Report { tenant: u8, id: u8 },
            }
        ))
    };
    assert_eq!(
        report("<idd>"),
        "`Report` has no field `idd`: did you mean `<id>`?"
    );
    assert_eq!(
        report("<number>"),
        "`Report` has no field `number`: it has `tenant` and `id`"
    );
    assert_eq!(
        report("<0>"),
        "`Report` has no field `0`: it has `tenant` and `id`"
    );
    assert_eq!(
        report("<self.id>"),
        "`<self.id>` must begin with a field of `Report`: write `<id>`"
    );
    assert!(report("<N>").starts_with("`Report` has no field `N`"));
    assert!(report("<tenant><id>").contains("no text between"));
    assert!(report("<tenant>%<id>").contains("begin the text with another separator"));
    assert_eq!(
        report("{id}"),
        "`{id}` is not a placeholder, so all values would share one lock: write `<id>`"
    );
    assert!(report("<id + 1>").ends_with("store the value in a field"));
    assert_eq!(
        one(quote!(
            #[lock("a:{0}")]
            struct L(u8);
        )),
        "`{0}` is not a placeholder, so all values would share one lock: write `<0>`"
    );
    assert_eq!(
        one(quote!(
            #[lock("<1>")]
            struct L(u8);
        )),
        "the struct has no field `1`: it has `0`"
    );
    assert!(
        one(quote!(
            #[lock("<id>")]
            struct L;
        ))
        .contains("add the field, or remove `<id>`")
    );
}

#[test]
fn templates_that_overlap_are_reported_with_a_name() {
    let text = || quote!(id: String, kind: String);
    let shows = |one: &str, other: &str, name: &str| {
        let message = overlap((one, text()), (other, text())).expect("the two overlap");
        let expected = format!("`{one}` and `{other}` can both give `{name}`: ");
        assert!(message.starts_with(&expected), "{message}");
    };
    shows("report:<id>", "report:<kind>:<id>", "report:a:b");
    shows("user:<id>:lock", "user:<id>:<kind>:lock", "user:a:b:lock");
    shows("<id>", "nightly", "nightly");
    shows("<id>a", "<id>b<kind>", "aba");
    let number = overlap(("a:<id>", quote!(id: u8)), ("<id>", text())).unwrap();
    assert!(number.contains("can both give `a:1`"), "{number}");
    assert!(overlap(("report:<id>", text()), ("invoice:<id>", text())).is_none());
    assert!(overlap(("r:<id>:<kind>:a", text()), ("r:<id>:<kind>:b", text())).is_none());
    assert!(overlap(("<id>/<kind>", text()), ("<id>", quote!(id: u64))).is_none());
    assert!(
        overlap(("same:<id>", text()), ("same:<id>", text()))
            .unwrap()
            .starts_with("two variants have the template `same:<id>`")
    );
}

#[test]
fn integers_are_told_apart_from_text() {
    let number = || quote!(id: u32);
    let text = || quote!(id: &'a String);
    assert!(overlap(("job:<id>", number()), ("job:all", quote!())).is_none());
    assert!(overlap(("job:<id>", text()), ("job:all", quote!())).is_some());
    assert!(overlap(("job:<id>", number()), ("job:07", quote!())).is_none());
    assert!(overlap(("job:<id>", number()), ("job:-7", quote!())).is_none());
    assert!(overlap(("job:<id>", quote!(id: &&'a i32)), ("job:-7", quote!())).is_some());
    assert!(overlap(("job:<id>", quote!(id: i32)), ("job:-0", quote!())).is_none());
    // A part of a field can be anything.
    assert!(overlap(("job:<id.0>", number()), ("job:all", quote!())).is_some());
    assert!(overlap(("job:<id>", quote!(id: std::u32)), ("job:all", quote!())).is_some());
    // The sign is escaped where it is the separator, and so are digits.
    let pair = || quote!(id: i8, second: String);
    assert!(overlap(("<id>-<second>", pair()), ("%2D5-x", quote!())).is_some());
    assert!(overlap(("<id>-<second>", pair()), ("-5-x", quote!())).is_none());
    assert!(overlap(("<id>5<second>", pair()), ("1%355x", quote!())).is_some());
}

#[test]
fn a_witness_is_a_name_that_both_types_have() {
    let message = overlap(("a:<id>", quote!(id: u8)), ("a:300", quote!())).unwrap();
    assert!(message.contains("cannot prove"), "{message}");
    let message = overlap(("a:<id>", quote!(id: u16)), ("a:300", quote!())).unwrap();
    assert!(message.contains("can both give `a:300`"), "{message}");
    let message = overlap(("<id>:<id>", quote!(id: String)), ("x:y", quote!())).unwrap();
    assert!(message.contains("cannot prove"), "{message}");
    let message = overlap(("<id>:<id>", quote!(id: String)), ("x:x", quote!())).unwrap();
    assert!(message.contains("can both give `x:x`"), "{message}");
}

#[test]
fn near_misses_are_named_beside_another_mistake() {
    let enumeration = |last: TokenStream| {
        messages(quote! {
            enum Lock {
                #[lock("report:<0>")] Report(String),
                #[lock("reports:<0>")] Reports(String),
                #last
            }
        })
    };
    assert_eq!(enumeration(quote!()), [""; 0]);
    let messages = enumeration(quote!(
        #[lock("report:all")]
        All,
        #[lock("report:none")]
        None,
    ));
    assert_eq!(messages.len(), 2, "{messages:?}");
    assert!(!messages[1].contains("note:"), "{messages:?}");
    assert!(
        messages[0].ends_with(
            "\nnote: `report:` and `reports:` differ in one character: if they mean the same, one is misspelt"
        ),
        "{messages:?}"
    );
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
                let one = mongolock::escape(one, separator);
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
        let name = format!("a:{}:{second}:z", mongolock::escape(&first, ':'));
        prop_assert!(witness::is_rendered_by(&language, &name));
        prop_assert!(!witness::is_rendered_by(&language, &name[..name.len() - 1]));
    }

    #[test]
    fn every_number_is_a_value_of_its_type(unsigned: u64, signed: i64) {
        prop_assert!(Values::of_integer("u64").contains(&unsigned.to_string()));
        prop_assert!(Values::of_integer("i64").contains(&signed.to_string()));
        let language = [language("<a>-x", &["i64"]), language("<a>-<b>", &["i64", "u64"])];
        let escaped = mongolock::escape(signed, '-');
        let names = [format!("{signed}-x"), format!("{escaped}-{unsigned}")];
        for (language, name) in language.iter().zip(names) {
            prop_assert!(witness::is_rendered_by(language, &name));
            let word = Automaton::of(&[Segment::Text(name.clone())]);
            prop_assert_eq!(Automaton::of(language).common_word(&word), Some(name));
        }
    }
}
