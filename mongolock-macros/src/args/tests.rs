mod mistakes;

use quote::{ToTokens, quote};

use super::*;
use crate::key::DurationKey;

fn parse(tokens: TokenStream) -> (Args, String) {
    let mut errors = Errors::default();
    let args = Args::parse(tokens, &mut errors);
    (args, errors.into_tokens().to_string())
}

fn accepted(tokens: TokenStream) -> Args {
    let (args, errors) = parse(tokens);
    assert_eq!(errors, "");
    args
}

/// The messages, one for each `compile_error!`.
fn refused(tokens: TokenStream) -> Vec<String> {
    let (_, errors) = parse(tokens);
    let errors: TokenStream = errors.parse().unwrap();
    let file: syn::File = syn::parse2(errors).unwrap();
    file.items
        .into_iter()
        .map(|item| match item {
            syn::Item::Macro(call) => call.mac.parse_body::<LitStr>().unwrap().value(),
            other => panic!("{}", other.to_token_stream()),
        })
        .collect()
}

fn one(tokens: TokenStream) -> String {
    let mut messages = refused(tokens);
    assert_eq!(messages.len(), 1, "{messages:?}");
    messages.remove(0)
}

#[test]
fn reads_every_argument() {
    let args = accepted(quote! {
        name = "a", expiry = r"1s", acquire_timeout = "none", min_hold = r#"3s"#,
        max_hold = "4s", on_busy = "skip", on_lost = "continue", provider = f::<A, B>(x, y).z, crate = ::b::c,
    });
    let texts = [
        (Key::Name, "a"),
        (Key::Duration(DurationKey::Expiry), "1s"),
        (Key::AcquireTimeout, "none"),
        (Key::Duration(DurationKey::MinHold), "3s"),
        (Key::Duration(DurationKey::MaxHold), "4s"),
        (Key::OnBusy, "skip"),
        (Key::OnLost, "continue"),
    ];
    for (key, value) in texts {
        assert_eq!(args.literal(key).unwrap().1.value(), value);
    }
    assert_eq!(
        args.provider.unwrap().to_token_stream().to_string(),
        quote!(f::<A, B>(x, y).z).to_string()
    );
    assert_eq!(
        args.crate_path.unwrap().to_token_stream().to_string(),
        quote!(::b::c).to_string()
    );
}

#[test]
fn every_key_has_its_own_example() {
    for key in Key::ALL {
        assert_eq!(Key::find(key.as_str()), Some(key));
        accepted(key.example().parse().unwrap());
    }
}

#[test]
fn an_empty_argument_list_is_read() {
    assert!(!accepted(quote!()).mentions(Key::Name));
}

#[test]
fn refuses_unknown_keys() {
    assert_eq!(
        one(quote!(nam = "x")),
        "unknown argument `nam`: did you mean `name`?"
    );
    assert_eq!(
        one(quote!(acquireTimeout = "x")),
        "unknown argument `acquireTimeout`: did you mean `acquire_timeout`?"
    );
    assert!(
        one(quote!(colour = "30s")).starts_with("unknown argument `colour`: expected `name`, `expiry`, ")
    );
    assert!(one(quote!(colour = "30s")).ends_with("`provider` or `crate`"));
    assert!(parse(quote!(nam = "x")).0.mentions(Key::Name));
}

#[test]
fn the_words_of_other_libraries_are_known() {
    assert_eq!(
        one(quote!(ttl = "30s")),
        r#"unknown argument `ttl`: it is called `expiry` here: write `expiry = "30s"`"#
    );
    for (word, key) in [
        (quote!(lease), "expiry"),
        (quote!(lock_at_most_for), "expiry"),
        (quote!(lockAtLeastFor), "min_hold"),
        (quote!(timeout), "acquire_timeout"),
        (quote!(wait), "acquire_timeout"),
        (quote!(key), "name"),
        (quote!(limit), "permits"),
        (quote!(max_concurrent), "permits"),
        (quote!(daily), "once_per"),
    ] {
        let message = one(quote!(#word = "30s"));
        assert!(
            message.contains(&format!("it is called `{key}` here")),
            "{message}"
        );
    }
    assert!(parse(quote!(key = "x")).0.mentions(Key::Name));
    assert!(one(quote!(daily)).ends_with(r#"write `once_per = "1d"`"#));
    assert!(one(quote!(hourly = true)).ends_with(r#"write `once_per = "1h"`"#));
    assert_eq!(
        one(quote!(skip = true)),
        r#"`skip` is a value and not an argument: write `on_busy = "skip"`"#
    );
    assert!(one(quote!(skip = false)).starts_with("unknown argument `skip`"));
}

#[test]
fn refuses_attributes_of_arguments() {
    let (args, errors) = parse(quote!(
        #[cfg(x)]
        name = "x",
        #[a]
        #[b]
        expiry = "1s"
    ));
    assert!(args.literal(Key::Name).is_some(), "{errors:?}");
    assert_eq!(errors.matches("compile_error").count(), 3, "{errors}");
}

#[test]
fn a_path_is_the_function_of_on_busy() {
    for path in [
        quote!(busy),
        quote!(Self::busy),
        quote!(crate::answers::busy),
        quote!(busy::<String>),
        quote!(Self::busy::<_, 5>),
        quote!(<T as Answers<A, B>>::busy),
    ] {
        let (args, errors) = parse(quote!(name = "x", on_busy = #path, expiry = "1s"));
        assert!(errors.is_empty(), "{errors:?}");
        assert!(args.literal(Key::OnBusy).is_none());
        let read = args.on_busy.unwrap().to_token_stream();
        assert_eq!(
            read.to_string().replace(' ', ""),
            path.to_string().replace(' ', "")
        );
        let group = proc_macro2::Group::new(proc_macro2::Delimiter::None, path);
        assert!(
            accepted(quote!(on_busy = #group, expiry = "1s"))
                .on_busy
                .is_some()
        );
    }
}

#[test]
fn refuses_functions_of_on_busy_that_are_no_paths() {
    for (value, write) in [
        (quote!(busy(id, other)), "busy"),
        (quote!(&Self::busy), "Self::busy"),
        (quote!(self.busy), "Self::busy"),
        (quote!(busy<A, B>), "busy::<A, B>"),
    ] {
        assert_eq!(
            one(quote!(name = "x", on_busy = #value, expiry = "1s")),
            format!("`on_busy` takes the path of a function: write `on_busy = {write}`")
        );
    }
    for closure in [
        quote!(|id, busy| Ok(*id)),
        quote!(move |_, busy: &Busy| -> R { Ok(()) }),
        quote!(|| ()),
    ] {
        let message = one(quote!(on_busy = #closure, name = "x"));
        assert!(
            message.starts_with("`on_busy` takes the path of a function and not a closure"),
            "{message}"
        );
    }
    assert!(one(quote!(on_busy = 3)).ends_with("or `on_busy = my_function`"));
}

#[test]
fn constants_cannot_be_read() {
    assert_eq!(
        one(quote!(permits = limits::MAX)),
        "`permits` must be a number, because an attribute cannot read the constant `limits::MAX`: write `permits = 5`, or \
         acquire a permit of `provider.semaphore(name, limits::MAX)` in the function"
    );
    assert_eq!(
        one(quote!(permits = "7")),
        "`permits` must be a number: write `permits = 7`"
    );
    assert_eq!(
        one(quote!(permits = 7u32)),
        "`permits` must be a number: write `permits = 7`"
    );
    assert_eq!(
        one(quote!(permits = max(3, 4))),
        "`permits` must be a number: write `permits = 5`"
    );
    assert_eq!(
        one(quote!(expiry = EXPIRY)),
        "`expiry` must be a string literal, because an attribute cannot read the constant `EXPIRY`: write `expiry = \"30s\"`"
    );
}

#[test]
fn reads_names_that_are_declared_elsewhere() {
    for value in [
        quote!(Lock::Nightly),
        quote!(NIGHTLY),
        quote!(Lock::Report {
            tenant,
            id: order.id()?
        }),
        quote!(locks::Lock::<'_>::Invoice(number)),
        quote!(Self::LOCK),
    ] {
        let name = accepted(quote!(name = #value, expiry = "1s")).name;
        assert_eq!(name.to_token_stream().to_string(), value.to_string());
        let group = proc_macro2::Group::new(proc_macro2::Delimiter::None, value);
        assert!(accepted(quote!(name = #group)).name.is_some());
    }
    let (args, errors) = parse(quote!(name = Lock::A expiry = "1s"));
    assert!(args.name.is_some() && errors.contains("expected `,`"));
}

#[test]
fn arguments_after_a_missing_comma_are_read() {
    let (args, errors) = parse(quote!(name = "a" expiry = "1s" provider = p crate = c on_busy = "skip"));
    assert_eq!(errors.matches("expected `,` between two arguments").count(), 4);
    assert!(
        [
            Key::Name,
            Key::Duration(DurationKey::Expiry),
            Key::Provider,
            Key::Crate,
            Key::OnBusy
        ]
        .into_iter()
        .all(|key| args.mentions(key))
    );
}

#[test]
fn reports_all_mistakes_at_once() {
    assert_eq!(
        refused(quote!(
            nam = "x",
            expiry = 3,
            expiry = "3s",
            skip,
            ttl = "x",
            crate = 5
        ))
        .len(),
        6
    );
}

#[test]
fn reads_literals_that_macro_rules_passes_on() {
    let literal = proc_macro2::Group::new(proc_macro2::Delimiter::None, quote!("x:<id>"));
    assert_eq!(
        accepted(quote!(name = #literal, expiry = "1s"))
            .literal(Key::Name)
            .unwrap()
            .1
            .value(),
        "x:<id>"
    );
}
