//! Checks that every time limit in the shipped rule sets has a comment that names the source of the
//! limit. A rule has two fields for time limits:
//!
//! - `expectedDuration`: After this time, the server shows the operation as overdue.
//! - `stalledAfter`: After this time without progress, the server shows the operation as stalled.

use crate::read_shipped_rule_sets::{Shipped, read, root};

/// The fields of a rule that contain time limits.
const LIMITS: [&str; 2] = ["expectedDuration", "stalledAfter"];

/// Returns the comment lines directly above the line with the number `index`, without `#`.
fn comment_above(lines: &[&str], index: usize) -> String {
    let mut above: Vec<&str> = lines[..index]
        .iter()
        .rev()
        .map_while(|line| line.trim_start().strip_prefix('#'))
        .map(str::trim)
        .collect();
    above.reverse();
    above.join(" ")
}

/// Returns true if the comment names a source: a commit, a web page with documentation, or a
/// variable of the rule set whose comment names the source.
fn names_a_source(comment: &str) -> bool {
    let marks = ["commit ", "docs.", "The source is at the variable"];
    marks.iter().any(|mark| comment.contains(mark))
}

/// Returns the lines of a rule set that contain a time limit without a source, such as
/// `line 3: expectedDuration: 5m`.
fn limits_without_source(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let numbered = lines.iter().enumerate();
    numbered
        .filter(|(_, line)| {
            let field = line.trim_start().split(':').next().unwrap_or_default();
            LIMITS.contains(&field)
        })
        .filter(|(index, _)| !names_a_source(&comment_above(&lines, *index)))
        .map(|(index, line)| format!("line {}: {}", index + 1, line.trim()))
        .collect()
}

#[test]
fn every_time_limit_has_a_comment_with_its_source() {
    let mut wrong = Vec::new();
    for shipped in Shipped::all() {
        for limit in limits_without_source(&read(&root().join(&shipped.file))) {
            wrong.push(format!("{} {limit}", shipped.file));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_time_limit_without_a_source_is_found() {
    let rule = |comment: &str| format!("rules:\n{comment}  expectedDuration: 5m\n");
    assert!(limits_without_source(&rule("  # After 5 minutes (a.go, commit 1a2b).\n")).is_empty());
    assert_eq!(
        limits_without_source(&rule("  # After 5 minutes.\n")),
        ["line 3: expectedDuration: 5m"]
    );
    assert_eq!(
        limits_without_source(&rule("")),
        ["line 2: expectedDuration: 5m"]
    );
}
