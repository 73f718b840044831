//! The alerting rules of `dashboards/alerts.yaml` ask for metrics and labels that exist. Where their links lead is checked
//! by the suite `structure`; when they fire, by `tests/alerts_test.yaml`.

#[path = "../structure/rules.rs"]
mod rules;

use crate::{PRINTED, without_suffix};

/// What Prometheus itself adds to each series.
const OF_PROMETHEUS: [&str; 2] = ["job", "instance"];

/// What is wrong with an expression, and with the labels that its texts show, if an exporter prints this.
fn problems(printed: &str, expr: &str, texts: &[&str]) -> Vec<String> {
    let mut problems = Vec::new();
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    for (at, _) in expr.match_indices("mongolock_") {
        let end = expr[at..]
            .find(|c| !is_part(c))
            .map_or(expr.len(), |end| at + end);
        let (name, rest) = (&expr[at..end], &expr[end..]);
        let is_of = |line: &&str| line.starts_with(without_suffix(name));
        let series: Vec<&str> = printed.lines().filter(is_of).collect();
        if series.is_empty() {
            problems.push(format!("no metric {name}"));
        }
        let matchers = rest.strip_prefix('{').and_then(|rest| rest.split('}').next());
        for matcher in matchers
            .unwrap_or_default()
            .split("\",")
            .filter(|part| !part.is_empty())
        {
            let (label, values) = matcher.split_once('"').expect("values are quoted");
            let label = label.trim_end_matches(['=', '!', '~']).trim();
            for value in values.trim_end_matches('"').split('|') {
                // The values of `lock` are those of the user.
                let end = if label == "lock" {
                    String::new()
                } else {
                    format!("{value}\"")
                };
                let pair = format!("{label}=\"{end}");
                if !series.iter().any(|line| line.contains(&pair)) {
                    problems.push(format!("{name} has no {pair}"));
                }
            }
        }
    }
    let lists = expr.split("by (").skip(1);
    let kept: Vec<&str> = lists
        .flat_map(|list| list.split(')').next().unwrap_or_default().split(", "))
        .collect();
    let exists = |label: &str| OF_PROMETHEUS.contains(&label) || printed.contains(&format!("{label}=\""));
    let unknown = kept.iter().filter(|label| !exists(label));
    problems.extend(unknown.map(|label| format!("nothing has the label {label}")));
    let shown = texts.iter().flat_map(|text| text.split("$labels.").skip(1));
    let shown = shown.filter_map(|rest| rest.split([' ', '}']).next());
    let missing = shown.filter(|label| !kept.contains(label));
    problems.extend(missing.map(|label| format!("the alert has no label {label}")));
    problems
}

#[test]
fn the_alerts_know_the_metrics() {
    for rule in rules::rules() {
        let (alert, expr) = (&rule["alert"], &rule["expr"]);
        assert!(expr.contains("mongolock_"), "{alert} asks for no metric");
        let problems = problems(
            &PRINTED,
            expr,
            &["summary", "description"].map(|text| &*rule[text]),
        );
        assert!(problems.is_empty(), "{alert}: {problems:#?}");
    }
}

#[test]
fn a_metric_a_label_or_a_value_that_does_not_exist_is_found() {
    let printed = "mongolock_lost_total{lock=\"report:<id>\",reason=\"gone\"} 0\n\
                   mongolock_lost_total{lock=\"report:<id>\",reason=\"expired\"} 1\n\
                   mongolock_wait_seconds_sum{lock=\"-\"} 0.5\n\
                   mongolock_stale_writes_total 0\n";
    let sound = r#"sum by (job, lock) (rate(mongolock_lost_total{lock!~"a|b",reason=~"gone|expired"}[5m]))"#;
    assert_eq!(problems(printed, sound, &["{{ $labels.lock }}"]), [""; 0]);
    let table = "rate(mongolock_losses_total[5m]) => no metric mongolock_losses_total
        mongolock_stale_writes_total{lock=\"a\"} => mongolock_stale_writes_total has no lock=\"
        mongolock_lost_total{reason=~\"gone|lost\"} => mongolock_lost_total has no reason=\"lost\"
        sum by (name) (mongolock_wait_seconds_count) => nothing has the label name
        sum by (job) (mongolock_lost_total) => the alert has no label lock";
    for row in table.lines() {
        let (expr, problem) = row.trim().split_once(" => ").expect("a row has both");
        let text = if expr.contains("(job)") {
            "{{ $labels.lock }}"
        } else {
            ""
        };
        assert_eq!(problems(printed, expr, &[text]), [problem], "{expr}");
    }
}
