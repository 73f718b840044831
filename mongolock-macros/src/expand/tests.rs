use crate::locked;
use crate::samples::{each_seed, text, tokens, word};

/// The suite `attribute_forms` has all forms that compile, also among items with the names that the expansion uses.
#[test]
fn every_argument_is_in_the_expansion() {
    let args = r#"name = "a<<:<self.type>:<a.0.b()>", provider = self.p, expiry = "1s", acquire_timeout = "2s", min_hold = "3s",
        max_hold = "4s", on_lost = "continue", release = "background", crate = c"#;
    let item = "async fn job(&self, id: u8, (a, b): P) -> Result<(), E> { user(body) }";
    let without_spaces = |code: &str| code.replace(' ', "");
    let expanded = without_spaces(&locked(tokens(args), tokens(item)).to_string());
    for part in [
        "c::attribute::Call::on(&self.p)",
        ".expiry(::core::time::Duration::from_millis(1000u64)).min_hold",
        ".min_hold(::core::time::Duration::from_millis(3000u64)).max_hold",
        ".acquire_timeout(::core::time::Duration::from_millis(2000u64)).continue_when_lost().await_release(false)",
        r#"c::attribute::NameBuilder::of_template("a<<:<self.type>:<a.0.b()>")"#,
        r#".text("a<:").escaped("self.type", ':', &self.r#type).text(":").value("a.0.b()", &(&a.0).b())"#,
        "mongolock_call.wait(name).await",
    ] {
        assert!(expanded.contains(&without_spaces(part)), "{part}\n{expanded}");
    }
}

#[test]
fn never_panics() {
    each_seed(|random| {
        let name = text(random, "abcxyz<>{}. :()\\\"", 0..=16);
        let key = word(random, "name|expiry|on_busy|provider|crate|x");
        let value = text(random, "0123456789abcdxyz", 0..=6);
        for item in "async fn f(id: u8) -> Result<(), E> {}|impl X {}|fn f();|= async|".split('|') {
            for args in [
                format!("name = {name:?}, {key} = {value}"),
                format!("{key} {value} {name:?}"),
            ] {
                if let Ok(args) = args.parse() {
                    locked(args, tokens(item));
                }
            }
        }
    });
}
