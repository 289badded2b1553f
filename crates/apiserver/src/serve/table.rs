//! Writes objects as rows of a `Table`, the form that kubectl requests. Input: the columns of a
//! resource, and an entry of the index. Output: the JSON of the column definitions and of the rows.
//! Ages are computed for each request.

use super::resource::{CellContext, CellValue, Column, Resource};
use crate::Model;
use jiff::Timestamp;
use serde::Serialize;
use std::borrow::Cow;

/// Writes the array of column definitions. Each definition has all five keys, even if a value is
/// empty, because clients expect all keys.
pub fn definitions<M: Model>(columns: &[Column<M>], out: &mut Vec<u8>) {
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

/// Writes the row of an object of `resource`. `append_object` writes the part of the object that the
/// client requested with the row.
pub fn row<M: Model>(
    resource: &Resource<M>,
    object: &M::Object,
    now: Timestamp,
    append_object: impl FnOnce(&mut Vec<u8>),
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(b"{\"cells\":[");
    let context = CellContext {
        now,
        of_resource: &*resource.context,
    };
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
    append_object(out);
    out.push(b'}');
}

/// Writes the row of a bookmark: an empty text in the first cell, null in the other cells, and the
/// JSON `object`.
pub fn bookmark_row<M: Model>(columns: &[Column<M>], object: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"cells\":[");
    for number in 0..columns.len() {
        out.extend_from_slice(if number == 0 { b"\"\"" } else { b",null" });
    }
    out.extend_from_slice(b"],\"object\":");
    out.extend_from_slice(object);
    out.push(b'}');
}

/// Replaces characters that a terminal would interpret. Tabs, line feeds and carriage returns become
/// blanks. Other control characters, and characters that change the direction of text, become U+FFFD.
/// kubectl prints cells on terminals, and only escapes a few of these characters.
fn one_line(text: Cow<'_, str>) -> Cow<'_, str> {
    if !text.contains(is_unprintable) {
        return text;
    }
    let printable = text.chars().map(|c| match c {
        '\t' | '\n' | '\r' => ' ',
        c if is_unprintable(c) => char::REPLACEMENT_CHARACTER,
        c => c,
    });
    Cow::Owned(printable.collect())
}

/// Returns true for control characters, for characters that change the direction of text, such as
/// U+202E, and for the separators of lines and paragraphs, U+2028 and U+2029.
fn is_unprintable(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
