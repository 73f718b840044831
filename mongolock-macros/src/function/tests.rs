use super::*;
use crate::samples::tokens;

fn parse(item: TokenStream) -> Result<Function, String> {
    let mut errors = Errors::default();
    let function = Function::parse(item, &mut errors).ok();
    function
        .filter(|_| errors.is_empty())
        .ok_or_else(|| errors.into_tokens().to_string())
}

#[test]
fn keeps_every_token_of_the_head() {
    let head = r#"#[a] /** doc */ pub(crate) default const async unsafe extern "C" fn f<T: X>(a: T) -> Y where T: Z"#;
    let function = parse(tokens(&format!("{head} {{ not - rust }}"))).unwrap();
    assert_eq!(function.head.to_string(), tokens(head).to_string());
    assert_eq!(function.body.stream().to_string(), "not - rust");
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

/// The suite `ui` sees what the compiler says of such functions, and not what becomes of them where it says nothing.
#[test]
fn a_function_that_cannot_be_read_is_given_back_without_its_lock() {
    let message = crate::error::target::unread_argument();
    let panics = format!("{{ const {{ ::core::panic!({message:?}) }} match () {{ () => {{ body }} }} }}");
    for arguments in ["id:", "id", "id: u8, mut", "id: &, x: u8"] {
        let head = format!("async fn f({arguments})");
        let given_back = crate::locked(tokens(r#"name = "<id>""#), tokens(&format!("{head} {{ body }}")));
        let expected = tokens(&format!("{head} {panics}")).to_string();
        assert_eq!(given_back.to_string(), expected);
    }
    let item = "async fn f(#[lock] lock: LockContext, id: u8);";
    let given_back = crate::locked(tokens(r#"name = "x""#), tokens(item)).to_string();
    assert!(given_back.starts_with("async fn f (id : u8) ;"), "{given_back}");
}
