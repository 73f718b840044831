use super::*;
use crate::samples::{rows, tokens};

/// The result for these arguments on a function, and the messages.
fn on(item: &str, args: &str) -> (CheckedLock, String) {
    let mut errors = Errors::default();
    let args = Args::parse(tokens(args), &mut errors);
    let function = Function::parse(tokens(item), &mut errors).ok();
    if let Some(function) = &function {
        crate::shape::of(function, &mut errors);
    }
    let lock = lock(args, function.as_ref(), &mut errors);
    (lock, errors.into_tokens().to_string().replace("\\\"", "\""))
}

const JOB: &str = "async fn job(&self, id: u8, r#type: u8, __arg1: u8) -> Result<(), E> {}";

fn accepted(args: &str) -> CheckedLock {
    let (lock, errors) = on(JOB, &format!(r#"name = "x", {args}"#));
    assert_eq!(errors, "");
    lock
}

/// The messages about a name that is written so.
fn named(name: &str) -> String {
    on(JOB, &format!("name = {name}")).1
}

#[track_caller]
fn assert_one(errors: &str, message: &str) {
    assert!(errors.contains(message), "{errors}");
    assert_eq!(errors.matches("compile_error").count(), 1, "{errors}");
}

#[test]
fn durations_at_the_bounds_are_accepted() {
    let durations = |args| accepted(args).durations;
    assert_eq!(durations(r#"expiry = "100ms""#), [(DurationKey::Expiry, 100)]);
    let longest = [(DurationKey::Expiry, MAX_DURATION)];
    assert_eq!(durations(r#"expiry = "7d""#), longest);
    let both = [(DurationKey::MinHold, 0), (DurationKey::MaxHold, MAX_DURATION)];
    assert_eq!(durations(r#"min_hold = "0s", max_hold = "7d""#), both);
    let timeout = |args| accepted(args).acquire_timeout;
    assert_eq!(timeout(r#"acquire_timeout = "0s""#), Some(Timeout::After(0)));
    assert_eq!(timeout(r#"acquire_timeout = "none""#), Some(Timeout::Unlimited));
    assert_eq!(timeout(""), None);
}

/// The suite `ui` has the usual ones.
#[test]
fn values_that_an_option_does_not_have_are_refused() {
    let table = r#"
        acquire_timeout = "never" => `never` is not a duration
        on_busy = "not a path" => `on_busy` cannot be `not a path`: write `wait`, `skip` or `fail`"
        release = "detached" => `release` cannot be `detached`: write `awaited` or `background`
    "#;
    for (args, message) in rows(table) {
        assert_one(&on(JOB, &format!(r#"name = "x", {args}"#)).1, message);
    }
}

#[test]
fn a_list_has_at_most_as_many_names_as_the_runtime_accepts() {
    let list = |count: usize| {
        let names: Vec<String> = (0..count).map(|index| format!("\"name {index}\"")).collect();
        named(&format!("[{}]", names.join(", ")))
    };
    assert_eq!(list(500), "");
    let too_long = "the list has 502 names, and one call locks at most 500";
    assert_one(&list(502), too_long);
}

#[test]
fn every_placeholder_must_name_an_argument() {
    for name in ["<id>", "<self.a.0.b()>", "<type>", "<id>:<id>", "<__arg1>"] {
        assert_eq!(named(&format!("{name:?}")), "");
    }
    let table = "
        <tenant.x> => it takes `self`, `id`, `type`; for a field of `self` write `<self.tenant.x>`
        <idd.x> => `job` has no argument `idd`: did you mean `<id.x>`?
    ";
    for (name, message) in rows(table) {
        let errors = named(&format!("{name:?}"));
        assert!(errors.contains(message), "{errors}");
    }
}

#[test]
fn the_message_about_a_missing_name_suggests_one() {
    let missing = r#"`name` is missing: write `#[distributed_lock(name = "job:<id>")]`"#;
    assert_one(&on(JOB, "").1, missing);
    assert_one(&on("async fn job(_: u8) -> T {}", "").1, "name = \"job\"");
    assert_one(&on(JOB, r#"nam = "x""#).1, "did you mean `name`");
}

/// The suite `ui` has the forms that users write; behind an alias only the body shows that it is a future.
#[test]
fn the_function_must_be_async() {
    let table = "
        fn f() -> Boxed { Box::pin(async { 1 }) } => the return type written out
        fn f() -> Boxed { async move { 1 }.boxed() } => the return type written out
        fn f() -> Boxed { f().boxed_local() } => the return type written out
        fn f() -> X { runtime.block_on(async { 1 }) } => blocking code calls
    ";
    for (item, message) in rows(table) {
        assert_one(&on(item, r#"name = "x""#).1, message);
    }
}

#[test]
fn declared_names_and_constants_are_found() {
    for declared in ["id", "self", "r#type", "NIGHTLY", "a::b"] {
        assert_eq!(named(declared), "");
    }
    let generic = "async fn job<const n: usize>(id: u8, max: u8) -> Result<(), E> {}";
    let in_name = |name: &str| on(generic, &format!("name = {name:?}")).1;
    for name in ["<n>", "<N>", "<SHARD_2>", "<T::KIND>", "<Self::KIND.id()>"] {
        assert_eq!(in_name(name), "", "{name}");
    }
    let table = "
        <MAX> => `job` has no argument `MAX`: did you mean `<max>`?
        <Shard> => `job` has no argument `Shard`
        <shard> => `job` has no argument `shard`
        <0> => `<0>` must name an argument
    ";
    for (name, message) in rows(table) {
        let errors = in_name(name);
        assert!(errors.contains(message), "{errors}");
    }
}
