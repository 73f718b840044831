//! The alerting rules of `dashboards/alerts.yaml` ask for metrics and labels that exist. Where their links lead is checked
//! by the suite `structure`; when they fire, by `tests/alerts_test.yaml`.

#[path = "../structure/rules.rs"]
mod rules;

use std::collections::{BTreeMap, BTreeSet};

use crate::{PRINTED, without_suffix};

/// What Prometheus itself adds to each series.
const OF_PROMETHEUS: [&str; 2] = ["job", "instance"];

/// The labels of each metric with their values, without the suffixes of a histogram.
struct Series(BTreeMap<String, BTreeMap<String, BTreeSet<String>>>);

impl Series {
    fn read(printed: &str) -> Self {
        let mut series: BTreeMap<_, BTreeMap<_, BTreeSet<_>>> = BTreeMap::new();
        for line in printed.lines().filter(|line| line.starts_with("mongolock_")) {
            let (name, rest) = line.split_once(['{', ' ']).expect("a value follows the name");
            let labels = series.entry(without_suffix(name).to_owned()).or_default();
            for (label, value) in matchers(rest.rsplit_once('}').map_or("", |(labels, _)| labels)) {
                labels.entry(label).or_default().insert(value);
            }
        }
        Self(series)
    }

    /// What is wrong with an expression, and with the labels that its texts show.
    fn problems(&self, expr: &str, texts: &[&str]) -> Vec<String> {
        let mut problems = Vec::new();
        let mut known: BTreeSet<&str> = OF_PROMETHEUS.into();
        for (name, matchers) in selectors(expr) {
            let Some(labels) = self.0.get(without_suffix(&name)) else {
                problems.push(format!("no metric {name}"));
                continue;
            };
            known.extend(labels.keys().map(String::as_str));
            for (label, pattern) in matchers {
                let Some(values) = labels.get(&label) else {
                    problems.push(format!("{name} has no label {label}"));
                    continue;
                };
                // The values of `lock` are those of the user.
                let unknown = pattern.split('|').filter(|value| !values.contains(*value));
                problems.extend(
                    unknown
                        .filter(|_| label != "lock")
                        .map(|value| format!("{label} of {name} is never {value}")),
                );
            }
        }
        let kept: BTreeSet<&str> = listed_after(expr, "by (").collect();
        let unknown = kept.difference(&known);
        problems.extend(unknown.map(|label| format!("nothing has the label {label}")));
        let shown = texts.iter().flat_map(|text| text.split("$labels.").skip(1));
        let shown = shown.filter_map(|rest| rest.split([' ', '}']).next());
        let missing = shown.filter(|label| !kept.contains(label));
        problems.extend(missing.map(|label| format!("the alert has no label {label}")));
        problems
    }
}

/// The labels and the values between the brackets of a series or a selector.
fn matchers(list: &str) -> Vec<(String, String)> {
    let parts = list.split("\",").filter(|part| !part.is_empty());
    let pair = |part: &str| {
        let (label, value) = part.split_once('"').expect("values are quoted");
        let label = label.trim_end_matches(['=', '!', '~']).trim();
        (label.to_owned(), value.trim_end_matches('"').to_owned())
    };
    parts.map(pair).collect()
}

/// The metrics in an expression, each with its matchers.
fn selectors(expr: &str) -> Vec<(String, Vec<(String, String)>)> {
    let begins = expr.match_indices("mongolock_").map(|(at, _)| &expr[at..]);
    let selector = |rest: &str| {
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let (name, rest) = rest.split_at(end.unwrap_or(rest.len()));
        let list = rest.strip_prefix('{').and_then(|rest| rest.split('}').next());
        (name.to_owned(), list.map_or_else(Vec::new, matchers))
    };
    begins.map(selector).collect()
}

/// The words of the lists that follow this text.
fn listed_after<'a>(expr: &'a str, text: &'static str) -> impl Iterator<Item = &'a str> {
    let lists = expr.split(text).skip(1);
    lists.flat_map(|rest| rest.split(')').next().unwrap_or_default().split(", "))
}

#[test]
fn the_alerts_know_the_metrics() {
    let series = Series::read(&PRINTED);
    for rule in rules::rules() {
        let (alert, expr) = (&rule["alert"], &rule["expr"]);
        assert!(!selectors(expr).is_empty(), "{alert} asks for no metric");
        let problems = series.problems(expr, &["summary", "description"].map(|text| &*rule[text]));
        assert!(problems.is_empty(), "{alert}: {problems:#?}");
    }
}

#[test]
fn a_metric_a_label_or_a_value_that_does_not_exist_is_found() {
    let series = Series::read(
        "# TYPE mongolock_lost_total counter\n\
         mongolock_lost_total{lock=\"report:<id>\",reason=\"gone\"} 0\n\
         mongolock_lost_total{lock=\"report:<id>\",reason=\"expired\"} 1\n\
         mongolock_wait_seconds_sum{lock=\"-\"} 0.5\n\
         mongolock_stale_writes_total 0\n",
    );
    let sound = r#"sum by (job, lock) (rate(mongolock_lost_total{lock!~"a|b",reason=~"gone|expired"}[5m]))"#;
    assert_eq!(series.problems(sound, &["{{ $labels.lock }}"]), [""; 0]);
    for (expr, text, problem) in [
        (
            "rate(mongolock_losses_total[5m])",
            "",
            "no metric mongolock_losses_total",
        ),
        (
            r#"mongolock_stale_writes_total{lock="a"}"#,
            "",
            "mongolock_stale_writes_total has no label lock",
        ),
        (
            r#"mongolock_lost_total{reason=~"gone|lost"}"#,
            "",
            "reason of mongolock_lost_total is never lost",
        ),
        (
            "sum by (name) (mongolock_wait_seconds_count)",
            "",
            "nothing has the label name",
        ),
        (
            "sum by (job) (mongolock_lost_total)",
            "{{ $labels.lock }}",
            "the alert has no label lock",
        ),
    ] {
        assert_eq!(series.problems(expr, &[text]), [problem], "{expr}");
    }
}
