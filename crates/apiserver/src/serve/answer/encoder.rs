//! Encodes objects, lists and watch events as JSON, in the form that the client requests.

use crate::Model;
use crate::serve::request::negotiation::{Include, ObjectForm};
use crate::serve::resource::{CellContext, CellValue, Resource};
use crate::store::{Entry, Rv};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::io::Write as _;

const META: &str = "meta.k8s.io/v1";

/// Returns the metadata of a list with one page. The field `continue` is present, but empty.
pub fn list_meta(rv: Rv) -> ListMeta {
    ListMeta {
        resource_version: Some(rv.to_string()),
        continue_: Some(String::new()),
        ..ListMeta::default()
    }
}

/// Encodes the objects of a resource in one form.
///
/// The parameter `rv` of the methods is the resourceVersion that the client gets for an object. In
/// two cases, `rv` is newer than the version of the entry: in an event `DELETED`, and in an event
/// that follows a change of the user's rights.
#[derive(Clone, Copy)]
pub struct Encoder<'a, M: Model> {
    pub resource: &'a Resource<M>,
    pub form: ObjectForm,
    /// The current time, for columns with ages.
    pub now: Timestamp,
}

/// Writes formatted text to a Vec.
macro_rules! put {
    ($out:expr, $($text:tt)*) => {
        write!($out, $($text)*).expect("writing to a Vec cannot fail")
    };
}

impl<M: Model> Encoder<'_, M> {
    /// Encodes one object. If `with_columns` is true, a table has the definitions of its columns.
    /// In a watch, only the first table has them.
    pub fn object(&self, entry: &Entry<M>, rv: Rv, with_columns: bool, out: &mut Vec<u8>) {
        if matches!(self.form, ObjectForm::Table(_)) {
            self.list_head(&list_meta(rv), with_columns, out);
            self.item(entry, rv, out);
            out.extend_from_slice(b"]}");
        } else {
            self.item(entry, rv, out);
        }
    }

    /// Encodes an item of a list, or a row of a table.
    pub fn item(&self, entry: &Entry<M>, rv: Rv, out: &mut Vec<u8>) {
        match self.form {
            ObjectForm::Whole => whole(entry, rv, out),
            ObjectForm::Metadata => metadata(entry, rv, out),
            ObjectForm::Table(include) => {
                self.cells(entry.object(), out);
                match include {
                    Include::Metadata => metadata(entry, rv, out),
                    Include::Object => whole(entry, rv, out),
                    Include::None => out.extend_from_slice(b"null"),
                }
                out.push(b'}');
            }
        }
    }

    /// Encodes the start of a row, up to its object.
    fn cells(&self, object: &M::Object, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"cells\":[");
        let context = CellContext {
            now: self.now,
            of_resource: &*self.resource.context,
        };
        for (number, column) in self.resource.columns.iter().enumerate() {
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
    }

    /// Encodes the start of a list, up to its first item. The list ends with `]}`.
    pub fn list_head(&self, meta: &ListMeta, with_columns: bool, out: &mut Vec<u8>) {
        let info = &self.resource.info;
        let (kind, api_version) = match self.form {
            ObjectForm::Whole => (info.list_kind(), info.api_version()),
            ObjectForm::Metadata => ("PartialObjectMetadataList".to_owned(), META.to_owned()),
            ObjectForm::Table(_) => ("Table".to_owned(), META.to_owned()),
        };
        put!(
            out,
            "{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",\"metadata\":"
        );
        serde_json::to_writer(&mut *out, meta).expect("writing to a Vec cannot fail");
        if !matches!(self.form, ObjectForm::Table(_)) {
            out.extend_from_slice(b",\"items\":[");
            return;
        }
        out.extend_from_slice(b",\"columnDefinitions\":");
        let columns = with_columns.then_some(self.resource.columns);
        serde_json::to_writer(&mut *out, &columns).expect("writing to a Vec cannot fail");
        out.extend_from_slice(b",\"rows\":[");
    }

    /// Encodes a watch event.
    pub fn event(
        &self,
        kind: &str,
        (entry, rv): (&Entry<M>, Rv),
        with_columns: bool,
        out: &mut Vec<u8>,
    ) {
        put!(out, "{{\"type\":\"{kind}\",\"object\":");
        self.object(entry, rv, with_columns, out);
        out.extend_from_slice(b"}\n");
    }

    /// Encodes a bookmark. `initial_end` marks the end of the initial events.
    pub fn bookmark(&self, rv: Rv, initial_end: bool, with_columns: bool, out: &mut Vec<u8>) {
        let info = &self.resource.info;
        let (kind, api_version) = match self.form {
            ObjectForm::Whole | ObjectForm::Table(Include::Object) => {
                (info.kind, info.api_version())
            }
            _ => ("PartialObjectMetadata", META.to_owned()),
        };
        let mut metadata = json!({"resourceVersion": rv.to_string()});
        if initial_end {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let object = json!({"kind": kind, "apiVersion": api_version, "metadata": metadata});
        put!(out, "{{\"type\":\"BOOKMARK\",\"object\":");
        if let ObjectForm::Table(include) = self.form {
            self.list_head(&list_meta(rv), with_columns, out);
            let mut cells = vec![Value::Null; self.resource.columns.len().max(1)];
            cells[0] = json!("");
            let has_object = include != Include::None || initial_end;
            let object = has_object.then_some(object);
            put!(out, "{}]}}", json!({"cells": cells, "object": object}));
        } else {
            put!(out, "{object}");
        }
        out.extend_from_slice(b"}\n");
    }
}

fn whole<M: Model>(entry: &Entry<M>, rv: Rv, out: &mut Vec<u8>) {
    if rv == entry.rv() {
        entry.append_json(out);
    } else {
        M::append_json(entry.object(), rv, out);
    }
}

fn metadata<M: Model>(entry: &Entry<M>, rv: Rv, out: &mut Vec<u8>) {
    put!(
        out,
        "{{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"{META}\",\"metadata\":"
    );
    M::append_metadata(entry.object(), rv, out);
    out.push(b'}');
}

/// Replaces the characters that would break the lines of a table, or change the state of the user's
/// terminal.
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

/// Returns true for control characters, separators of lines, and controls of the writing direction.
fn is_unprintable(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
