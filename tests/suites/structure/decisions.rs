//! What decides when the library acts has the time and a random number as parameters, and waits for nothing.

/// What such a file does not contain.
const REFUSED: &str =
    "Instant::now .elapsed Moment::present DateTime::now SystemTime fastrand Luck::draw .await async";

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
