use super::*;
use crate::samples::{group, tokens};

fn parse(item: TokenStream) -> Result<Function, String> {
    let mut errors = Errors::default();
    let function = Function::parse(item, &mut errors).ok();
    function
        .filter(|_| errors.is_empty())
        .ok_or_else(|| errors.into_tokens().to_string())
}

fn locked(args: &str, item: &str) -> String {
    crate::locked(tokens(args), tokens(item)).to_string()
}

#[test]
fn finds_every_binding() {
    for (item, expected) in [
        ("async fn f(&self, a: u8, mut b: u8, _: u8) {}", "a b"),
        (
            "async fn f((a, [b, .., c]): T, P { x, y: z, .. }: P) {}",
            "a b c x z",
        ),
        (
            "async fn f(p @ P(ref a, &b): P, (c | (c)): u8, m!(): u8) {}",
            "p a b c c",
        ),
    ] {
        let function = parse(tokens(item)).unwrap();
        let names: Vec<String> = function.bindings().into_iter().map(ToString::to_string).collect();
        assert_eq!(names.join(" "), expected);
    }
}

#[test]
fn keeps_every_token_of_the_head() {
    let head = r#"#[a] /** doc */ pub(crate) default const async unsafe extern "C" fn f<T: X>(a: T) -> Y where T: Z"#;
    let function = parse(tokens(&format!("{head} {{ not - rust }}"))).unwrap();
    assert_eq!(function.head.to_string(), tokens(head).to_string());
    assert_eq!(function.body.stream().to_string(), "not - rust");
}

#[test]
fn reads_the_invisible_groups_of_macro_rules() {
    let block = group("{ body }");
    let item = Group::new(Delimiter::None, quote::quote!(async fn f() #block));
    assert_eq!(
        parse(quote::quote!(#item)).unwrap().body.stream().to_string(),
        "body"
    );
}

/// The suite `ui` has the messages about functions without a body and about `impl`.
#[test]
fn refuses_items_that_are_not_functions() {
    for (item, message) in [
        ("async fn f()", "no body to run"),
        ("#[a] pub trait X {}", "`trait` blocks"),
        ("pub const X: u8 = 1;", "only functions"),
        ("let x = 1;", "only functions"),
        ("", "only functions"),
        ("async fn f(a: u8) -> + {}", "expected"),
    ] {
        let refused = parse(tokens(item)).err().unwrap();
        assert!(refused.contains(message), "{item}: {refused}");
    }
}

#[test]
fn a_function_with_a_half_typed_argument_has_no_error_and_no_lock() {
    let name = r#"name = "<id>", nonsense = 1"#;
    let message = crate::error::target::unread_argument();
    for arguments in ["id:", "id", "id: u8, mut", "id: &, x: u8"] {
        let expected = format!(
            "async fn f({arguments}) {{ const {{ ::core::panic!({message:?}) }} match () {{ () => {{ body }} }} }}"
        );
        let function = locked(name, &format!("async fn f({arguments}) {{ body }}"));
        assert_eq!(function, tokens(&expected).to_string());
    }
    let lock = locked(name, "async fn f(id: , #[lock] lock: ) { body }");
    assert!(lock.starts_with("async fn f (id : ,)"), "{lock}");
    assert!(lock.contains("let lock : :: mongolock :: LockContext"), "{lock}");
}

#[test]
fn an_item_that_cannot_be_locked_is_given_back_without_the_attribute_lock() {
    for item in [
        "async fn f(#[lock] lock: LockContext);",
        "async fn f(#[lock] &self, id: u8) -> Result<(), E> {}",
        "async fn f(#[lock] lock: &LockContext) -> Result<(), E> {}",
        "async fn f(#[lock] lock: LockContext) -> + {}",
    ] {
        let returned = locked(r#"name = "x""#, item);
        assert!(!returned.contains("# [lock]"), "{returned}");
        assert!(!returned.contains("& self id"), "{returned}");
        assert_eq!(returned.matches("compile_error").count(), 1, "{returned}");
    }
}

#[test]
fn moves_inner_attributes_out_of_the_body() {
    let function = parse(tokens("async fn f() { #![allow(unused)] let x = 1; }")).unwrap();
    let (attributes, block) = split_inner_attributes(&function.body);
    assert_eq!(attributes.to_string().replace(' ', ""), "#![allow(unused)]");
    assert_eq!(block.stream().to_string(), "let x = 1 ;");
}
