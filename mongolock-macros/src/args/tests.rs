use super::*;
use crate::key::DurationKey;
use crate::samples::{messages, rows, tokens};

fn parse(code: &str) -> (Args, String) {
    let mut errors = Errors::default();
    let args = Args::parse(tokens(code), &mut errors);
    (args, errors.into_tokens().to_string())
}

fn accepted(code: &str) -> Args {
    let (args, errors) = parse(code);
    assert_eq!(errors, "", "{code}");
    args
}

fn refused(code: &str) -> Vec<String> {
    messages(parse(code).1.parse().unwrap())
}

#[track_caller]
fn one(code: &str) -> String {
    let mut messages = refused(code);
    assert_eq!(messages.len(), 1, "{code}: {messages:?}");
    messages.remove(0)
}

/// Each argument is refused with the message of its row.
#[track_caller]
fn assert_refused(table: &str) {
    for (code, message) in rows(table) {
        assert_eq!(one(code), message, "{code}");
    }
}

#[test]
fn every_key_has_its_own_example() {
    for key in Arg::ALL {
        assert_eq!(Arg::find(key.as_str()), Some(key));
        assert_eq!(Arg::nearest(key.as_str()), Some(key));
        accepted(key.example());
    }
}

/// The suite `ui` has the words of other libraries.
#[test]
fn a_misspelt_key_is_meant() {
    assert_refused(
        r#"
        nam = "x" => unknown argument `nam`: did you mean `name`?
        acquireTimeout = 1 => unknown argument `acquireTimeout`: did you mean `acquire_timeout`?
        nam = "x", name = "y" => unknown argument `nam`: did you mean `name`?
        hourly = true => unknown argument `hourly`: it is called `once_per` here: write `once_per = "1h"`
        "#,
    );
    let unknown = one(r#"colour = "30s""#);
    let is_listed = unknown.contains("`colour`: expected `name`, `expiry`, ")
        && unknown.ends_with("`provider` or `crate`");
    assert!(is_listed, "{unknown}");
    assert!(one("skip = false").starts_with("unknown argument `skip`"));
    for presumed in ["nam = \"x\"", "key = \"x\""] {
        assert!(parse(presumed).0.mentions(Arg::Name), "{presumed}");
    }
}

/// The suite `ui` has the usual ones.
#[test]
fn the_function_of_on_busy_is_a_path() {
    assert_refused(
        "
        on_busy = busy(id, other) => `on_busy` takes the path of a function: write `on_busy = busy`
        on_busy = &Self::busy => `on_busy` takes the path of a function: write `on_busy = Self::busy`
        on_busy = self.busy, expiry = \"1s\" => `on_busy` takes the path of a function: write `on_busy = Self::busy`
        ",
    );
    for closure in ["move |_, busy: &Busy| -> R { Ok(()) }", "|| ()"] {
        let message = one(&format!(r#"on_busy = {closure}, name = "x""#));
        let begin = "`on_busy` takes the path of a function and not a closure";
        assert!(message.starts_with(begin), "{message}");
    }
}

#[test]
fn what_follows_a_mistake_is_read() {
    let (args, errors) = parse(r#"name = Lock::A expiry = "1s" provider = p crate = c on_busy = "skip""#);
    assert_eq!(errors.matches("expected `,` between two arguments").count(), 4);
    let expiry = Arg::Duration(DurationKey::Expiry);
    for key in [Arg::Name, expiry, Arg::Provider, Arg::Crate, Arg::OnBusy] {
        assert!(args.mentions(key));
    }
    let (args, errors) = parse(r#"#[cfg(x)] name = "x", #[a] #[b] expiry = "1s""#);
    assert!(args.literal(Arg::Name).is_some(), "{errors:?}");
    assert_eq!(errors.matches("compile_error").count(), 3, "{errors}");
    let all = r#"nam = "x", expiry = 3, expiry = "3s", skip, ttl = "x", crate = 5"#;
    assert_eq!(refused(all).len(), 6);
}

#[test]
fn refuses_values_without_a_key() {
    for value in [
        r#""report" expiry = "1s""#,
        "Lock::Report { tenant, id: order.id() }",
        "NIGHTLY",
        r#"["a", Lock::A]"#,
    ] {
        let (args, errors) = parse(&format!(r#"{value}, expiry = "1s""#));
        let message = "this value has no argument name: write `name = ";
        assert!(errors.contains(message) && args.mentions(Arg::Name), "{errors}");
    }
    for other in ["Skip", "Expiry", r#"EXPIRY("3s")"#, "f(x)", "[]"] {
        assert!(!one(other).contains("this value has no argument name"), "{other}");
    }
    for other in ["30", r#", name = "x""#] {
        let expected = one(other).starts_with("expected an argument such as `name = ");
        assert!(expected, "{other}");
    }
}

/// The suite `ui` has the usual ones.
#[test]
fn refuses_values_that_are_written_in_another_way() {
    assert_refused(
        r#"
        provider = a, provider = a + b, name = "x" => `provider` is given twice: keep one `provider`
        (Lock::B(number)) => this value has no argument name: write `name = Lock::B(number)`
        continue => `continue` is a value and not an argument: write `on_lost = "continue"`
        name => `name` needs a value: write `name = "report:<id>"`
        name = => `name` needs a value: write `name = "report:<id>"`
        name = , => `name` needs a value: write `name = "report:<id>"`
        name: Lock::Invoice(number) => `name` takes its value after `=`: write `name = Lock::Invoice(number)`
        name("x", "y") => `name` takes its value after `=`: write `name = ["x", "y"]`
        expiry: 3 => `expiry` takes its value after `=`: write `expiry = "3s"`
        expiry(Duration::from_secs(3)) => `expiry` takes its value after `=`: write `expiry = "3s"`
        on_busy(skip) => `on_busy` takes its value after `=`: write `on_busy = "skip"`
        permits(5) => `permits` takes its value after `=`: write `permits = 5`
        once() => `once` takes its value after `=`: write `once = true`
        provider: self.locks => `provider` takes its value after `=`: write `provider = self.locks`
        name = (["a", "b"]) => `name` takes its value without parentheses: write `name = ["a", "b"]`
        name = ("a", Lock::A), expiry = "1s" => `name` takes its value without parentheses: write `name = ["a", Lock::A]`
        name = ("a") => `name` takes its value without parentheses: write `name = "a"`
        name = () => `name` takes its value without parentheses: write `name = "report:<id>"`
        expiry = (30) => `expiry` takes its value without parentheses: write `expiry = "30s"`
        expiry = (a b) => `expiry` takes its value without parentheses: write `expiry = a b`
        on_busy = (in_progress) => `on_busy` takes its value without parentheses: write `on_busy = in_progress`
        crate = (a::b) => `crate` takes its value without parentheses: write `crate = a::b`
        "#,
    );
    accepted("provider = (a)");
}

#[test]
fn refuses_values_of_the_wrong_kind() {
    assert_refused(
        r#"
        expiry = 500ms => `expiry` must be a string literal: write `expiry = "500ms"`
        expiry = 1.5 => `expiry` must be a string literal: write `expiry = "30s"`
        on_busy = fail => `on_busy` must be a string literal: write `on_busy = "fail"`
        permits = 7u32 => `permits` must be a number: write `permits = 7`
        permits = max(3, 4) => `permits` must be a number: write `permits = 5`
        name = "a"x => `name` must be a plain string literal: remove the suffix `x`
        crate = a<B> => `crate` must be a path: write `crate = my_crate::mongolock`
        "#,
    );
    let name = one("name = 3");
    let others = r#"&Lock::A | self.lock | Lock::A.name() | concat!("a", "b") | "a" + "b" | 'a' | format!("{}", x + 1) | c"a""#;
    for value in others.split(" | ") {
        assert_eq!(one(&format!("name = {value}")), name);
    }
    let constant = one("expiry = EXPIRY");
    let because = "because an attribute cannot read the constant `EXPIRY`";
    assert!(constant.contains(because), "{constant}");
    for (code, begin) in
        rows("provider = => `provider` needs a value\nprovider = = => `provider` must be an expression")
    {
        assert!(one(code).starts_with(begin), "{code}");
    }
}
