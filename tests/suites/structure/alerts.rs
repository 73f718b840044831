//! The alerting rules and the runbook: each alert leads to its section of the page "troubleshooting", and each alert of the
//! page has a rule. Whether the rules ask for metrics that exist is checked by the suite `metrics`, and that Prometheus takes the
//! rules by `promtool`.

use std::collections::BTreeMap;
use std::fs;

use super::links::{DOCUMENTATION, slug};
use crate::rules::rules;
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
        let slug = slug(heading);
        let address = format!("{DOCUMENTATION}guide/troubleshooting/index.html#{slug}");
        let earlier = sections.insert(alert.to_owned(), address);
        assert_eq!(earlier, None, "{alert} has two sections");
    }
    sections
}

#[test]
fn each_alert_leads_to_its_section_of_the_runbook() {
    let mut addresses = BTreeMap::new();
    for mut rule in rules() {
        let severity = &rule["severity"];
        assert!(["critical", "warning"].contains(&&**severity), "{severity}");
        let [alert, address] = ["alert", "runbook_url"].map(|field| rule.remove(field).unwrap_or_default());
        assert_eq!(addresses.insert(alert, address), None, "an alert has one rule");
    }
    let page = fs::read_to_string(workspace().join("mongolock/src/guide/troubleshooting.md"));
    assert_eq!(addresses, sections(&page.expect("it is there")));
}
