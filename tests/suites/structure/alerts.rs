//! The alerting rules and the runbook: each alert leads to its section of the page "troubleshooting", and each alert of the
//! page has a rule. Whether the rules ask for metrics that exist is checked by the suite `metrics`.

use std::collections::BTreeMap;
use std::fs;

use serde::Deserialize;

use super::links::{DOCUMENTATION, slug};
use crate::workspace;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rules {
    groups: Vec<Group>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    name: String,
    rules: Vec<Rule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    alert: String,
    expr: String,
    #[serde(rename = "for")]
    lasts: String,
    labels: Labels,
    annotations: Annotations,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Labels {
    severity: Severity,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Severity {
    Critical,
    Warning,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Annotations {
    summary: String,
    description: String,
    runbook_url: String,
}

/// The sections of the runbook that name an alert: the alert, and the address of the section.
fn sections(page: &str) -> BTreeMap<String, String> {
    let mut sections = BTreeMap::new();
    for section in page.split("\n# ").skip(1) {
        let Some((heading, text)) = section.split_once("\n\n") else {
            continue;
        };
        let Some(alert) = text
            .strip_prefix("Alert `")
            .and_then(|rest| rest.split('`').next())
        else {
            continue;
        };
        for part in ["- **Look**: ", "- **Do**: ", "- **Harmless**: "] {
            assert_eq!(text.matches(part).count(), 1, "{heading}: {part}");
        }
        let address = format!(
            "{DOCUMENTATION}guide/troubleshooting/index.html#{}",
            slug(heading)
        );
        let earlier = sections.insert(alert.to_owned(), address);
        assert_eq!(earlier, None, "{alert} has two sections");
    }
    sections
}

#[test]
fn each_alert_leads_to_its_section_of_the_runbook() {
    let read =
        |file: &str| fs::read_to_string(workspace().join("mongolock").join(file)).expect("it is there");
    let rules: Rules = serde_saphyr::from_str(&read("dashboards/alerts.yaml")).expect("they are rules");
    let mut addresses = BTreeMap::new();
    for group in rules.groups {
        for rule in group.rules {
            let Annotations {
                summary,
                description,
                runbook_url,
            } = rule.annotations;
            // A severity is one of two.
            let (Severity::Critical | Severity::Warning) = rule.labels.severity;
            for text in [&group.name, &rule.expr, &rule.lasts, &summary, &description] {
                assert!(!text.trim().is_empty(), "{}", rule.alert);
            }
            let earlier = addresses.insert(rule.alert, runbook_url);
            assert_eq!(earlier, None, "an alert has one rule");
        }
    }
    assert!(addresses.len() > 5, "{addresses:#?}");
    assert_eq!(addresses, sections(&read("src/guide/troubleshooting.md")));
}
