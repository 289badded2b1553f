//! Writes objects as rows of a `Table`, the form that kubectl requests. Input: the columns of a
//! resource, and an entry of the index. Output: the JSON of the column definitions and of the rows.
//! Ages are computed for each request.

use super::content_negotiation::Include;
use super::encode_objects::{VersionedEntry, write_partial};
use super::served_resources::{CellContext, CellValue, Column, Resource};
use ifo_api::{is_unprintable, printable};
use jiff::Timestamp;
use serde::Serialize;
use std::borrow::Cow;

/// Writes the array of column definitions. Each definition has all five keys, even if a value is
/// empty, because clients expect all keys.
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

/// Writes the row of an object of `resource`. `version` is the requested version of the API group `meta.k8s.io`.
pub fn row(
    resource: &Resource,
    shown: VersionedEntry<'_>,
    version: &str,
    include: Include,
    now: Timestamp,
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(b"{\"cells\":[");
    let context = CellContext {
        now,
        short_names: &resource.short_names_of_kinds.load(),
    };
    let object = shown.entry.object();
    for (number, column) in resource.columns.iter().enumerate() {
        if number > 0 {
            out.push(b',');
        }
        let cell = match (column.cell)(object, &context) {
            CellValue::Text(text) => CellValue::Text(one_line(text)),
            cell => cell,
        };
        serde_json::to_writer(&mut *out, &cell).expect("writing to a Vec cannot fail");
    }
    out.extend_from_slice(b"],\"object\":");
    match include {
        Include::Metadata => write_partial(shown, version, out),
        Include::Object => object.append_json(shown.rv, out),
        Include::None => out.extend_from_slice(b"null"),
    }
    out.push(b'}');
}

/// Writes the row of a bookmark: an empty text in the first cell, null in the other cells, and the
/// JSON `object`.
pub fn bookmark_row(columns: &[Column], object: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"cells\":[");
    for number in 0..columns.len() {
        out.extend_from_slice(if number == 0 { b"\"\"" } else { b",null" });
    }
    out.extend_from_slice(b"],\"object\":");
    out.extend_from_slice(object);
    out.push(b'}');
}

/// Replaces unprintable characters and tabs. kubectl prints cells on terminals, and only escapes a
/// few of these characters. A tab would begin the next column.
fn one_line(text: Cow<'_, str>) -> Cow<'_, str> {
    if !text.contains(|c| c == '\t' || is_unprintable(c)) {
        return text;
    }
    printable(&text).replace('\t', " ").into()
}
