//! The table of requests: files with one request per line.
//!
//! A line is `METHOD PATH | Header: value | …`. Placeholders in braces stand for values that differ
//! for each side or run (see [`super::side::Side`]). The line is also the name of its request.

use super::exchange::Request;
use std::collections::BTreeSet;

/// All files of the table.
const FILES: [&str; 5] = [
    include_str!("requests/forms.txt"),
    include_str!("requests/lists.txt"),
    include_str!("requests/selectors.txt"),
    include_str!("requests/watches.txt"),
    include_str!("requests/refusals.txt"),
];

/// All requests.
pub fn all() -> Vec<Request> {
    let lines = FILES.into_iter().flat_map(str::lines);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let requests: Vec<Request> = lines.map(Request::parse).collect();
    let names: BTreeSet<&str> = requests.iter().map(|it| it.line.as_str()).collect();
    assert_eq!(names.len(), requests.len(), "a request is declared twice");
    requests
}
