//! Checks for every `Accept` header.

use super::{ObjectForm, Shape, Syntax, WantedForm, negotiate};
use crate::serve::accept::MAX_CLAUSES;
use crate::serve::fuzzing::refused;
use crate::serve::request::Query;
use http::{HeaderMap, HeaderValue, Uri, header};

/// Checks that one of the clauses requests the chosen format, and would get it alone. If no format
/// matches, the answer is a 406, and an additional clause changes that.
pub fn check(accept: &HeaderValue) {
    let query = Query::of(&Uri::from_static("/"));
    let ask = |accept: &HeaderValue, shape| {
        let headers = HeaderMap::from_iter([(header::ACCEPT, accept.clone())]);
        negotiate(&headers, &query, shape, "ThingList")
    };
    for shape in [Shape::Object, Shape::List, Shape::Watch] {
        let text = accept.to_str().unwrap_or_default();
        match ask(accept, shape) {
            Ok(wanted) => {
                assert!(shape != Shape::Watch || wanted.syntax == Syntax::Compact);
                if text.trim().is_empty() {
                    assert_eq!(wanted.form, ObjectForm::Whole);
                    continue;
                }
                let had_alone = |clause: &str| {
                    let alone = HeaderValue::from_str(clause);
                    let alone = alone.expect("it is a part of a header value");
                    ask(&alone, shape).is_ok_and(|alone| alone == wanted)
                };
                let mut clauses = text.split(',');
                assert!(
                    clauses.any(|clause| asks_for(clause, wanted) && had_alone(clause)),
                    "{wanted:?} for {text:?}"
                );
            }
            Err(failure) => {
                refused(&failure, &[406]);
                // YAML is accepted for a watch, but then cannot be used.
                let yaml = shape == Shape::Watch && text.contains("yaml");
                let few = text.split(',').count() < MAX_CLAUSES;
                let none = failure.to_string().starts_with("only") && accept.to_str().is_ok();
                if none && few && !yaml {
                    let more = HeaderValue::from_str(&format!("{text},application/*"));
                    let more = more.expect("both halves are header values");
                    let wanted = ask(&more, shape).expect("JSON can always be had");
                    assert_eq!(
                        (wanted.form, wanted.syntax),
                        (ObjectForm::Whole, Syntax::Compact)
                    );
                }
            }
        }
    }
}

/// Returns true if the media range of a clause contains JSON or YAML, depending on `subtype`.
pub fn takes(range: &str, subtype: &str) -> bool {
    match range.split_once('/') {
        Some((kind, named)) => match (kind.trim(), named.trim()) {
            ("application" | "*", "*") => subtype == "json",
            (kind, named) => kind == "application" && named == subtype,
        },
        None => range.trim() == "*" && subtype == "json",
    }
}

/// Returns true if the clause names everything that was chosen.
fn asks_for(clause: &str, wanted: WantedForm) -> bool {
    let (media_type, parameters) = clause.split_once(';').unwrap_or((clause, ""));
    let media_type = media_type.trim();
    // The last of several parameters counts.
    let named = |name: &str| {
        parameters
            .split(';')
            .filter_map(|part| part.trim().split_once('='))
            .rfind(|(given, _)| given.trim() == name)
            .map_or("", |(_, value)| value.trim())
    };
    let media_type = match wanted.syntax {
        Syntax::Yaml => takes(media_type, "yaml"),
        Syntax::Compact | Syntax::Indented => takes(media_type, "json"),
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
