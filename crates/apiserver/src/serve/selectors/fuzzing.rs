//! Checks of label and field selectors for the fuzz targets.

use super::{MAX_REQUIREMENTS, ReviewedSelectors, UnresolvedSelector};
use crate::auth;
use crate::serve::fuzzing::{FuzzServer, Known, check_error, notes::NoteModel};
use crate::serve::request::Query;
use crate::store::ReadVersion;
use http::Uri;
use serde_json::Value;

/// Checks a label selector and a field selector:
///
/// - No selector has more than `MAX_REQUIREMENTS` requirements.
/// - Every selected object fulfils the requirements that the authorizer gets.
/// - Every selected object is in the part of the index that a request with these selectors reads.
pub fn check(fuzz_server: &FuzzServer, labels: &str, fields: &str) {
    let query = form_urlencoded::Serializer::new("/?".to_owned())
        .append_pair("labelSelector", labels)
        .append_pair("fieldSelector", fields)
        .finish();
    let uri: Uri = query.parse().expect("an encoded query is a URI");
    let query = Query::of(&uri);
    assert_eq!(query.text("labelSelector"), labels);
    assert_eq!(query.text("fieldSelector"), fields);

    let reviewed = ReviewedSelectors::of(&query);
    assert!(reviewed.labels.len().max(reviewed.fields.len()) <= MAX_REQUIREMENTS);
    let parsed = UnresolvedSelector::parse(&query);
    let selector = match parsed.and_then(|parsed| parsed.resolve(&fuzz_server.live)) {
        Ok(selector) => selector,
        Err(failure) => return check_error(&failure, &[400]),
    };
    assert!(selector.labels.len().max(selector.fields.len()) <= MAX_REQUIREMENTS);
    if labels.trim().is_empty() && fields.trim_matches(',').is_empty() {
        assert!(selector.is_everything());
    }

    let operations = &fuzz_server.notes;
    for Known { entry, object } in operations {
        if !selector.matches(entry) {
            continue;
        }
        assert!(reviewed.name.is_empty() || *reviewed.name == *entry.key().name);
        for requirement in &reviewed.labels {
            let label = &object["metadata"]["labels"][&requirement.key];
            assert!(holds(requirement, label.as_str()), "{requirement:?}");
        }
        for requirement in &reviewed.fields {
            let field = text(at(object, &requirement.key));
            assert!(holds(requirement, Some(&field)), "{requirement:?}");
        }
    }
    // The authorizer gets all requirements of the field selector. If there is no label selector,
    // these requirements must select exactly the objects that `selector` selects.
    if selector.labels.is_empty() {
        for Known { entry, object } in operations {
            let all = reviewed
                .fields
                .iter()
                .all(|requirement| holds(requirement, Some(&text(at(object, &requirement.key)))));
            assert_eq!(selector.matches(entry), all, "{object}");
        }
    }
    for namespace in ["", "a", "none"] {
        let scope = selector.scope(namespace, &fuzz_server.live);
        let (_, found) = fuzz_server
            .live
            .reader
            .list(&scope, ReadVersion::Latest)
            .expect("a list of the newest state cannot fail");
        let is_selected = |entry: &crate::store::Entry<NoteModel>| {
            selector.matches(entry)
                && (namespace.is_empty() || *entry.key().namespace == *namespace)
        };
        let found: Vec<_> = found
            .into_iter()
            .filter(|entry| is_selected(entry))
            .collect();
        let expected = operations.iter().filter(|known| is_selected(&known.entry));
        assert!(
            found
                .iter()
                .map(|entry| entry.key())
                .eq(expected.map(|known| known.entry.key())),
            "{scope:?}"
        );
    }
}

/// Returns the value at a path such as `spec.subject.name`.
fn at<'a>(object: &'a Value, path: &str) -> &'a Value {
    path.split('.').fold(object, |value, name| &value[name])
}

/// Returns the text that a field selector compares. An absent value counts as empty.
fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Returns true if a value fulfils a requirement in the form of a `SubjectAccessReview`.
fn holds(requirement: &auth::SelectorRequirement, value: Option<&str>) -> bool {
    let is_listed = value.is_some_and(|value| requirement.values.iter().any(|one| one == value));
    match requirement.operator {
        "In" => is_listed,
        "NotIn" => !is_listed,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        other => panic!("{other} is no operator of a review"),
    }
}
