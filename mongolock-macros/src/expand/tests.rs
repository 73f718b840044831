use super::*;
use crate::locked;
use crate::samples::{each_seed, text, tokens, word};

const HEAD: &str = r#"#[doc = "x"] pub(crate) async fn job<T: X>(&self, id: u8, (a, b): P) -> Result<impl X + 'static, E> where T: Y"#;

fn function(args: &str) -> String {
    let item = format!("{HEAD} {{ #![allow(unused)] user(body) }}");
    locked(tokens(args), tokens(&item)).to_string()
}

#[track_caller]
fn assert_contains(expanded: &str, part: &str) {
    let without_spaces = |code: &str| code.replace(' ', "");
    let is_there = without_spaces(expanded).contains(&without_spaces(part));
    assert!(is_there, "{part}\n{expanded}");
}

/// Arguments that together reach every branch of the expansion.
const CASES: [&str; 6] = [
    r#"name = "x""#,
    r#"name = "<id>:<a.0.b()>", on_busy = "skip", acquire_timeout = "1s", provider = self.p"#,
    r#"name = "x:<self.type>", on_busy = "fail", on_lost = "continue", provider = &a + b, expiry = "1s""#,
    r#"name = "x", acquire_timeout = "none", expiry = "1s", min_hold = "1s", max_hold = "1s""#,
    "name = id",
    r#"name = "<N>:<id>""#,
];

fn flat(tokens: TokenStream, into: &mut Vec<String>) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => {
                into.push("(".to_owned());
                flat(group.stream(), into);
                into.push(")".to_owned());
            }
            other => into.push(other.to_string()),
        }
    }
}

#[test]
fn the_expansion_is_one_function_that_allows_no_lint_and_has_absolute_paths() {
    for case in CASES {
        let expanded = function(case);
        let file: syn::File = syn::parse_str(&expanded).unwrap();
        assert!(matches!(file.items.as_slice(), [syn::Item::Fn(_)]));
        assert_eq!(expanded.matches("allow").count(), 1);
        let mut words = Vec::new();
        flat(tokens(&expanded), &mut words);
        for at in 1..words.len() - 2 {
            let is_keyword = ["let", "match"].contains(&&*words[at]);
            let is_word = words[at].starts_with(char::is_alphabetic) && !is_keyword;
            let leads_on = words[at + 1] == ":" && words[at + 2] == ":";
            assert!(
                !is_word || !leads_on || words[at - 1] == ":",
                "{case}: {}",
                words[at]
            );
        }
    }
}

#[test]
fn the_head_and_the_block_are_unchanged() {
    let expanded = function(r#"name = "x""#);
    assert!(expanded.starts_with(&tokens(HEAD).to_string()));
    assert!(expanded.contains("{ # ! [allow (unused)] let mongolock_call"));
    assert_contains(&expanded, "match () { () => { user(body) } }");
    assert_contains(&expanded, "None::<Result<_, E>>");
}

#[test]
fn every_argument_is_in_the_expansion() {
    let expanded = function(
        r#"name = "a<<:<self.type>:<a.0.b()>", provider = self.p, expiry = "1s", acquire_timeout = "2s", min_hold = "3s",
           max_hold = "4s", on_lost = "continue", release = "background", crate = c"#,
    );
    for part in [
        "c::attribute::Call::on(&self.p)",
        ".expiry(::core::time::Duration::from_millis(1000u64)).min_hold",
        ".min_hold(::core::time::Duration::from_millis(3000u64)).max_hold",
        ".acquire_timeout(::core::time::Duration::from_millis(2000u64)).continue_when_lost().await_release(false)",
        r#"c::attribute::NameBuilder::of_template("a<<:<self.type>:<a.0.b()>")"#,
        r#".text("a<:").escaped("self.type", ':', &self.r#type).text(":").value("a.0.b()", &(&a.0).b())"#,
        "mongolock_call.wait(name).await",
    ] {
        assert_contains(&expanded, part);
    }
}

#[test]
fn declared_names_and_constants_are_expressions() {
    let declared = function("name = Lock::A { id: f(id)? }");
    let name = "let name = ::mongolock::attribute::declared_lock_name(&Lock::A { id: f(id)? });";
    assert_contains(&declared, name);
    let constants = function(r#"name = "<T::KIND>:<N>:<Self::KIND.id()>""#);
    assert_contains(
        &constants,
        r#".escaped("T::KIND", ':', &T::KIND).text(":").escaped("N", ':', &N).text(":")"#,
    );
    assert_contains(&constants, r#".value("Self::KIND.id()", &(&Self::KIND).id())"#);
}

#[test]
fn a_boxed_future_is_locked_inside_its_box() {
    let item = "fn f<'a>(&'a self, id: u8) -> Pin<Box<dyn Future<Output = Result<(), E>> + Send + 'a>> {
        Box::pin(async move { let id = id; user(id) })
    }";
    let expanded = locked(tokens(r#"name = "x:<id>""#), tokens(item)).to_string();
    assert!(expanded.contains("{ Box :: pin (async move { let mongolock_call"));
    assert_contains(&expanded, "{ let id = id; user(id) }");
    assert_contains(&expanded, "None::<Result<(), E>>");
}

#[test]
fn after_a_mistake_the_item_is_unchanged() {
    let item = tokens("#[a] async fn f(id: u8) -> Result<(), E> { not - even rust }");
    let expanded = locked(tokens(r#"nam = "x", expiry = "1""#), item.clone()).to_string();
    assert!(expanded.starts_with(&item.to_string()));
    assert_eq!(expanded.matches(":: core :: compile_error").count(), 2);
}

#[test]
fn never_panics() {
    each_seed(|random| {
        let name = text(random, "abcxyz<>{}. :()\\\"", 0..=16);
        let key = word(random, "name|expiry|on_busy|provider|crate|x");
        let value = text(random, "0123456789abcdxyz", 0..=6);
        for item in [
            "async fn f(id: u8) -> Result<(), E> {}",
            "impl X {}",
            "fn f();",
            "= async",
            "",
        ] {
            for args in [
                format!("name = {name:?}, {key} = {value}"),
                format!("{key} {value} {name:?}"),
            ] {
                if let Ok(args) = args.parse() {
                    locked(args, tokens(item));
                }
            }
        }
    });
}
