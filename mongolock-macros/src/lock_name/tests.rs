mod proof;

use super::*;
use crate::samples::{rows, tokens};

/// The messages for an item, without the generated code.
fn messages(item: &str) -> Vec<String> {
    let file: syn::File = syn::parse2(derive(tokens(item))).unwrap();
    let messages = file.items.into_iter().filter_map(|item| match item {
        syn::Item::Macro(call) => Some(call.mac.parse_body::<syn::LitStr>().unwrap().value()),
        _ => None,
    });
    messages.collect()
}

#[track_caller]
fn one(item: &str) -> String {
    let mut messages = messages(item);
    assert_eq!(messages.len(), 1, "{item}: {messages:?}");
    messages.remove(0)
}

/// The message about two variants with these templates and fields.
fn overlap(one: (&str, &str), other: (&str, &str)) -> Option<String> {
    let mut messages = messages(&format!(
        "enum Lock {{ #[lock({:?})] First {{ {} }}, #[lock({:?})] Second {{ {} }} }}",
        one.0, one.1, other.0, other.1
    ));
    assert!(messages.len() < 2, "{messages:?}");
    messages.pop()
}

#[test]
fn the_expansion_is_five_implementations() {
    for item in [
        r#"enum Lock<'a, T: Display, const N: usize> where T: Copy {
            #[lock("report:<tenant>:<id.get()>:<N>:<T::KIND>")] Report { tenant: &'a str, id: T, other: u8 },
            #[lock("invoice:<0>")] Invoice(&'a u32, u8),
            #[lock("nightly")] Nightly,
        }"#,
        r#"#[lock("nightly", crate = a::b)] pub(crate) struct Nightly;"#,
        r#"#[lock(crate = a::b)] #[lock("<0>")] struct Order(Id);"#,
        r#"#[lock("<r>")] struct Raw { r#r: i8 }"#,
    ] {
        let expanded = derive(tokens(item));
        let file: syn::File = syn::parse2(expanded.clone()).expect("it has no mistake");
        assert_eq!(file.items.len(), 5, "{expanded}");
        assert!(file.items.iter().all(|item| matches!(item, syn::Item::Impl(_))));
        assert!(!expanded.to_string().contains("allow"));
    }
    let mistake = derive(tokens(r#"enum Lock<'a> { #[lock("")] A(&'a str) }"#)).to_string();
    assert!(mistake.contains("compile_error") && mistake.contains("LockName for & Lock < 'a >"));
}

/// The suite `ui` has the usual ones.
#[test]
fn mistakes_of_the_declaration_are_reported() {
    for (item, message) in [
        (r#"enum L { #[lock("a", crate = b)] A }"#, "whole type"),
        ("enum L { #[lock] A }", "`#[lock]` takes the template"),
        (r#"enum L { #[lock = "a"] A }"#, "`#[lock]` takes the template"),
        (r#"enum L { #[lock("a"x)] A }"#, "`#[lock]` takes the template"),
    ] {
        let found = one(item);
        assert!(found.contains(message), "{item}: {found}");
    }
}

#[test]
fn mistakes_of_placeholders_are_reported() {
    let report = |template: &str| {
        one(&format!(
            "enum L {{ #[lock({template:?})] Report {{ tenant: u8, id: u8 }} }}"
        ))
    };
    let table = "
        <number> => `Report` has no field `number`: it has `tenant` and `id`
        <0> => `Report` has no field `0`: it has `tenant` and `id`
        {id} => `{id}` is not a placeholder, so all values would share one lock: write `<id>`
    ";
    for (template, message) in rows(table) {
        assert_eq!(report(template), message);
    }
    assert!(report("<N>").starts_with("`Report` has no field `N`"));
    assert!(report("<id + 1>").ends_with("store the value in a field"));
    let no_field = one(r#"#[lock("<id>")] struct L;"#);
    assert!(no_field.contains("add the field, or remove `<id>`"), "{no_field}");
    let of_struct = one(r#"#[lock("<1>")] struct L(u8);"#);
    assert_eq!(of_struct, "the struct has no field `1`: it has `0`");
}

#[test]
fn templates_that_overlap_are_reported_with_a_name() {
    let text = "id: String, kind: String";
    for (one, other, name) in [
        ("report:<id>", "report:<kind>:<id>", "report:a:b"),
        ("<id>", "nightly", "nightly"),
        ("<id>a", "<id>b<kind>", "aba"),
    ] {
        let message = overlap((one, text), (other, text)).expect("the two overlap");
        let expected = format!("`{one}` and `{other}` can both give `{name}`: ");
        assert!(message.starts_with(&expected), "{message}");
    }
    let number = overlap(("a:<id>", "id: u8"), ("<id>", text)).unwrap();
    assert!(number.contains("can both give `a:1`"), "{number}");
    assert!(overlap(("report:<id>", text), ("invoice:<id>", text)).is_none());
    assert!(overlap(("r:<id>:<kind>:a", text), ("r:<id>:<kind>:b", text)).is_none());
    assert!(overlap(("<id>/<kind>", text), ("<id>", "id: u64")).is_none());
}

#[test]
fn integers_are_told_apart_from_text() {
    let (number, pair) = ("id: u32", "id: i8, second: String");
    for (one, other, overlaps) in [
        (("job:<id>", number), "job:all", false),
        (("job:<id>", "id: &'a String"), "job:all", true),
        (("job:<id>", number), "job:07", false),
        (("job:<id>", number), "job:-7", false),
        (("job:<id>", "id: &&'a i32"), "job:-7", true),
        (("job:<id>", "id: i32"), "job:-0", false),
        // A part of a field can be anything.
        (("job:<id.0>", number), "job:all", true),
        (("job:<id>", "id: std::u32"), "job:all", true),
        // The sign is escaped where it is the separator, and so are digits.
        (("<id>-<second>", pair), "%2D5-x", true),
        (("<id>-<second>", pair), "-5-x", false),
        (("<id>5<second>", pair), "1%355x", true),
    ] {
        assert_eq!(overlap(one, (other, "")).is_some(), overlaps, "{one:?} {other}");
    }
}

#[test]
fn a_witness_is_a_name_that_both_types_have() {
    for (one, other, message) in [
        (("a:<id>", "id: u16"), "a:300", "can both give `a:300`"),
        (("<id>:<id>", "id: String"), "x:y", "cannot prove"),
        (("<id>:<id>", "id: String"), "x:x", "can both give `x:x`"),
    ] {
        let found = overlap(one, (other, "")).unwrap();
        assert!(found.contains(message), "{found}");
    }
}

#[test]
fn near_misses_are_named_beside_another_mistake() {
    let near = r#"#[lock("report:<0>")] Report(String), #[lock("reports:<0>")] Reports(String),"#;
    assert_eq!(messages(&format!("enum Lock {{ {near} }}")), [""; 0]);
    let all = r#"#[lock("report:all")] All, #[lock("report:none")] None"#;
    let messages = messages(&format!("enum Lock {{ {near} {all} }}"));
    assert_eq!(messages.len(), 2, "{messages:?}");
    assert!(!messages[1].contains("note:"), "{messages:?}");
    let note =
        "\nnote: `report:` and `reports:` differ in one character: if they mean the same, one is misspelt";
    assert!(messages[0].ends_with(note), "{messages:?}");
}
