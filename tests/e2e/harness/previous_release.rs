//! Builds the previous release for tests of upgrades and downgrades.

use super::print_skipped;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Builds release 0.1.0, and returns the folder with its binary `ifo-apiserver` and its sources in
/// `source`. If the git clone does not contain this release, prints that the test is skipped, and
/// returns None.
pub fn previous_release(test: &str) -> Option<PathBuf> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/previous-release");
    let built = Command::new(script)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .expect("the script is executable");
    if built.status.code() == Some(3) {
        print_skipped(test, "the git clone does not contain release 0.1.0");
        return None;
    }
    assert!(built.status.success(), "{}", built.status);
    let folder = String::from_utf8(built.stdout).expect("the script prints a UTF-8 path");
    Some(PathBuf::from(folder.trim()))
}
