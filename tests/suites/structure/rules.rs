//! The alerting rules of `dashboards/alerts.yaml`, as that file writes them. That it is YAML is checked by `promtool`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The fields of a rule, of its labels and of its annotations.
const FIELDS: &str = "alert expr for severity summary description runbook_url";

/// All rules, each of which has all fields.
pub(crate) fn rules() -> Vec<BTreeMap<String, String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../mongolock/dashboards/alerts.yaml");
    let text = fs::read_to_string(path).expect("it is there");
    let rules: Vec<_> = text.split("\n      - ").skip(1).map(rule).collect();
    assert!(rules.len() > 5, "{rules:#?}");
    rules
}

/// A line without the name of a field belongs to the value before it.
fn rule(text: &str) -> BTreeMap<String, String> {
    let mut rule = BTreeMap::new();
    let mut last = "alert";
    let lines = text.lines().map(str::trim);
    for line in lines.filter(|line| !line.starts_with('#') && !["labels:", "annotations:"].contains(line)) {
        let field = line.split_once(": ");
        let field =
            field.and_then(|(key, value)| Some((FIELDS.split(' ').find(|field| *field == key)?, value)));
        let (key, value) = field.unwrap_or((last, line));
        last = key;
        let text: &mut String = rule.entry(key.to_owned()).or_default();
        *text += value.trim_matches(['"', '|']);
        text.push('\n');
    }
    for field in FIELDS.split(' ') {
        let value: &mut String = rule.entry(field.to_owned()).or_default();
        *value = value.trim().to_owned();
        assert!(!value.is_empty(), "no {field} in {text}");
    }
    rule
}
