//! The alerting rules and the runbook: each alert leads to its section of the page "troubleshooting", and each alert of the
//! page has a rule. Whether the rules ask for metrics that exist is checked by the suite `metrics`, and that Prometheus takes the
//! rules by `promtool`.

use std::collections::BTreeMap;
use std::fs;

use serde_json::Value;

use super::links::{DOCUMENTATION, slug};
use crate::workspace;

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
    let file: Value = serde_saphyr::from_str(&read("dashboards/alerts.yaml")).expect("it is YAML");
    let listed = |value: &Value| value.as_array().cloned().expect("it is a list");
    let groups = listed(&file["groups"]);
    let mut addresses = BTreeMap::new();
    for rule in groups.iter().flat_map(|group| listed(&group["rules"])) {
        let text = |at: &str| {
            let text = rule.pointer(at).and_then(Value::as_str);
            let text = text.filter(|text| !text.trim().is_empty());
            text.unwrap_or_else(|| panic!("no {at} in {rule:#}")).to_owned()
        };
        let severity = text("/labels/severity");
        assert!(["critical", "warning"].contains(&&*severity), "{severity}");
        for shown in [
            "/expr",
            "/for",
            "/annotations/summary",
            "/annotations/description",
        ] {
            text(shown);
        }
        let earlier = addresses.insert(text("/alert"), text("/annotations/runbook_url"));
        assert_eq!(earlier, None, "an alert has one rule");
    }
    assert!(addresses.len() > 5, "{addresses:#?}");
    assert_eq!(addresses, sections(&read("src/guide/troubleshooting.md")));
}
