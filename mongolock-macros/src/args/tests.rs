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
        name = "a", expiry = "1s", renew_interval = r"2s", acquire_timeout = "none", min_hold = r#"3s"#,
        max_hold = "4s", on_busy = "skip", on_lost = "continue", provider = f::<A, B>(x, y).z, crate = ::b::c,
    });
    let texts = [
        (Key::Name, "a"),
        (Key::Duration(DurationKey::Expiry), "1s"),
        (Key::Duration(DurationKey::RenewInterval), "2s"),
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
        one(quote!(renewInterval = "x")),
        "unknown argument `renewInterval`: did you mean `renew_interval`?"
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
        (quote!(heartbeat), "renew_interval"),
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
fn refuses_a_second_value() {
    assert_eq!(
        one(quote!(name = "x", name = "y")),
        "`name` is given twice: keep one `name`"
    );
    assert_eq!(
        one(quote!(provider = a, provider = a + b, name = "x")),
        "`provider` is given twice: keep one `provider`"
    );
    assert_eq!(
        one(quote!(nam = "x", name = "y")),
        "unknown argument `nam`: did you mean `name`?"
    );
}

#[test]
fn refuses_values_without_a_key() {
    assert_eq!(
        one(quote!("report:<id>")),
        r#"this value has no argument name: write `name = "report:<id>"`"#
    );
    for value in [
        quote!("report" expiry = "1s"),
        quote!(Lock::A),
        quote!(Lock::Invoice(number)),
        quote!(Lock::Report {
            tenant,
            id: order.id()
        }),
        quote!(NIGHTLY),
        quote!(["a", Lock::A]),
    ] {
        let (args, errors) = parse(quote!(#value, expiry = "1s"));
        assert!(
            errors.contains("this value has no argument name: write `name = "),
            "{errors}"
        );
        assert!(args.mentions(Key::Name));
    }
    assert_eq!(
        one(quote!((Lock::Invoice(number)), expiry = "1s")),
        "this value has no argument name: write `name = Lock::Invoice(number)`"
    );
    for other in [
        quote!(Skip),
        quote!(Expiry),
        quote!(EXPIRY("3s")),
        quote!(f(x)),
        quote!([]),
    ] {
        let message = one(other);
        assert!(!message.contains("this value has no argument name"), "{message}");
    }
    assert_eq!(
        one(quote!(skip)),
        r#"`skip` is a value and not an argument: write `on_busy = "skip"`"#
    );
    assert_eq!(
        one(quote!(continue)),
        r#"`continue` is a value and not an argument: write `on_lost = "continue"`"#
    );
    assert!(one(quote!(30)).starts_with("expected an argument such as `name = "));
    assert!(one(quote!(, name = "x")).starts_with("expected an argument such as `name = "));
}

#[test]
fn refuses_keys_without_a_value() {
    for tokens in [quote!(name), quote!(name =), quote!(name = ,)] {
        assert_eq!(
            one(tokens),
            r#"`name` needs a value: write `name = "report:<id>"`"#
        );
    }
}

#[test]
fn refuses_values_without_an_equals_sign() {
    for (tokens, write) in [
        (quote!(name: "x"), r#"name = "x""#),
        (
            quote!(name: Lock::Invoice(number)),
            "name = Lock::Invoice(number)",
        ),
        (quote!(name("x")), r#"name = "x""#),
        (quote!(name("x", "y")), r#"name = ["x", "y"]"#),
        (quote!(expiry("3s")), r#"expiry = "3s""#),
        (quote!(expiry: 3), r#"expiry = "3s""#),
        (quote!(expiry(Duration::from_secs(3))), r#"expiry = "3s""#),
        (quote!(on_busy(skip)), r#"on_busy = "skip""#),
        (quote!(permits(5)), "permits = 5"),
        (quote!(once()), "once = true"),
        (quote!(provider: self.locks), "provider = self.locks"),
    ] {
        let key = write.split(' ').next().unwrap();
        assert_eq!(
            one(tokens),
            format!("`{key}` takes its value after `=`: write `{write}`")
        );
    }
}

#[test]
fn refuses_values_in_parentheses() {
    for (tokens, write) in [
        (quote!(name = (Lock::A)), "name = Lock::A"),
        (quote!(name = (["a", "b"])), r#"name = ["a", "b"]"#),
        (
            quote!(name = ("a", Lock::A), expiry = "1s"),
            r#"name = ["a", Lock::A]"#,
        ),
        (quote!(name = ("a")), r#"name = "a""#),
        (quote!(name = ()), r#"name = "report:<id>""#),
        (quote!(expiry = (30)), r#"expiry = "30s""#),
        (quote!(expiry = (a b)), "expiry = a b"),
        (quote!(on_busy = (in_progress)), "on_busy = in_progress"),
        (quote!(crate = (a::b)), "crate = a::b"),
    ] {
        let key = write.split(' ').next().unwrap();
        assert_eq!(
            one(tokens),
            format!("`{key}` takes its value without parentheses: write `{write}`")
        );
    }
    accepted(quote!(provider = (a)));
}

#[test]
fn refuses_values_of_the_wrong_kind() {
    let string =
        |message: &str, write: &str| format!("`{message}` must be a string literal: write `{write}`");
    let name = "`name` must be a string literal, or a path or struct expression of a type with \
                `#[derive(LockName)]`: write `name = \"report:<id>\"`";
    for tokens in [
        quote!(name = name_of(id)),
        quote!(name = &Lock::A),
        quote!(name = self.lock),
        quote!(name = Lock::A.name()),
        quote!(name = concat!("a", "b")),
        quote!(name = "a" + "b"),
        quote!(name = b"a"),
        quote!(name = 'a'),
        quote!(name = format!("{}", x + 1)),
        quote!(name = c"a"),
    ] {
        assert_eq!(one(tokens), name);
    }
    assert_eq!(one(quote!(expiry = 30)), string("expiry", r#"expiry = "30s""#));
    assert_eq!(
        one(quote!(expiry = 500ms)),
        string("expiry", r#"expiry = "500ms""#)
    );
    assert_eq!(one(quote!(expiry = 1.5)), string("expiry", r#"expiry = "30s""#));
    assert_eq!(
        one(quote!(min_hold = Duration::from_secs(1))),
        string("min_hold", r#"min_hold = "1s""#)
    );
    assert_eq!(
        one(quote!(min_hold = Duration::from_secs(seconds))),
        string("min_hold", r#"min_hold = "1m""#)
    );
    assert_eq!(
        one(quote!(name = format!("{}", x))),
        string("name", r#"name = "<x>""#)
    );
    assert_eq!(
        one(quote!(on_busy = fail)),
        string("on_busy", r#"on_busy = "fail""#)
    );
    assert_eq!(
        one(quote!(on_busy = Skip)),
        string("on_busy", r#"on_busy = "skip""#)
    );
    assert_eq!(
        one(quote!(acquire_timeout = None)),
        string("acquire_timeout", r#"acquire_timeout = "none""#)
    );
    assert_eq!(
        one(quote!(name = "a"x)),
        "`name` must be a plain string literal: remove the suffix `x`"
    );
    assert_eq!(
        one(quote!(crate = "a::b")),
        "`crate` must be a path: write `crate = a::b`"
    );
    assert_eq!(
        one(quote!(crate = a<B>)),
        "`crate` must be a path: write `crate = my_crate::mongolock`"
    );
    assert!(one(quote!(provider = )).starts_with("`provider` needs a value"));
    assert!(one(quote!(provider = =)).starts_with("`provider` must be an expression"));
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
