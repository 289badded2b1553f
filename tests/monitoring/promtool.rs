//! Checks the alerts with promtool, and runs their unit tests.

use crate::alerts::UNIT_TESTS;
use crate::prometheus::{programs, write_rules};
use crate::read;
use std::path::Path;
use std::process::Command;

/// Runs promtool in a folder that contains the alerts (`rules.yaml`) and their unit tests
/// (`alerts.yaml`). Fails if promtool fails.
fn promtool(programs: &Path, args: &[&str]) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    write_rules(&folder.path().join("rules.yaml"), None);
    std::fs::write(folder.path().join("alerts.yaml"), read(UNIT_TESTS))
        .expect("the unit tests can be written");
    let output = Command::new(programs.join("promtool"))
        .args(args)
        .current_dir(folder.path())
        .output()
        .expect("promtool must start");
    let print = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, error) = (print(&output.stdout), print(&output.stderr));
    assert!(output.status.success(), "{args:?}: {out}\n{error}");
    // If a file contains no tests or no rules, promtool also exits with 0, but does not print
    // `SUCCESS`.
    assert!(out.contains("SUCCESS"), "{args:?}: {out}\n{error}");
}

#[test]
fn promtool_accepts_the_alerts() {
    if let Some(programs) = programs() {
        promtool(&programs, &["check", "rules", "rules.yaml"]);
    }
}

#[test]
fn alerts_fire_and_clear_and_are_silent_during_a_failover() {
    if let Some(programs) = programs() {
        promtool(&programs, &["test", "rules", "alerts.yaml"]);
    }
}
