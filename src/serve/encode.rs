//! Encodes objects, lists and events in the negotiated form. Input: the JSON and the facts of the
//! index. Output: the bytes of the answer. No object is decoded.

use super::negotiate::{Include, ObjectForm};
use super::resource::Resource;
use super::table;
use crate::index::{IndexEntry, OpenEntry, Rv};
use jiff::Timestamp;
use std::io::Write as _;

/// An object with the version to show: its own version, or the version of its deletion.
#[derive(Clone, Copy, Debug)]
pub struct VersionedEntry<'a> {
    /// The object.
    pub entry: &'a IndexEntry,
    /// The version to show.
    pub rv: Rv,
}

impl<'a> VersionedEntry<'a> {
    /// The object at its own version.
    pub fn own(entry: &'a IndexEntry) -> Self {
        Self {
            entry,
            rv: entry.rv(),
        }
    }
}

/// Writes a `PartialObjectMetadata`.
pub fn partial(open: &OpenEntry<'_>, rv: Rv, version: &str, out: &mut Vec<u8>) {
    for text in [
        "{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"meta.k8s.io/",
        version,
        "\",\"metadata\":",
    ] {
        out.extend_from_slice(text.as_bytes());
    }
    open.append_metadata_at(rv, out);
    out.push(b'}');
}

/// The metadata of a list.
#[derive(Clone, Debug)]
pub struct ListMeta {
    /// Version of the state that the list shows.
    pub rv: Rv,
    /// Token for the next page, or empty.
    pub resume: String,
    /// Number of objects after this page.
    pub remaining: Option<usize>,
}

/// Writes objects of one resource in one form.
#[derive(Clone, Copy)]
pub struct Encoder<'a> {
    /// The resource.
    pub resource: &'a Resource,
    /// The form.
    pub form: ObjectForm,
    /// The time to which ages are computed.
    pub now: Timestamp,
}

impl Encoder<'_> {
    /// Writes the answer to a get, or the object of an event.
    pub fn object(&self, shown: VersionedEntry<'_>, columns: bool, out: &mut Vec<u8>) {
        if let ObjectForm::Table { version, .. } = self.form {
            self.table(version, shown.rv, columns, out);
            self.item(shown, out);
            out.extend_from_slice(b"]}");
        } else {
            self.item(shown, out);
        }
    }

    /// Writes one item of a list.
    pub fn item(&self, shown: VersionedEntry<'_>, out: &mut Vec<u8>) {
        let VersionedEntry { entry, rv } = shown;
        match self.form {
            ObjectForm::Whole if rv == entry.rv() => entry.append_json(out),
            ObjectForm::Whole => entry.open().append_at(rv, out),
            ObjectForm::Metadata { version } => partial(&entry.open(), rv, version, out),
            ObjectForm::Table { version, include } => {
                table::row(
                    self.resource.columns,
                    shown,
                    version,
                    include,
                    self.now,
                    out,
                );
            }
        }
    }

    /// Writes what comes before the items of a list.
    pub fn list_head(&self, meta: &ListMeta, out: &mut Vec<u8>) {
        match self.form {
            ObjectForm::Whole => write!(
                out,
                "{{\"apiVersion\":\"{}\",\"items\":[",
                self.resource.api_version()
            ),
            ObjectForm::Metadata { version } => write!(
                out,
                "{{\"kind\":\"PartialObjectMetadataList\",\"apiVersion\":\"meta.k8s.io/{version}\",\
                 \"metadata\":{},\"items\":[",
                meta_json(meta)
            ),
            ObjectForm::Table { version, .. } => {
                write!(
                    out,
                    "{{\"kind\":\"Table\",\"apiVersion\":\"meta.k8s.io/{version}\",\"metadata\":{},\
                     \"columnDefinitions\":",
                    meta_json(meta)
                )
                .expect("writing to a Vec cannot fail");
                table::definitions(self.resource.columns, out);
                write!(out, ",\"rows\":[")
            }
        }
        .expect("writing to a Vec cannot fail");
    }

    /// Writes what comes after the items of a list, end of line included.
    pub fn list_tail(&self, meta: &ListMeta, out: &mut Vec<u8>) {
        match self.form {
            ObjectForm::Whole => {
                let remaining = meta
                    .remaining
                    .map(|count| format!("\"remainingItemCount\":{count},"))
                    .unwrap_or_default();
                write!(
                    out,
                    "],\"kind\":\"{}\",\"metadata\":{{\"continue\":\"{}\",{remaining}\
                     \"resourceVersion\":\"{}\"}}}}",
                    self.resource.list_kind, meta.resume, meta.rv.0
                )
                .expect("writing to a Vec cannot fail");
            }
            ObjectForm::Metadata { .. } | ObjectForm::Table { .. } => out.extend_from_slice(b"]}"),
        }
        out.push(b'\n');
    }

    /// Writes the line of one event. Only the first event of a table has the column definitions.
    pub fn event(&self, kind: &str, shown: VersionedEntry<'_>, columns: bool, out: &mut Vec<u8>) {
        write!(out, "{{\"type\":\"{kind}\",\"object\":").expect("writing to a Vec cannot fail");
        self.object(shown, columns, out);
        out.extend_from_slice(b"}\n");
    }

    /// Writes the line of a bookmark. `initial_end` marks the bookmark after the initial events.
    pub fn bookmark(&self, rv: Rv, initial_end: bool, columns: bool, out: &mut Vec<u8>) {
        let annotations = if initial_end {
            "\"annotations\":{\"k8s.io/initial-events-end\":\"true\"},"
        } else {
            ""
        };
        let metadata = format!("{{{annotations}\"resourceVersion\":\"{}\"}}", rv.0);
        out.extend_from_slice(b"{\"type\":\"BOOKMARK\",\"object\":");
        match self.form {
            ObjectForm::Whole => write!(
                out,
                "{{\"kind\":\"{}\",\"apiVersion\":\"{}\",\"metadata\":{metadata}}}",
                self.resource.kind,
                self.resource.api_version()
            ),
            ObjectForm::Metadata { version } => write!(
                out,
                "{{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"meta.k8s.io/{version}\",\
                 \"metadata\":{metadata}}}"
            ),
            ObjectForm::Table { version, include } => {
                self.table(version, rv, columns, out);
                // An annotation marks the end of the initial events. So this bookmark has an object
                // even if rows are requested without objects.
                let object = if include == Include::None && !initial_end {
                    "null".to_owned()
                } else {
                    let (kind, group_version) = if include == Include::Object {
                        (self.resource.kind, self.resource.api_version())
                    } else {
                        ("PartialObjectMetadata", format!("meta.k8s.io/{version}"))
                    };
                    format!(
                        "{{\"kind\":\"{kind}\",\"apiVersion\":\"{group_version}\",\"metadata\":{metadata}}}"
                    )
                };
                table::empty_row(self.resource.columns, object.as_bytes(), out);
                write!(out, "]}}")
            }
        }
        .expect("writing to a Vec cannot fail");
        out.extend_from_slice(b"}\n");
    }

    fn table(&self, version: &str, rv: Rv, columns: bool, out: &mut Vec<u8>) {
        write!(
            out,
            "{{\"kind\":\"Table\",\"apiVersion\":\"meta.k8s.io/{version}\",\"metadata\":\
             {{\"resourceVersion\":\"{}\"}},\"columnDefinitions\":",
            rv.0
        )
        .expect("writing to a Vec cannot fail");
        if columns {
            table::definitions(self.resource.columns, out);
        } else {
            out.extend_from_slice(b"null");
        }
        out.extend_from_slice(b",\"rows\":[");
    }
}

fn meta_json(meta: &ListMeta) -> String {
    let resume = if meta.resume.is_empty() {
        String::new()
    } else {
        format!(",\"continue\":\"{}\"", meta.resume)
    };
    let remaining = meta
        .remaining
        .map(|count| format!(",\"remainingItemCount\":{count}"))
        .unwrap_or_default();
    format!(
        "{{\"resourceVersion\":\"{}\"{resume}{remaining}}}",
        meta.rv.0
    )
}
