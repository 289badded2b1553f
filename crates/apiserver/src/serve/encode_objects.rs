//! Writes objects, lists and watch events in the form that the client requested: whole objects,
//! `PartialObjectMetadata` or a `Table`.
//!
//! - Input: entries of the index, which is the server's store of objects in memory. An entry is one
//!   object at one version.
//! - Output: the JSON of the answer.

use super::content_negotiation::{Include, ObjectForm};
use super::resource::Resource;
use super::table;
use crate::Model;
use crate::store::{Entry, Rv};
use jiff::Timestamp;
use std::io::Write as _;

/// An object and the resourceVersion that the client gets for the object. For a deleted object,
/// this resourceVersion is the version of the deletion.
#[derive(Clone, Copy, Debug)]
pub struct VersionedEntry<'a, M: Model> {
    /// The object.
    pub entry: &'a Entry<M>,
    /// The resourceVersion that the client gets.
    pub rv: Rv,
}

impl<'a, M: Model> VersionedEntry<'a, M> {
    /// Returns the object with the resourceVersion that the index stores for it.
    pub fn at_own_version(entry: &'a Entry<M>) -> Self {
        Self {
            entry,
            rv: entry.rv(),
        }
    }
}

/// Writes a `PartialObjectMetadata`. `version` is the version of `meta.k8s.io`.
pub fn write_partial<M: Model>(shown: VersionedEntry<'_, M>, version: &str, out: &mut Vec<u8>) {
    for text in [
        "{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"meta.k8s.io/",
        version,
        "\",\"metadata\":",
    ] {
        out.extend_from_slice(text.as_bytes());
    }
    M::append_metadata(shown.entry.object(), shown.rv, out);
    out.push(b'}');
}

/// The metadata of a list.
#[derive(Clone, Debug)]
pub struct ListMeta {
    /// The resourceVersion of the list.
    pub rv: Rv,
    /// The continue token for the next page. Empty on the last page.
    pub continue_token: String,
    /// The number of objects after this page. None if the number is unknown or zero.
    pub remaining: Option<usize>,
}

/// Writes objects of one resource in one form (whole objects, metadata or a table).
#[derive(Clone, Copy)]
pub struct Encoder<'a, M: Model> {
    /// The resource.
    pub resource: &'a Resource<M>,
    /// The requested form.
    pub form: ObjectForm,
    /// The current time, from which the ages in tables are computed.
    pub now: Timestamp,
}

impl<M: Model> Encoder<'_, M> {
    /// Writes the answer to a get, or the object of a watch event. If `with_column_definitions` is
    /// true, a table gets its column definitions.
    pub fn object(
        &self,
        shown: VersionedEntry<'_, M>,
        with_column_definitions: bool,
        out: &mut Vec<u8>,
    ) {
        if let ObjectForm::Table { version, .. } = self.form {
            self.table_head(version, shown.rv, with_column_definitions, out);
            self.item(shown, out);
            out.extend_from_slice(b"]}");
        } else {
            self.item(shown, out);
        }
    }

    /// Writes one item of a list, or one row of a table.
    pub fn item(&self, shown: VersionedEntry<'_, M>, out: &mut Vec<u8>) {
        match self.form {
            ObjectForm::Whole if shown.rv == shown.entry.rv() => shown.entry.append_json(out),
            ObjectForm::Whole => M::append_json(shown.entry.object(), shown.rv, out),
            ObjectForm::Metadata { version } => write_partial(shown, version, out),
            ObjectForm::Table { version, include } => {
                let object = shown.entry.object();
                let append_object = |out: &mut Vec<u8>| match include {
                    Include::Metadata => write_partial(shown, version, out),
                    Include::Object => M::append_json(object, shown.rv, out),
                    Include::None => out.extend_from_slice(b"null"),
                };
                table::row(self.resource, object, self.now, append_object, out);
            }
        }
    }

    /// Writes the JSON before the items of a list.
    pub fn list_head(&self, meta: &ListMeta, out: &mut Vec<u8>) {
        match self.form {
            ObjectForm::Whole => write!(
                out,
                "{{\"apiVersion\":\"{}\",\"items\":[",
                self.resource.info.api_version()
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

    /// Writes the JSON after the items of a list, and a line feed.
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
                    self.resource.info.list_kind, meta.continue_token, meta.rv.0
                )
                .expect("writing to a Vec cannot fail");
            }
            ObjectForm::Metadata { .. } | ObjectForm::Table { .. } => out.extend_from_slice(b"]}"),
        }
        out.push(b'\n');
    }

    /// Writes one watch event as a line. If `with_column_definitions` is true, a table gets its
    /// column definitions. The caller passes true only for the first event of a watch.
    pub fn event(
        &self,
        kind: &str,
        shown: VersionedEntry<'_, M>,
        with_column_definitions: bool,
        out: &mut Vec<u8>,
    ) {
        write!(out, "{{\"type\":\"{kind}\",\"object\":").expect("writing to a Vec cannot fail");
        self.object(shown, with_column_definitions, out);
        out.extend_from_slice(b"}\n");
    }

    /// Writes a bookmark as a line. `initial_end` is true for the bookmark that ends the initial
    /// events of a watch. This bookmark has the annotation `k8s.io/initial-events-end`.
    /// `with_column_definitions` has the same meaning as in [`Encoder::event`].
    pub fn bookmark(
        &self,
        rv: Rv,
        initial_end: bool,
        with_column_definitions: bool,
        out: &mut Vec<u8>,
    ) {
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
                self.resource.info.kind,
                self.resource.info.api_version()
            ),
            ObjectForm::Metadata { version } => write!(
                out,
                "{{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"meta.k8s.io/{version}\",\
                 \"metadata\":{metadata}}}"
            ),
            ObjectForm::Table { version, include } => {
                self.table_head(version, rv, with_column_definitions, out);
                // If the client requested rows without objects, the row of a bookmark has no
                // object. The bookmark after the initial events is an exception: the object of its
                // row contains the annotation.
                let object = if include == Include::None && !initial_end {
                    "null".to_owned()
                } else {
                    let (kind, group_version) = if include == Include::Object {
                        (self.resource.info.kind, self.resource.info.api_version())
                    } else {
                        ("PartialObjectMetadata", format!("meta.k8s.io/{version}"))
                    };
                    format!(
                        "{{\"kind\":\"{kind}\",\"apiVersion\":\"{group_version}\",\"metadata\":{metadata}}}"
                    )
                };
                table::bookmark_row(self.resource.columns, object.as_bytes(), out);
                write!(out, "]}}")
            }
        }
        .expect("writing to a Vec cannot fail");
        out.extend_from_slice(b"}\n");
    }

    /// Writes the JSON of a table before its rows.
    fn table_head(&self, version: &str, rv: Rv, with_column_definitions: bool, out: &mut Vec<u8>) {
        write!(
            out,
            "{{\"kind\":\"Table\",\"apiVersion\":\"meta.k8s.io/{version}\",\"metadata\":\
             {{\"resourceVersion\":\"{}\"}},\"columnDefinitions\":",
            rv.0
        )
        .expect("writing to a Vec cannot fail");
        if with_column_definitions {
            table::definitions(self.resource.columns, out);
        } else {
            out.extend_from_slice(b"null");
        }
        out.extend_from_slice(b",\"rows\":[");
    }
}

fn meta_json(meta: &ListMeta) -> String {
    let continue_token = if meta.continue_token.is_empty() {
        String::new()
    } else {
        format!(",\"continue\":\"{}\"", meta.continue_token)
    };
    let remaining = meta
        .remaining
        .map(|count| format!(",\"remainingItemCount\":{count}"))
        .unwrap_or_default();
    format!(
        "{{\"resourceVersion\":\"{}\"{continue_token}{remaining}}}",
        meta.rv.0
    )
}
