//! Checks for every pair of selectors.

use super::{MAX_REQUIREMENTS, Reviewed, Selector};
use crate::auth;
use crate::index::ReadVersion;
use crate::serve::fuzzing::{Known, World, refused};
use crate::serve::request::Query;
use http::Uri;
use serde_json::Value;

/// Checks that the cost of a selection is limited, that all selected objects are in the scanned
/// part of the index, and that they match the attributes that the authorizer got.
pub fn check(world: &World, labels: &str, fields: &str) {
    let query = form_urlencoded::Serializer::new("/?".to_owned())
        .append_pair("labelSelector", labels)
        .append_pair("fieldSelector", fields)
        .finish();
    let uri: Uri = query.parse().expect("an encoded query is a URI");
    let query = Query::of(&uri);
    assert_eq!(query.text("labelSelector"), labels);
    assert_eq!(query.text("fieldSelector"), fields);

    let reviewed = Reviewed::of(&query);
    assert!(reviewed.labels.len().max(reviewed.fields.len()) <= MAX_REQUIREMENTS);
    let parsed = Selector::parse(&query);
    let selector = match parsed.and_then(|parsed| parsed.resolve(&world.live)) {
        Ok(selector) => selector,
        Err(failure) => return refused(&failure, &[400]),
    };
    assert!(selector.labels.len().max(selector.fields.len()) <= MAX_REQUIREMENTS);
    if labels.trim().is_empty() && fields.trim_matches(',').is_empty() {
        assert!(selector.is_everything());
    }

    let operations = &world.operations;
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
    // The authorizer gets all field requirements, so they can be converted back.
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
        let scope = selector.scope(namespace, true);
        let (_, found) = world
            .live
            .reader
            .list(&scope, ReadVersion::Latest)
            .expect("the newest state is always there");
        let meant = |entry: &crate::index::IndexEntry| {
            selector.matches(entry)
                && (namespace.is_empty() || *entry.key().namespace == *namespace)
        };
        let found: Vec<_> = found.into_iter().filter(|entry| meant(entry)).collect();
        let expected = operations.iter().filter(|known| meant(&known.entry));
        assert!(
            found
                .iter()
                .map(|entry| entry.key())
                .eq(expected.map(|known| known.entry.key())),
            "{scope:?}"
        );
    }
}

/// The value at a path such as `spec.subject.name`.
fn at<'a>(object: &'a Value, path: &str) -> &'a Value {
    path.split('.').fold(object, |value, name| &value[name])
}

/// Compares like a field selector: an absent value is empty.
fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Returns true if a value matches the attributes that the authorizer got.
fn holds(requirement: &auth::SelectorRequirement, value: Option<&str>) -> bool {
    let one_of = value.is_some_and(|value| requirement.values.iter().any(|one| one == value));
    match requirement.operator {
        "In" => one_of,
        "NotIn" => !one_of,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        other => panic!("{other} is no operator of a review"),
    }
}
