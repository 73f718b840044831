use proc_macro2::TokenStream;
use quote::quote;

use super::*;
use crate::bind::Part;

fn validate(args: TokenStream, item: TokenStream) -> (Lock, String) {
    let mut errors = Errors::default();
    let args = Args::parse(args, &mut errors);
    let function = Function::parse(item, &mut errors).ok();
    if let Some(function) = &function {
        crate::shape::of(function, &mut errors);
    }
    let lock = lock(args, function.as_ref(), &mut errors);
    (lock, errors.into_tokens().to_string().replace("\\\"", "\""))
}

fn item() -> TokenStream {
    quote!(
        async fn job(&self, id: u8, r#type: u8, __arg1: u8) -> Result<(), E> {}
    )
}

fn accepted(args: &TokenStream) -> Lock {
    let (lock, errors) = validate(quote!(name = "x", #args), item());
    assert_eq!(errors, "");
    lock
}

fn refused(args: &TokenStream, message: &str) {
    let (_, errors) = validate(quote!(name = "x", #args), item());
    assert!(errors.contains(message), "{errors}");
    assert_eq!(errors.matches("compile_error").count(), 1, "{errors}");
}

fn refused_item(item: TokenStream, message: &str) {
    let (_, errors) = validate(quote!(name = "x"), item);
    assert!(errors.contains(message), "{errors}");
    assert_eq!(errors.matches("compile_error").count(), 1, "{errors}");
}

fn refused_name(name: &str, message: &str) {
    let (_, errors) = validate(quote!(name = #name), item());
    assert!(errors.contains(message), "{errors}");
}

#[test]
fn durations_at_the_bounds_are_accepted() {
    assert_eq!(
        accepted(&quote!(expiry = "100ms")).durations,
        [(DurationKey::Expiry, 100)]
    );
    assert_eq!(
        accepted(&quote!(expiry = "7d")).durations,
        [(DurationKey::Expiry, MAX_DURATION)]
    );
    assert_eq!(
        accepted(&quote!(min_hold = "0s", max_hold = "7d")).durations,
        [(DurationKey::MinHold, 0), (DurationKey::MaxHold, MAX_DURATION)]
    );
    assert_eq!(
        accepted(&quote!(acquire_timeout = "0s")).acquire_timeout,
        Some(Timeout::After(0))
    );
    assert_eq!(
        accepted(&quote!(acquire_timeout = "none")).acquire_timeout,
        Some(Timeout::Unlimited)
    );
    assert_eq!(accepted(&quote!()).acquire_timeout, None);
}

#[test]
fn durations_outside_the_bounds_are_refused() {
    refused(
        &quote!(expiry = "99ms"),
        "`expiry` must be between `100ms` and `7d`, not `99ms`",
    );
    refused(
        &quote!(expiry = "169h"),
        "`expiry` must be between `100ms` and `7d`, not `169h`",
    );
    refused(&quote!(expiry = "30"), "`30` has no unit: write `30s`");
    refused(
        &quote!(min_hold = "8d"),
        "`min_hold` must be between `0s` and `7d`, not `8d`",
    );
    refused(&quote!(max_hold = "8d"), "`max_hold` must be between");
    refused(
        &quote!(acquire_timeout = "8d"),
        "or `none` to wait without a limit",
    );
    refused(&quote!(acquire_timeout = "never"), "`never` is not a duration");
}

#[test]
fn a_list_has_at_most_as_many_names_as_the_runtime_accepts() {
    let list = |count: usize| {
        let names = (0..count).map(|index| format!("name {index}"));
        validate(quote!(name = [#(#names),*]), item()).1
    };
    assert_eq!(list(500), "");
    let errors = list(502);
    assert!(
        errors.contains("the list has 502 names, and one call locks at most 500"),
        "{errors}"
    );
    assert_eq!(errors.matches("compile_error").count(), 1);
}

#[test]
fn choices_are_read() {
    assert!(matches!(
        accepted(&quote!(on_busy = "fail")).on_busy,
        OnBusy::Fail
    ));
    assert!(matches!(
        accepted(&quote!(on_busy = "wait")).on_busy,
        OnBusy::Wait
    ));
    assert!(accepted(&quote!(on_lost = "continue")).continues_when_lost);
    assert_eq!(accepted(&quote!()).await_release, None);
    assert_eq!(accepted(&quote!(release = "awaited")).await_release, Some(true));
    assert_eq!(
        accepted(&quote!(release = "background")).await_release,
        Some(false)
    );
    refused(
        &quote!(on_busy = "skp"),
        "`on_busy` cannot be `skp`: did you mean `skip`?",
    );
    refused(
        &quote!(on_busy = "in_progress"),
        "`on_busy` cannot be `in_progress`: write `wait`, `skip` or `fail`, or `on_busy = in_progress` without quotes for a function",
    );
    refused(
        &quote!(on_busy = "not a path"),
        "`on_busy` cannot be `not a path`: write `wait`, `skip` or `fail`\"",
    );
    refused(
        &quote!(on_lost = "abort"),
        "`on_lost` cannot be `abort`: write `cancel` or `continue`",
    );
    refused(
        &quote!(release = "detached"),
        "`release` cannot be `detached`: write `awaited` or `background`",
    );
}

#[test]
fn a_timeout_is_refused_where_it_has_no_effect() {
    accepted(&quote!(on_busy = "skip", acquire_timeout = "1s"));
    refused(
        &quote!(on_busy = "fail", acquire_timeout = "1s"),
        "`acquire_timeout` has no effect with `on_busy = \"fail\"`",
    );
    refused(
        &quote!(on_busy = "skip", acquire_timeout = "none"),
        "`on_busy` would have no effect",
    );
}

#[test]
fn every_placeholder_must_name_an_argument() {
    for name in ["<id>", "<self.a.0.b()>", "<type>", "<id>:<id>", "<__arg1>"] {
        assert_eq!(validate(quote!(name = #name), item()).1, "");
    }
    refused_name("<idd>", "`job` has no argument `idd`: did you mean `<id>`?");
    refused_name(
        "<tenant.x>",
        "it takes `self`, `id`, `type`; for a field of `self` write `<self.tenant.x>`",
    );
    let (_, errors) = validate(
        quote!(name = "<self.a>"),
        quote!(
            async fn f(id: u8) -> Result<(), E> {}
        ),
    );
    assert!(
        errors.contains("`f` has no `self` to fill in `<self.a>`"),
        "{errors}"
    );
}

#[test]
fn the_message_about_a_missing_name_suggests_one() {
    let missing = |item| validate(quote!(), item).1;
    assert!(missing(item()).contains("`name` is missing: write `#[distributed_lock(name = \"job:<id>\")]`"));
    assert!(
        missing(quote!(
            async fn job(_: u8) -> T {}
        ))
        .contains("name = \"job\"")
    );
    assert_eq!(
        validate(quote!(nam = "x"), item())
            .1
            .matches("compile_error")
            .count(),
        1
    );
}

#[test]
fn the_function_must_be_async_and_able_to_fail() {
    refused_item(
        quote!(
            fn f() -> Result<(), E> {}
        ),
        "needs an `async fn`: if another attribute took the `async` away",
    );
    refused_item(
        quote!(
            fn f() -> impl Future<Output = Result<(), E>> {}
        ),
        "the return type written out",
    );
    // Behind an alias only the body shows that it is a future.
    for body in [
        quote!(Box::pin(async { 1 })),
        quote!(async move { 1 }.boxed()),
        quote!(f().boxed_local()),
    ] {
        refused_item(quote!(fn f() -> Boxed { #body }), "the return type written out");
    }
    refused_item(
        quote!(
            fn f() -> X {
                runtime.block_on(async { 1 })
            }
        ),
        "blocking code calls",
    );
    refused_item(
        quote!(
            async fn f() {}
        ),
        "`f` returns nothing, so it cannot report",
    );
    refused_item(
        quote!(
            async fn f() -> () {}
        ),
        "`f` returns nothing, so it cannot report",
    );
    refused_item(
        quote!(
            async fn f() -> ! {}
        ),
        "`f` returns `!`, so it cannot report",
    );
}

#[test]
fn all_mistakes_are_reported_at_once() {
    let (_, errors) = validate(
        quote!(
            name = " {id}<idd>",
            expiry = "1",
            on_busy = "fail",
            acquire_timeout = "x",
            on_lost = "y"
        ),
        quote!(
            #[distributed_lock(name = "y")]
            fn f(id: u8) {}
        ),
    );
    assert_eq!(errors.matches("compile_error").count(), 9, "{errors}");
}

#[test]
fn the_separators_of_a_name_are_escaped() {
    let separators = |args: TokenStream| {
        let (lock, errors) = validate(args, item());
        assert_eq!(errors, "");
        match lock.names {
            LockNames::One(LockName::Template { parts, .. }) => parts
                .into_iter()
                .filter_map(|part| match part {
                    Part::Value(value) => Some(value.separator),
                    Part::Text(_) => None,
                })
                .collect::<Vec<_>>(),
            _ => panic!("a template was given"),
        }
    };
    assert_eq!(separators(quote!(name = "<id>:<type>/x")), [Some(':'), None]);
    refused_name(
        "<id>%<type>",
        "begin the text with another separator, such as `<id>:%`",
    );
}

#[test]
fn a_name_without_quotes_is_refused() {
    let name = |name: TokenStream| validate(quote!(name = #name), item()).1;
    assert!(name(quote!(nightly)).contains("write `name = \"nightly\"`"));
    for declared in [
        quote!(id),
        quote!(self),
        quote!(r#type),
        quote!(NIGHTLY),
        quote!(a::b),
    ] {
        assert_eq!(name(declared), "");
    }
}

#[test]
fn constants_are_found() {
    let generic = quote!(
        async fn job<const n: usize>(id: u8, max: u8) -> Result<(), E> {}
    );
    for name in ["<n>", "<N>", "<SHARD_2>", "<T::KIND>", "<Self::KIND.id()>"] {
        assert_eq!(validate(quote!(name = #name), generic.clone()).1, "", "{name}");
    }
    for (name, message) in [
        ("<MAX>", "`job` has no argument `MAX`: did you mean `<max>`?"),
        ("<Shard>", "`job` has no argument `Shard`"),
        ("<shard>", "`job` has no argument `shard`"),
        ("<0>", "`<0>` must name an argument"),
    ] {
        let (_, errors) = validate(quote!(name = #name), generic.clone());
        assert!(errors.contains(message), "{errors}");
    }
}
