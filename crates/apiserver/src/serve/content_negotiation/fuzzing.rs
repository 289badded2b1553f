//! Checks of content negotiation, for the fuzz targets. Input: an `Accept` header.

use super::{AnswerContent, NegotiatedForm, ObjectForm, Syntax, negotiate};
use crate::serve::accept_header::MAX_CLAUSES;
use crate::serve::fuzzing::check_error;
use crate::serve::request::Query;
use http::{HeaderMap, HeaderValue, Uri, header};

/// Checks the result of negotiation for an `Accept` header:
///
/// - If the result is a form and a syntax, one of the clauses must request this form and syntax. A
///   header with only this clause must have the same result.
/// - If the result is an error, it must be a 406.
/// - If the 406 says that no clause is supported, the result with the additional clause
///   `application/*` must be JSON. There is an exception for watches: if the header contains
///   `yaml`, the result with the additional clause is not checked.
pub fn check(accept: &HeaderValue) {
    let query = Query::of(&Uri::from_static("/"));
    let ask = |accept: &HeaderValue, content| {
        let headers = HeaderMap::from_iter([(header::ACCEPT, accept.clone())]);
        negotiate(&headers, &query, content, "ThingList")
    };
    for content in [
        AnswerContent::Object,
        AnswerContent::List,
        AnswerContent::Watch,
    ] {
        let text = accept.to_str().unwrap_or_default();
        match ask(accept, content) {
            Ok(wanted) => {
                assert!(content != AnswerContent::Watch || wanted.syntax == Syntax::Compact);
                if text.trim().is_empty() {
                    assert_eq!(wanted.form, ObjectForm::Whole);
                    continue;
                }
                let gets_same_alone = |clause: &str| {
                    let alone = HeaderValue::from_str(clause);
                    let alone = alone.expect("a part of a valid header value is valid");
                    ask(&alone, content).is_ok_and(|alone| alone == wanted)
                };
                let mut clauses = text.split(',');
                assert!(
                    clauses.any(|clause| asks_for(clause, wanted) && gets_same_alone(clause)),
                    "{wanted:?} for {text:?}"
                );
            }
            Err(failure) => {
                check_error(&failure, &[406]);
                // For a watch, the server can choose a clause for YAML and then answer with a 406,
                // because watches support only JSON. The additional clause does not change this
                // result.
                let is_yaml_watch = content == AnswerContent::Watch && text.contains("yaml");
                let has_space = text.split(',').count() < MAX_CLAUSES;
                let is_unsupported =
                    failure.to_string().starts_with("only") && accept.to_str().is_ok();
                if is_unsupported && has_space && !is_yaml_watch {
                    let more = HeaderValue::from_str(&format!("{text},application/*"));
                    let more = more.expect("both parts are valid header values");
                    let wanted = ask(&more, content).expect("JSON is supported for every answer");
                    assert_eq!(
                        (wanted.form, wanted.syntax),
                        (ObjectForm::Whole, Syntax::Compact)
                    );
                }
            }
        }
    }
}

/// Returns true if the media range of a clause includes `application/SUBTYPE`. `subtype` is `json`
/// or `yaml`. Wildcards include only JSON.
pub fn accepts(range: &str, subtype: &str) -> bool {
    match range.split_once('/') {
        Some((kind, named)) => match (kind.trim(), named.trim()) {
            ("application" | "*", "*") => subtype == "json",
            (kind, named) => kind == "application" && named == subtype,
        },
        None => range.trim() == "*" && subtype == "json",
    }
}

/// Returns true if the clause requests the chosen form and syntax.
fn asks_for(clause: &str, wanted: NegotiatedForm) -> bool {
    let (media_type, parameters) = clause.split_once(';').unwrap_or((clause, ""));
    let media_type = media_type.trim();
    // If a parameter occurs several times, the last value counts.
    let named = |name: &str| {
        parameters
            .split(';')
            .filter_map(|part| part.trim().split_once('='))
            .rfind(|(given, _)| given.trim() == name)
            .map_or("", |(_, value)| value.trim())
    };
    let media_type = match wanted.syntax {
        Syntax::Yaml => accepts(media_type, "yaml"),
        Syntax::Compact | Syntax::Indented => accepts(media_type, "json"),
    };
    let meta = |version| named("g") == "meta.k8s.io" && named("v") == version;
    let transform = match (wanted.form, named("as")) {
        (ObjectForm::Whole, target) => [target, named("g"), named("v")] == [""; 3],
        (ObjectForm::Table { version, .. }, target) => target == "Table" && meta(version),
        (ObjectForm::Metadata { version }, target) => {
            matches!(
                target,
                "PartialObjectMetadata" | "PartialObjectMetadataList"
            ) && meta(version)
        }
    };
    let stream = match named("stream") {
        "" => true,
        stream => stream == "watch" && wanted.syntax != Syntax::Yaml,
    };
    let pretty = wanted.syntax != Syntax::Indented || named("pretty") == "1";
    media_type && transform && stream && pretty
}
