mod proof;

use super::*;
use crate::samples::{rows, tokens};

fn messages(item: &str) -> Vec<String> {
    crate::samples::messages(derive(tokens(item)))
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

/// Each row has two templates with the fields of their variants, and the name that both can give.
#[test]
fn templates_that_overlap_are_reported_with_a_name() {
    let table = "
        report:<id>; id: String | report:<kind>:<id>; kind: String, id: String => `report:a:b`
        <id>; id: String | nightly; => `nightly`
        <id>a; id: String | <id>b<kind>; id: String, kind: String => `aba`
        a:<id>; id: u8 | <id>; id: String => `a:1`
        a:<id>; id: u16 | a:65535; => `a:65535`
        a:<id>; id: i8 | a:-128; => `a:-128`
        <id>:<id>; id: String | x:x; => `x:x`
        report:<id>; id: String | invoice:<id>; id: String => none
        r:<id>:<kind>:a; id: String, kind: String | r:<id>:<kind>:b; id: String, kind: String => none
        <id>/<kind>; id: String, kind: String | <id>; id: u64 => none
        job:<id>; id: u32 | job:all; => none
        job:<id>; id: &'a String | job:all; => `job:all`
        job:<id>; id: u32 | job:07; => none
        job:<id>; id: u32 | job:-7; => none
        job:<id>; id: &&'a i32 | job:-7; => `job:-7`
        job:<id>; id: i32 | job:-0; => none
        job:<id.0>; id: u32 | job:all; => `job:all`
        job:<id>; id: std::u32 | job:all; => `job:all`
        <id>-<second>; id: i8, second: String | %2D5-x; => `%2D5-x`
        <id>-<second>; id: i8, second: String | -5-x; => none
        <id>5<second>; id: i8, second: String | 1%355x; => `1%355x`
    ";
    for (templates, name) in rows(table) {
        let variant = |written: &str| {
            let (template, fields) = written.split_once(';').unwrap();
            (template.to_owned(), fields.to_owned())
        };
        let (one, other) = templates.split_once(" | ").unwrap();
        let ((one, fields), (other, other_fields)) = (variant(one), variant(other));
        let message = overlap((&one, &fields), (&other, &other_fields));
        let expected = format!("`{one}` and `{other}` can both give {name}: ");
        let is_expected = message
            .as_deref()
            .map_or(name == "none", |message| message.starts_with(&expected));
        assert!(is_expected, "{templates}: {message:?}");
    }
    let unproved = overlap(("<id>:<id>", "id: String"), ("x:y", "")).unwrap();
    assert!(unproved.contains("cannot prove"), "{unproved}");
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
