//! What decides when the library acts has the time and a random number as parameters, and waits for nothing.

/// What such a file does not contain.
const REFUSED: &str =
    "Instant::now .elapsed Moment::present DateTime::now SystemTime fastrand Luck::draw .await async";

/// What the core does not contain beside that: it knows no runtime, no driver, no log and no other room than `protocol`.
const NOT_IN_CORE: &str = "tokio mongodb tracing std::time std::thread static Mutex Atomic println";

/// The lines of a source of the core that are not pure.
pub(crate) fn impure(file: &str, source: &str) -> Vec<String> {
    let code = source.lines().filter(|line| !line.trim_start().starts_with("//"));
    let is_impure = |line: &&str| {
        let mut refused = REFUSED.split(' ').chain(NOT_IN_CORE.split(' '));
        let is_foreign =
            line.contains("crate::") && !line.contains("crate::protocol") && !line.contains("pub(crate)");
        is_foreign || refused.any(|refused| line.contains(refused))
    };
    code.filter(is_impure)
        .map(|line| format!("{file}: {line}"))
        .collect()
}

/// The lines of a source that read a clock, draw or wait. Comments do not count, nor do the tests, which are the last item.
pub(crate) fn refused(file: &str, source: &str) -> Vec<String> {
    let code = source.lines().take_while(|line| !line.ends_with("mod tests {"));
    let code = code.filter(|line| !line.trim_start().starts_with("//"));
    let refused = code.filter(|line| REFUSED.split(' ').any(|refused| line.contains(refused)));
    refused.map(|line| format!("{file}: {line}")).collect()
}

#[test]
fn clocks_draws_and_waits_are_found_outside_tests() {
    let uses = "self.since.elapsed() > X\nInstant::now() > now\nasync fn wait() {\nfastrand::u64(..)\n.await\n\
                DateTime::now()\nMoment::present()\nuse std::time::SystemTime;\nLuck::draw()";
    let source = format!("fn decide(now: Instant)\n// Instant::now()\n{uses}\nmod tests {{\nInstant::now()");
    let expected: Vec<String> = uses.lines().map(|line| format!("a.rs: {line}")).collect();
    assert_eq!(refused("a.rs", &source), expected);
}

#[test]
fn what_is_not_pure_is_found_in_the_core() {
    let uses = "use crate::store::Store;\nuse tokio::time::Instant;\nlet now = Instant::now();\nasync fn send() {\nstatic LUCK: u8 = 0;";
    let source = format!("use crate::protocol::Row;\n// tokio\npub(crate) fn handle() {{\n{uses}");
    let expected: Vec<String> = uses.lines().map(|line| format!("a.rs: {line}")).collect();
    assert_eq!(impure("a.rs", &source), expected);
}
