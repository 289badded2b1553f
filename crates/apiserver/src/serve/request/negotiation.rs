//! Content negotiation. Input: the header `Accept` and the query of a request. Output: the form in
//! which the answer shows objects. The server sends only JSON.

use crate::serve::answer::error_status::ErrorStatus;
use crate::serve::request::Query;
use http::{HeaderMap, header};

/// Largest number of media types that the server reads from a header. The server ignores further
/// media types.
const MAX_CLAUSES: usize = 64;

/// The form in which an answer shows an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ObjectForm {
    /// The object itself.
    Whole,
    /// A row of a `Table`, which `kubectl get` requests.
    Table(Include),
    /// `PartialObjectMetadata`.
    Metadata,
}

/// The object in a row of a `Table`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Include {
    /// `PartialObjectMetadata`.
    Metadata,
    /// The object itself.
    Object,
    /// No object.
    None,
}

/// One media type of an `Accept` header, with its weight and the parameters of Kubernetes.
#[derive(Clone, Debug, Default)]
pub struct AcceptClause<'a> {
    media_type: &'a str,
    weight: f32,
    as_kind: &'a str,
    group: &'a str,
    version: &'a str,
    stream: &'a str,
}

/// Returns the media types of the header `Accept`, sorted by weight, with the largest weight first.
/// Among media types with equal weights, wildcards come last. Without the header, the client
/// accepts JSON.
pub fn clauses(headers: &HeaderMap) -> Vec<AcceptClause<'_>> {
    let accept = headers
        .get(header::ACCEPT)
        .map_or("", |value| value.to_str().unwrap_or("invalid"));
    let accept = if accept.is_empty() {
        "application/json"
    } else {
        accept
    };
    let clauses = accept.split(',').take(MAX_CLAUSES);
    let mut clauses: Vec<AcceptClause<'_>> = clauses.map(AcceptClause::parse).collect();
    let is_wildcard = |it: &AcceptClause<'_>| it.media_type.contains('*');
    clauses.sort_by(|a, b| {
        let by_weight = b.weight.total_cmp(&a.weight);
        by_weight.then(is_wildcard(a).cmp(&is_wildcard(b)))
    });
    clauses
}

impl<'a> AcceptClause<'a> {
    fn parse(text: &'a str) -> Self {
        let mut parts = text.split(';').map(str::trim);
        let mut clause = Self {
            media_type: parts.next().unwrap_or_default(),
            weight: 1.0,
            ..Self::default()
        };
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            let value = value.trim();
            match name.trim() {
                "q" => clause.weight = value.parse().unwrap_or(0.0),
                "as" => clause.as_kind = value,
                "g" => clause.group = value,
                "v" => clause.version = value,
                "stream" => clause.stream = value,
                _ => {}
            }
        }
        clause
    }

    /// Returns true if the media type includes JSON.
    pub fn allows_json(&self) -> bool {
        matches!(
            self.media_type,
            "application/json" | "application/*" | "*/*" | "*"
        ) && matches!(self.stream, "" | "watch")
    }

    /// Returns true if the client requests objects in their own kind, and not as a `Table` or as
    /// `PartialObjectMetadata`.
    pub fn is_plain(&self) -> bool {
        self.as_kind.is_empty() && self.group.is_empty() && self.version.is_empty()
    }

    /// Returns true if the client requests aggregated discovery.
    pub fn is_aggregated(&self) -> bool {
        let requested = (self.group, self.version, self.as_kind);
        requested == ("apidiscovery.k8s.io", "v2", "APIGroupDiscoveryList")
    }

    /// Returns the form of objects that the client requests. None if the server does not support
    /// this form. Returns a 400 if the option `includeObject` is not valid.
    fn form(&self, query: &Query) -> Option<Result<ObjectForm, ErrorStatus>> {
        if !self.allows_json() {
            return None;
        }
        if self.is_plain() {
            return Some(Ok(ObjectForm::Whole));
        }
        match (self.group, self.version, self.as_kind) {
            ("meta.k8s.io", "v1", "Table") => Some(include(query).map(ObjectForm::Table)),
            ("meta.k8s.io", "v1", "PartialObjectMetadata" | "PartialObjectMetadataList") => {
                Some(Ok(ObjectForm::Metadata))
            }
            _ => None,
        }
    }
}

/// Returns the form in which the answer shows objects. Returns a 406 if the server supports no form
/// that the client accepts.
pub fn negotiate(headers: &HeaderMap, query: &Query) -> Result<ObjectForm, ErrorStatus> {
    let clauses = clauses(headers);
    let form = clauses.iter().find_map(|clause| clause.form(query));
    form.ok_or_else(unacceptable)?
}

/// Creates a 406.
pub fn unacceptable() -> ErrorStatus {
    ErrorStatus::not_acceptable("only the following media types are accepted: application/json")
}

fn include(query: &Query) -> Result<Include, ErrorStatus> {
    match query.text("includeObject") {
        "" | "Metadata" => Ok(Include::Metadata),
        "Object" => Ok(Include::Object),
        "None" => Ok(Include::None),
        other => Err(ErrorStatus::bad_request(format!(
            "Unable to convert to Table as requested: includeObject: Invalid value: {other:?}: \
             must be 'Metadata', 'Object', 'None', or empty"
        ))),
    }
}
