use quote::quote;

use super::*;

fn parse(item: TokenStream) -> Result<Function, String> {
    let mut errors = Errors::default();
    let function = Function::parse(item, &mut errors).ok();
    function
        .filter(|_| errors.is_empty())
        .ok_or_else(|| errors.into_tokens().to_string())
}

fn refused(item: TokenStream) -> String {
    parse(item).err().unwrap()
}

fn names(item: TokenStream) -> Vec<String> {
    parse(item)
        .unwrap()
        .bindings()
        .into_iter()
        .map(ToString::to_string)
        .collect()
}

#[test]
fn finds_every_binding() {
    assert_eq!(
        names(quote!(
            async fn f(&self, a: u8, mut b: u8, _: u8) {}
        )),
        ["a", "b"]
    );
    assert_eq!(
        names(quote!(
            async fn f((a, [b, .., c]): T, P { x, y: z, .. }: P) {}
        )),
        ["a", "b", "c", "x", "z"]
    );
    assert_eq!(
        names(quote!(
            async fn f(p @ P(ref a, &b): P, (c | (c)): u8, m!(): u8) {}
        )),
        ["p", "a", "b", "c", "c"]
    );
}

#[test]
fn keeps_every_token_of_the_head() {
    let head = quote!(#[a] /** doc */ pub(crate) default const async unsafe extern "C" fn f<T: X>(a: T) -> Y where T: Z);
    let function = parse(quote!(#head { not - rust })).unwrap();
    assert_eq!(function.head.to_string(), head.to_string());
    assert_eq!(function.body.stream().to_string(), "not - rust");
}

#[test]
fn reads_the_invisible_groups_of_macro_rules() {
    let block = Group::new(Delimiter::None, quote!({ body }));
    let item = Group::new(Delimiter::None, quote!(async fn f() #block));
    assert_eq!(parse(quote!(#item)).unwrap().body.stream().to_string(), "body");
}

#[test]
fn refuses_functions_without_a_body() {
    assert!(
        refused(quote!(
            async fn f();
        ))
        .contains("no body to run")
    );
    assert!(refused(quote!(async fn f())).contains("no body to run"));
}

#[test]
fn refuses_items_that_are_not_functions() {
    assert!(refused(quote!(impl X {})).contains("`impl` blocks"));
    assert!(
        refused(quote!(
            #[a]
            pub trait X {}
        ))
        .contains("`trait` blocks")
    );
    assert!(
        refused(quote!(
            pub const X: u8 = 1;
        ))
        .contains("only functions")
    );
    assert!(refused(quote!(let x = 1;)).contains("only functions"));
    assert!(refused(TokenStream::new()).contains("only functions"));
}

#[test]
fn reports_a_signature_that_cannot_be_read() {
    assert!(refused(quote!(async fn f(a: u8) -> + {})).contains("expected"));
}

#[test]
fn a_function_with_a_half_typed_argument_has_no_error_and_no_lock() {
    let name = quote!(name = "<id>", nonsense = 1);
    for arguments in [quote!(id:), quote!(id), quote!(id: u8, mut), quote!(id: &, x: u8)] {
        let function = crate::locked(name.clone(), quote!(async fn f(#arguments) { body }));
        let message = crate::error::target::unread_argument();
        let expected =
            quote!(async fn f(#arguments) { const { ::core::panic!(#message) } match () { () => { body } } });
        assert_eq!(function.to_string(), expected.to_string());
    }
    let lock = crate::locked(name, quote!(async fn f(id: , #[lock] lock: ) { body })).to_string();
    assert!(lock.starts_with("async fn f (id : ,)"), "{lock}");
    assert!(lock.contains("let lock : :: mongolock :: LockContext"), "{lock}");
}

#[test]
fn an_item_that_cannot_be_locked_is_given_back_without_the_attribute_lock() {
    for item in [
        quote!(
            async fn f(#[lock] lock: LockContext);
        ),
        quote!(
            async fn f(#[lock] &self, id: u8) -> Result<(), E> {}
        ),
        quote!(
            async fn f(#[lock] lock: &LockContext) -> Result<(), E> {}
        ),
        quote!(async fn f(#[lock] lock: LockContext) -> + {}),
    ] {
        let returned = crate::locked(quote!(name = "x"), item).to_string();
        assert!(!returned.contains("# [lock]"), "{returned}");
        assert!(!returned.contains("& self id"), "{returned}");
        assert_eq!(returned.matches("compile_error").count(), 1, "{returned}");
    }
}

#[test]
fn moves_inner_attributes_out_of_the_body() {
    let function = parse(quote!(
        async fn f() {
            #![allow(unused)]
            let x = 1;
        }
    ))
    .unwrap();
    let (attributes, block) = split_inner_attributes(&function.body);
    assert_eq!(attributes.to_string(), quote!(#![allow(unused)]).to_string());
    assert_eq!(block.stream().to_string(), quote!(let x = 1;).to_string());
}

#[test]
fn a_function_with_a_lock_of_another_name_is_found() {
    let item = quote!(
        #[tracing::instrument]
        async fn f() -> Result<(), E> {}
    );
    let once = crate::locked(quote!(name = "x"), item);
    let twice = crate::locked(quote!(name = "y"), once.clone()).to_string();
    assert!(
        twice.contains("a function can have only one `#[distributed_lock]`"),
        "{twice}"
    );
    assert!(twice.starts_with(&once.to_string()), "{twice}");
}
