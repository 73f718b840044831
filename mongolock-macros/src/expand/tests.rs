use proptest::prelude::*;
use quote::quote;

use super::*;

use crate::locked;

fn function(args: TokenStream) -> TokenStream {
    locked(
        args,
        quote! {
            #[doc = "x"]
            pub(crate) async fn job<T: X>(&self, id: u8, (a, b): P) -> Result<impl X + 'static, E> where T: Y {
                #![allow(unused)]
                user(body)
            }
        },
    )
}

/// Arguments that together reach every branch of the expansion.
fn cases() -> Vec<TokenStream> {
    vec![
        quote!(name = "x"),
        quote!(
            name = "<id>:<a.0.b()>",
            on_busy = "skip",
            acquire_timeout = "1s",
            provider = self.p
        ),
        quote!(
            name = "x:<self.type>",
            on_busy = "fail",
            on_lost = "continue",
            provider = &a + b,
            expiry = "1s"
        ),
        quote! { name = "x", acquire_timeout = "none", expiry = "1s", min_hold = "1s", max_hold = "1s" },
        quote!(name = id),
        quote!(name = "<N>:<id>"),
    ]
}

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
fn the_expansion_is_one_function() {
    for case in cases() {
        let file: syn::File = syn::parse2(function(case)).unwrap();
        assert!(matches!(file.items.as_slice(), [syn::Item::Fn(_)]));
    }
}

#[test]
fn the_expansion_allows_no_lint() {
    for case in cases() {
        assert_eq!(function(case).to_string().matches("allow").count(), 1);
    }
}

#[test]
fn every_path_is_absolute() {
    for case in cases() {
        let mut tokens = Vec::new();
        flat(function(case.clone()), &mut tokens);
        for at in 1..tokens.len() - 2 {
            let word = tokens[at].starts_with(char::is_alphabetic) && tokens[at] != "let";
            let leads_on = tokens[at + 1] == ":" && tokens[at + 2] == ":";
            assert!(
                !word || !leads_on || tokens[at - 1] == ":",
                "{case}: {}",
                tokens[at]
            );
        }
    }
}

#[test]
fn the_head_and_the_block_are_unchanged() {
    let expanded = function(quote!(name = "x")).to_string();
    let head = quote! {
        #[doc = "x"]
        pub(crate) async fn job<T: X>(&self, id: u8, (a, b): P) -> Result<impl X + 'static, E> where T: Y
    };
    assert!(expanded.starts_with(&head.to_string()));
    assert!(expanded.contains("{ # ! [allow (unused)] let mongolock_call"));
    assert!(
        expanded.contains(
            &quote!(match () {
                () => {
                    user(body)
                }
            })
            .to_string()
        )
    );
    assert!(expanded.contains("None :: < Result < _ , E > >"));
}

#[test]
fn every_argument_is_in_the_expansion() {
    let expanded = function(quote! {
        name = "a<<:<self.type>:<a.0.b()>", provider = self.p, expiry = "1s",
        acquire_timeout = "2s", min_hold = "3s", max_hold = "4s", on_lost = "continue",
        release = "background", crate = c
    })
    .to_string();
    for part in [
        quote!(c::attribute::Call::on(&self.p)),
        quote!(.expiry(::core::time::Duration::from_millis(1000u64)).min_hold),
        quote!(.min_hold(::core::time::Duration::from_millis(3000u64)).max_hold),
        quote!(.acquire_timeout(::core::time::Duration::from_millis(2000u64)).continue_when_lost().await_release(false)),
        quote!(c::attribute::Name::of_template("a<<:<self.type>:<a.0.b()>")),
        quote!(.text("a<:").escaped("self.type", ':', &self.r#type).text(":").value("a.0.b()", &(&a.0).b())),
        quote!(mongolock_call.wait(name).await),
    ] {
        assert!(expanded.contains(&part.to_string()), "{part}\n{expanded}");
    }
}

#[test]
fn a_declared_name_is_one_expression() {
    let expanded = function(quote!(name = Lock::A { id: f(id)? })).to_string();
    let name = quote! {
        let name = ::mongolock::attribute::declared_lock_name(&Lock::A { id: f(id)? });
    };
    assert!(expanded.contains(&name.to_string()), "{expanded}");
}

#[test]
fn constants_are_rendered() {
    let expanded = function(quote!(name = "<T::KIND>:<N>:<Self::KIND.id()>")).to_string();
    let parts = quote!(.escaped("T::KIND", ':', &T::KIND).text(":").escaped("N", ':', &N).text(":"));
    assert!(expanded.contains(&parts.to_string()), "{expanded}");
    let last = quote!(.value("Self::KIND.id()", &(&Self::KIND).id()));
    assert!(expanded.contains(&last.to_string()), "{expanded}");
}

#[test]
fn a_boxed_future_is_locked_inside_its_box() {
    let expanded = locked(
        quote!(name = "x:<id>"),
        quote! {
            fn f<'a>(&'a self, id: u8) -> Pin<Box<dyn Future<Output = Result<(), E>> + Send + 'a>> {
                Box::pin(async move { let id = id; user(id) })
            }
        },
    )
    .to_string();
    assert!(expanded.contains("{ Box :: pin (async move { let mongolock_call"));
    assert!(
        expanded.contains(
            &quote!({
                let id = id;
                user(id)
            })
            .to_string()
        )
    );
    assert!(expanded.contains("None :: < Result < () , E > >"));
}

#[test]
fn after_a_mistake_the_item_is_unchanged() {
    let item = quote!(#[a] async fn f(id: u8) -> Result<(), E> { not - even rust });
    let expanded = locked(quote!(nam = "x", expiry = "1"), item.clone()).to_string();
    assert!(expanded.starts_with(&item.to_string()));
    assert_eq!(expanded.matches(":: core :: compile_error").count(), 2);
}

proptest! {
    #[test]
    fn never_panics(name in "[a-z<>{}. :()\\\\\"]{0,16}", value in "[0-9a-z]{0,6}", key in "(name|expiry|on_busy|provider|crate|x)") {
        let key = proc_macro2::Ident::new(&key, Span::call_site());
        let value: TokenStream = value.parse().unwrap_or_default();
        for item in [
            quote!(async fn f(id: u8) -> Result<(), E> {}),
            quote!(impl X {}),
            quote!(fn f();),
            quote!(= async),
            quote!(),
        ] {
            locked(quote!(name = #name, #key = #value), item.clone());
            locked(quote!(#key #value #name), item);
        }
    }
}
