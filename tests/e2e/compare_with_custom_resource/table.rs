//! Reads the table of requests of the differential test: text files with one request per line.
//!
//! A line has the form `METHOD PATH`, or `METHOD PATH | Header: value` with one or more headers.
//! The line is also the name of its request. A line can contain placeholders in braces, such as
//! `{list}`. [`super::side::Side`] has their values.

use super::exchange::TableRequest;
use std::collections::BTreeSet;

/// The contents of all files of the table.
const FILES: [&str; 6] = [
    include_str!("requests/forms.txt"),
    include_str!("requests/lists.txt"),
    include_str!("requests/selectors.txt"),
    include_str!("requests/watches.txt"),
    include_str!("requests/websockets.txt"),
    include_str!("requests/refusals.txt"),
];

/// Parses the lines of a file. Skips empty lines and comments.
pub fn parse(text: &str) -> Vec<TableRequest> {
    let lines = text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(TableRequest::parse).collect()
}

/// Returns all requests. Fails if a request occurs twice.
pub fn all() -> Vec<TableRequest> {
    let requests: Vec<TableRequest> = FILES.into_iter().flat_map(parse).collect();
    let names: BTreeSet<&str> = requests.iter().map(|it| it.line.as_str()).collect();
    assert_eq!(names.len(), requests.len(), "a request occurs twice");
    requests
}
