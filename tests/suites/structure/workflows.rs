//! The workflows are YAML: a service that cannot read one runs nothing of it.

use std::fs;

use serde_json::Value;

use crate::workspace;

#[test]
fn each_workflow_can_be_read() {
    let files = fs::read_dir(workspace().join(".github/workflows")).unwrap();
    let paths: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    assert!(!paths.is_empty());
    for path in paths {
        let text = fs::read_to_string(&path).unwrap();
        let workflow: Value =
            serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(workflow["jobs"].is_object(), "{}", path.display());
    }
}
