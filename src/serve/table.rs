//! Tables, spliced from the spans that the index keeps of each object. Enters: a
//! resource's columns and an entry. Leaves: the JSON of `columnDefinitions` and of rows;
//! ages are computed when asked.

use super::encode::Shown;
use super::negotiate::Include;
use super::resource::{Cell, Column};
use crate::index::Object;
use ifo_api::duration;
use jiff::Timestamp;
use serde::Serialize;

/// Writes the array of column definitions. All five keys always, as clients expect.
pub fn definitions(columns: &[Column], out: &mut Vec<u8>) {
    #[derive(Serialize)]
    struct Definition<'a> {
        name: &'a str,
        r#type: &'a str,
        format: &'a str,
        description: &'a str,
        priority: i32,
    }
    let definitions: Vec<Definition<'_>> = columns
        .iter()
        .map(|column| Definition {
            name: column.name,
            r#type: column.kind,
            format: column.format,
            description: column.description,
            priority: column.priority,
        })
        .collect();
    serde_json::to_writer(out, &definitions).expect("writing to a Vec cannot fail");
}

/// Writes one row.
pub fn row(
    columns: &[Column],
    shown: Shown<'_>,
    version: &str,
    include: Include,
    now: Timestamp,
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(b"{\"cells\":[");
    for (number, column) in columns.iter().enumerate() {
        if number > 0 {
            out.push(b',');
        }
        cell(column.cell, shown.object, now, out);
    }
    out.extend_from_slice(b"],\"object\":");
    match include {
        Include::Metadata => shown.partial(version, out),
        Include::Object => out.extend_from_slice(&shown.json()),
        Include::None => out.extend_from_slice(b"null"),
    }
    out.push(b'}');
}

/// Writes the row of a bookmark, which has no cells but the object given.
pub fn empty_row(columns: &[Column], object: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"cells\":[");
    for number in 0..columns.len() {
        out.extend_from_slice(if number == 0 { b"\"\"" } else { b",null" });
    }
    out.extend_from_slice(b"],\"object\":");
    out.extend_from_slice(object);
    out.push(b'}');
}

fn cell(cell: Cell, object: &Object<'_>, now: Timestamp, out: &mut Vec<u8>) {
    match cell {
        Cell::Path(path) => out.extend_from_slice(object.value(path).unwrap_or(b"null")),
        Cell::Percent(path) => match object.value(path) {
            Some(number) if number.iter().all(u8::is_ascii_digit) => {
                out.push(b'"');
                out.extend_from_slice(number);
                out.extend_from_slice(b"%\"");
            }
            _ => out.extend_from_slice(b"null"),
        },
        Cell::Age(path) => {
            let age = match object.value(path) {
                Some([b'"', text @ .., b'"']) => std::str::from_utf8(text)
                    .ok()
                    .and_then(|text| text.parse::<Timestamp>().ok())
                    .map(|then| now.as_second() - then.as_second()),
                _ => None,
            };
            out.push(b'"');
            let age = age.map_or_else(|| "<unknown>".to_owned(), duration::human);
            out.extend_from_slice(age.as_bytes());
            out.push(b'"');
        }
        Cell::Function(write) => write(object, out),
    }
}
