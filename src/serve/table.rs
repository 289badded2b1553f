//! Writes objects as rows of a `Table`, the form that kubectl requests. Input: the columns of a
//! resource, and an entry of the index. Output: the JSON of the column definitions and of the rows.
//! Ages are computed for each request.

use super::content_negotiation::Include;
use super::encode_objects::{VersionedEntry, write_partial};
use super::served_resources::{Cell, Column, Resource, copy_literal, kind_and_subject, write_text};
use crate::index::ObjectTexts;
use ifo_api::{duration, printable};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

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
    let open = shown.entry.open();
    let texts = open.texts();
    for (number, column) in resource.columns.iter().enumerate() {
        if number > 0 {
            out.push(b',');
        }
        let start = out.len();
        write_cell(column.cell, &texts, resource, now, out);
        replace_unprintable(out, start);
    }
    out.extend_from_slice(b"],\"object\":");
    match include {
        Include::Metadata => write_partial(&open, shown.rv, version, out),
        Include::Object => open.append_at(shown.rv, out),
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

/// Replaces unprintable characters and tabs in the cell that begins at `start`. kubectl prints cells
/// on terminals, and only escapes a few of these characters. A tab would begin the next column.
fn replace_unprintable(out: &mut Vec<u8>, start: usize) {
    // Unprintable characters begin with one of these bytes, or are escaped in JSON. Most cells have
    // none of these bytes, and are not decoded.
    let is_suspect = |byte: &u8| matches!(byte, b'\\' | 0x7f | 0xc2 | 0xd8 | 0xe2);
    if !out[start..].iter().any(is_suspect) {
        return;
    }
    if let Ok(Value::String(text)) = serde_json::from_slice(&out[start..]) {
        out.truncate(start);
        write_text(Some(&printable(&text).replace('\t', " ")), out);
    }
}

fn write_cell(
    cell: Cell,
    texts: &ObjectTexts<'_>,
    resource: &Resource,
    now: Timestamp,
    out: &mut Vec<u8>,
) {
    match cell {
        Cell::Text(field) => copy_literal(texts.literal(field), out),
        Cell::Age => {
            let started = texts.facts.started;
            let age = started.map(|then| duration::human(now.as_second() - then.as_second()));
            write_text(Some(age.as_deref().unwrap_or("<unknown>")), out);
        }
        Cell::Pointer(pointer) => {
            let object: Value = serde_json::from_slice(&texts.whole_json()).unwrap_or_default();
            let value = object.pointer(pointer).unwrap_or(&Value::Null);
            serde_json::to_writer(out, value).expect("writing to a Vec cannot fail");
        }
        Cell::Function(write) => write(texts, out),
        Cell::KindAndSubject => {
            let short_names = resource.short_names_of_kinds.load();
            write_text(kind_and_subject(texts, &short_names).as_deref(), out);
        }
    }
}
