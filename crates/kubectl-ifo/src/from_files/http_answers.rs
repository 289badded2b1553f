//! Answers requests from files, for a command with `--from`. The answers have the same form as the
//! answers of a kube-apiserver.
//!
//! If the files do not contain the requested data, the code of the answer depends on the request:
//!
//! - Discovery: 404.
//! - Operations or records, if the files contain neither such objects nor a list of them: 404.
//!   After a 404 for the live API, commands read custom resources.
//! - A rule set that is not among the rule sets in the files: 404.
//! - Anything else, such as the operations of a namespace that was not recorded: 501. The code is
//!   not 404, because the object may exist in the cluster.

use super::file_contents::FileContents;
use super::selectors::{ParsedLabelSelector, fields_match};
use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use ifo_api::completeness::COMPLETE_HEADER;
use ifo_api::{GROUP, LIVE_GROUP, live, record, ruleset};
use kube::client::Body;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::convert::Infallible;

/// The body of an answer.
type FileBody = UnsyncBoxBody<Bytes, Infallible>;

/// The parts of the path and the query of a request.
struct FileRequest<'a> {
    group: &'a str,
    namespace: Option<&'a str>,
    resource: &'a str,
    name: Option<String>,
    query: BTreeMap<String, String>,
}

impl<'a> FileRequest<'a> {
    /// Splits the path of an object or of a list. Returns None for any other path.
    fn of(request: &'a Request<Body>) -> Option<Self> {
        let uri = request.uri();
        let mut segments = uri.path().trim_start_matches('/').split('/');
        let group = match segments.next()? {
            "api" => "",
            "apis" => segments.next()?,
            _ => return None,
        };
        let _version = segments.next()?;
        let rest: Vec<&str> = segments.collect();
        let (namespace, rest) = match rest.as_slice() {
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (Some(*namespace), rest),
            rest => (None, rest),
        };
        let (resource, name) = match rest {
            [resource] => (*resource, None),
            [resource, name] => (*resource, Some(decoded(name))),
            _ => return None,
        };
        let pairs = uri.query().unwrap_or_default().split('&');
        let pairs = pairs.filter_map(|it| it.split_once('='));
        Some(Self {
            group,
            namespace,
            resource,
            name,
            query: pairs
                .map(|(key, value)| (decoded(key), decoded(value)))
                .collect(),
        })
    }

    fn parameter(&self, name: &str) -> &str {
        self.query.get(name).map_or("", String::as_str)
    }
}

fn decoded(text: &str) -> String {
    let text = text.replace('+', " ");
    percent_encoding::percent_decode_str(&text)
        .decode_utf8_lossy()
        .into_owned()
}

/// Returns the answer to a request.
pub(super) fn answer(contents: &FileContents, request: &Request<Body>) -> Response<FileBody> {
    if request.uri().path().starts_with("/openapi/") {
        return match &contents.server_version {
            Some(version) => object(&json!({"info": {"version": version}})),
            None => not_contained(contents, "the version of the server"),
        };
    }
    let Some(asked) = FileRequest::of(request) else {
        return failure(
            StatusCode::NOT_FOUND,
            "NotFound",
            "the files contain no discovery",
        );
    };
    match (asked.group, asked.resource) {
        (LIVE_GROUP, live::PLURAL) => operations(contents, contents.live.as_deref(), &asked),
        (GROUP, live::PLURAL) => operations(contents, contents.custom.as_deref(), &asked),
        (LIVE_GROUP, record::PLURAL) => operations(contents, contents.records.as_deref(), &asked),
        (GROUP, ruleset::PLURAL) => rule_sets(contents, &asked),
        ("", "events") => events(contents, &asked),
        ("", "namespaces") => namespaces(contents, &asked),
        _ => not_contained(contents, asked.resource),
    }
}

fn operations(
    contents: &FileContents,
    operations: Option<&[Value]>,
    asked: &FileRequest<'_>,
) -> Response<FileBody> {
    let Some(operations) = operations else {
        return failure(
            StatusCode::NOT_FOUND,
            "NotFound",
            "the files contain neither objects of this resource nor a list of them",
        );
    };
    if asked.parameter("watch") == "true" {
        return watch_without_changes();
    }
    if let (Some(listed), Some(namespace)) = (&contents.namespaces, asked.namespace)
        && !listed.iter().any(|it| it == namespace)
    {
        return not_contained(
            contents,
            &format!("the operations in namespace {namespace}"),
        );
    }
    let selector = asked.parameter("labelSelector");
    let labels = match ParsedLabelSelector::parse(selector) {
        Ok(labels) => labels,
        Err(why) => return failure(StatusCode::BAD_REQUEST, "BadRequest", &why),
    };
    let is_selected = |operation: &&Value| {
        let namespace = operation
            .pointer("/metadata/namespace")
            .and_then(Value::as_str);
        (asked.namespace.is_none() || asked.namespace == namespace)
            && fields_match(asked.parameter("fieldSelector"), operation)
            && labels.matches(&labels_of(operation))
    };
    let mut response = list(operations.iter().filter(is_selected));
    match &contents.incomplete {
        None => {
            let complete = HeaderValue::from_static("true");
            response.headers_mut().insert(COMPLETE_HEADER, complete);
        }
        Some(incomplete) => {
            let warning = HeaderValue::from_str(&format!("299 - \"{incomplete}\""));
            if let Ok(warning) = warning {
                response.headers_mut().insert(header::WARNING, warning);
            }
        }
    }
    response
}

fn labels_of(operation: &Value) -> BTreeMap<String, String> {
    let labels = operation
        .pointer("/metadata/labels")
        .and_then(Value::as_object);
    let labels = labels.into_iter().flatten();
    labels
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect()
}

fn rule_sets(contents: &FileContents, asked: &FileRequest<'_>) -> Response<FileBody> {
    let Some(rule_sets) = &contents.rule_sets else {
        return not_contained(contents, "the rule sets");
    };
    let Some(name) = &asked.name else {
        return list(rule_sets.iter());
    };
    let mut named = rule_sets.iter();
    match named.find(|it| it["metadata"]["name"] == name.as_str()) {
        Some(rule_set) => object(rule_set),
        None => failure(
            StatusCode::NOT_FOUND,
            "NotFound",
            "the rule set is not in the files",
        ),
    }
}

fn events(contents: &FileContents, asked: &FileRequest<'_>) -> Response<FileBody> {
    let in_namespace: Vec<&Value> = contents
        .events()
        .iter()
        .filter(|it| it["metadata"]["namespace"].as_str() == asked.namespace)
        .collect();
    // If the files contain no Event of this namespace, there were no Events, or they were not
    // recorded. It is unknown which, so the answer is not an empty list.
    if in_namespace.is_empty() {
        let namespace = asked.namespace.unwrap_or_default();
        return not_contained(contents, &format!("the Events of namespace {namespace}"));
    }
    let selector = asked.parameter("fieldSelector");
    list(
        in_namespace
            .into_iter()
            .filter(|it| fields_match(selector, it)),
    )
}

fn namespaces(contents: &FileContents, asked: &FileRequest<'_>) -> Response<FileBody> {
    let operations = contents.live.iter().chain(&contents.custom).flatten();
    let subjects = operations.filter_map(|it| it.pointer("/spec/subject/namespace")?.as_str());
    let mut known: Vec<&str> = subjects.collect();
    known.extend(contents.namespaces.iter().flatten().map(String::as_str));
    known.sort_unstable();
    known.dedup();
    let named = |name: &str| json!({"metadata": {"name": name}});
    match &asked.name {
        None => {
            let items: Vec<Value> = known.into_iter().map(named).collect();
            list(items.iter())
        }
        Some(name) if known.contains(&name.as_str()) => object(&named(name)),
        Some(_) => not_contained(contents, "the namespaces of the cluster"),
    }
}

fn list<'a>(items: impl Iterator<Item = &'a Value>) -> Response<FileBody> {
    let items: Vec<&Value> = items.collect();
    object(&json!({"metadata": {"resourceVersion": "1"}, "items": items}))
}

fn object(value: &Value) -> Response<FileBody> {
    let bytes = Bytes::from(value.to_string());
    Response::new(Full::new(bytes).boxed_unsync())
}

/// Returns the answer to a watch: a stream that stays open and never sends a change, because the
/// files do not change.
fn watch_without_changes() -> Response<FileBody> {
    let nothing = futures::stream::pending::<Result<http_body::Frame<Bytes>, Infallible>>();
    Response::new(StreamBody::new(nothing).boxed_unsync())
}

fn not_contained(contents: &FileContents, what: &str) -> Response<FileBody> {
    let message = format!("{} does not contain {what}", contents.path);
    failure(StatusCode::NOT_IMPLEMENTED, "NotImplemented", &message)
}

fn failure(code: StatusCode, reason: &str, message: &str) -> Response<FileBody> {
    let mut response = object(&json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "metadata": {},
        "message": message, "reason": reason, "code": code.as_u16(),
    }));
    *response.status_mut() = code;
    response
}
