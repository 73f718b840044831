//! The core has the time and random numbers as parameters, and waits for nothing.

/// What the core does not contain: a clock, luck, waits, the runtime, the driver, a log and shared state.
const REFUSED: &str = "Instant::now .elapsed DateTime::now SystemTime fastrand .await async tokio mongodb tracing std::time \
    std::thread static Mutex Atomic println";

/// The lines of a source of the core that are not pure, and those that name another room than `protocol` and `timing`.
pub(crate) fn impure(file: &str, source: &str) -> Vec<String> {
    let code = source.lines().filter(|line| !line.trim_start().starts_with("//"));
    let is_impure = |line: &&str| {
        let is_known = ["crate::protocol", "crate::timing", "pub(crate)"]
            .iter()
            .any(|known| line.contains(known));
        let is_foreign = line.contains("crate::") && !is_known;
        is_foreign || REFUSED.split(' ').any(|refused| line.contains(refused))
    };
    code.filter(is_impure)
        .map(|line| format!("{file}: {line}"))
        .collect()
}

#[test]
fn what_is_not_pure_is_found_outside_comments() {
    let uses = "self.since.elapsed() > X\nInstant::now() > now\nasync fn wait() {\nfastrand::u64(..)\n.await\n\
                DateTime::now()\nuse std::time::SystemTime;\nuse crate::store::Store;\nstatic ONE: u8 = 1;";
    let pure = "fn decide(now: Time)\n// Instant::now()\nuse crate::protocol::Row;\nuse crate::timing::NO_REPLY;\npub(crate) fn one()";
    let expected: Vec<String> = uses.lines().map(|line| format!("a.rs: {line}")).collect();
    assert_eq!(impure("a.rs", &format!("{pure}\n{uses}")), expected);
}
