//! Values that are refused.

use super::*;

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
