//! Adds a `Warning` header to lists and watches that may lack operations. An answer gets the header
//! in each of these cases:
//!
//! - The request could match an operation of a rule set that does not work, for example because the
//!   rule set does not compile. A rule set defines how the server detects operations.
//! - The cluster has no rule sets.
//! - The server has not read the rule sets yet.
//! - This replica's index (the operations in memory) was last up to date more than 15 s ago.
//! - The list shows an older resourceVersion, and the index no longer knows which rule sets may
//!   have missed operations at this version.
//!
//! Such an answer also gets the reason as JSON in the header `ifo-incomplete`, which the plugin reads.
//! All other lists and watches of operations get the header `ifo-complete`. In two cases, they get
//! `ifo-incomplete` with the reason, but no `Warning`:
//!
//! - Operations can be hidden from the user (`--visibility=subject`).
//! - No leader has confirmed that this replica is up to date. Lists and watches of activities also
//!   get this header, because `kubectl ifo wait` reads activities before it lists operations.
//!
//! A client can name rule sets in the header `ifo-ignored-rule-sets`, and send a label selector in
//! the header `ifo-completeness-selector`. The answer then says nothing about the named rule sets,
//! and about rule sets whose operations the selector cannot match.
//!
//! If a rule set is broken, a list can be empty although operations are in flight. kubectl prints
//! the text of the `Warning` header, and client-go logs the text. So users notice that the list may
//! be incomplete.

use super::OperationHooks;
use crate::index::{Object, ReadVersion, Scope, index_key};
use aggregated_apiserver::auth::{
    AccessDecision, Attributes, ResourceAttributes, SelectorOperator, SelectorRequirement, User,
};
use aggregated_apiserver::serve::{Read, ReviewedSelectors};
use axum::response::Response;
use http::header::WARNING;
use http::{HeaderMap, HeaderName, HeaderValue};
use ifo_api::Text;
use ifo_api::completeness::{
    COMPLETE_HEADER, Gap, Gaps, GapsObject, IGNORED_HEADER, INCOMPLETE_HEADER, Incomplete,
    MAX_NAMED, Named, NotWorking, SELECTOR_HEADER,
};
use ifo_api::{GROUP, VERSION, activity, labels, live, ruleset};
use serde_json::json;

/// Adds the headers that the top of this file describes. Answers for other resources get no header.
///
/// The index has the operations and the [`Gaps`] (the rule sets that may miss operations) at the
/// same versions. So the header of a list is about exactly the version of the list. The header of a
/// watch is about the newest version when the watch starts. An answer with the newest version also
/// reports gaps that are not in the index yet.
pub(super) async fn warn(hooks: &OperationHooks, read: Read<'_>, response: &mut Response) {
    if read.request.resource == activity::PLURAL && !read.is_current {
        add_reason(&Incomplete::NotConfirmed, response);
    }
    if read.request.resource != live::PLURAL || !response.status().is_success() {
        return;
    }
    if read.may_be_outdated || hooks.replica_status.is_stale() {
        add_warning(&Incomplete::NotCurrent, response);
        return;
    }
    let at = read.version.map_or(ReadVersion::Latest, ReadVersion::Exact);
    let is_newest = read
        .version
        .is_none_or(|version| version >= hooks.reader.head());
    let scope = Scope::Object(index_key(GapsObject::key()));
    let incomplete = match hooks.reader.list(&scope, at) {
        // The index no longer has this version.
        Err(_) => Some(Incomplete::NotKnown),
        Ok((_, found)) => match found.first().map(|entry| entry.object()) {
            Some(Object::Gaps(gaps)) => {
                let mut gaps = gaps.status.clone();
                if is_newest {
                    add_unwritten(&mut gaps, (hooks.read_gaps)());
                }
                incomplete(hooks, &gaps, read).await
            }
            _ => Some(Incomplete::NotRead),
        },
    };
    if let Some(incomplete) = incomplete {
        add_warning(&incomplete, response);
    } else if !read.is_current {
        add_reason(&Incomplete::NotConfirmed, response);
    } else if read.is_filtered {
        add_reason(&Incomplete::Filtered, response);
    } else {
        let complete = HeaderName::from_static(COMPLETE_HEADER);
        let value = HeaderValue::from_static("true");
        response.headers_mut().insert(complete, value);
    }
}

/// Adds the gaps in `now` that are not in the index yet.
fn add_unwritten(gaps: &mut Gaps, now: Gaps) {
    for gap in now.rule_sets {
        if !gaps.rule_sets.iter().any(|it| it.rule_set == gap.rule_set) {
            gaps.rule_sets.push(gap);
        }
    }
}

/// Returns the reason why the answer may lack operations, or None if it is complete.
async fn incomplete(hooks: &OperationHooks, gaps: &Gaps, read: Read<'_>) -> Option<Incomplete> {
    if !gaps.rule_sets_are_read {
        return Some(Incomplete::NotRead);
    }
    if gaps.total == 0 {
        return Some(Incomplete::NoRuleSets);
    }
    let selectors = ReviewedSelectors::of(read.query);
    let wanted = wanted_operations(read.headers);
    let namespace = Some(&*read.request.namespace).filter(|namespace| !namespace.is_empty());
    // Operations on cluster-scoped objects are in the list of one namespace.
    let cluster_scoped = namespace.is_none_or(|namespace| *namespace == *hooks.cluster_namespace);
    let affects_request = |gap: &&Gap| {
        gap.affects(namespace, cluster_scoped)
            && may_match(gap, &selectors)
            && may_match(gap, &wanted)
    };
    let mut affecting: Vec<&Gap> = gaps.rule_sets.iter().filter(affects_request).collect();
    // A user who may not list rule sets must not learn from the answer whether a rule set exists.
    // So for this user, the names in the header `ifo-ignored-rule-sets` have no effect.
    let may_list = !affecting.is_empty() && may_list_rule_sets(hooks, read.user).await;
    if may_list {
        affecting.retain(|gap| !ignored_names(read.headers).any(|name| name == &*gap.rule_set));
    }
    if affecting.is_empty() {
        return None;
    }
    let named = affecting.iter().filter(|_| may_list).map(|gap| Named {
        name: gap.rule_set.to_string(),
        reason: gap.reason.clone(),
    });
    Some(Incomplete::NotWorking(NotWorking {
        count: affecting.len(),
        total: gaps.total,
        named: named.take(MAX_NAMED).collect(),
    }))
}

/// Returns the label selector that the client has sent in `ifo-completeness-selector`. An invalid
/// selector matches all operations, so that no warning is missing.
fn wanted_operations(headers: &HeaderMap) -> ReviewedSelectors {
    let selector = headers.get(SELECTOR_HEADER);
    let selector = selector.and_then(|value| value.to_str().ok());
    ReviewedSelectors::parse("", selector.unwrap_or_default())
}

/// Returns the rule sets that the client has named in `ifo-ignored-rule-sets`.
fn ignored_names(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(IGNORED_HEADER).into_iter();
    let texts = values.filter_map(|value| value.to_str().ok());
    texts.flat_map(|text| text.split(',')).map(str::trim)
}

/// Adds the headers of an incomplete answer: the text for people, and the JSON for the plugin. The text
/// is left out if it contains a character that a header must not contain.
///
/// The text has the format of the kube-apiserver's warnings, `299 - "text"` (RFC 7234, section 5.5). The
/// code 299 stands for any persistent warning. The character `-` means that no server is named.
fn add_warning(incomplete: &Incomplete, response: &mut Response) {
    let text = incomplete.to_string();
    let quoted = text.replace('\\', "\\\\").replace('"', "\\\"");
    if let Ok(warning) = HeaderValue::try_from(format!("299 - \"{quoted}\"")) {
        response.headers_mut().append(WARNING, warning);
    }
    add_reason(incomplete, response);
}

/// Adds the reason as JSON for the plugin, if a header may contain its characters.
fn add_reason(incomplete: &Incomplete, response: &mut Response) {
    if let Ok(json) = HeaderValue::try_from(json!(incomplete).to_string()) {
        response.headers_mut().append(INCOMPLETE_HEADER, json);
    }
}

/// Returns true if the user may list rule sets. The warning names the rule sets only to such users.
async fn may_list_rule_sets(hooks: &OperationHooks, user: Option<&User>) -> bool {
    let Some(user) = user else {
        return false;
    };
    let attributes = Attributes::Resource(ResourceAttributes {
        verb: "list",
        group: GROUP.to_owned(),
        version: VERSION.to_owned(),
        resource: ruleset::PLURAL.to_owned(),
        ..ResourceAttributes::default()
    });
    let decision = hooks.authorize.authorize(user, &attributes).await;
    matches!(decision, Ok(AccessDecision::Allow))
}

/// Returns true if an operation of the rule set that `gap` describes could match the selectors. The
/// function compares the component, the kind of the subject and the operation, if `gap` contains
/// them. The function assumes that all other labels and fields match.
///
/// In this comparison, the operators `=` and `in` ignore case, as in `kubectl ifo`. So there can be
/// an unnecessary warning, which does less harm than a missing warning.
fn may_match(gap: &Gap, selectors: &ReviewedSelectors) -> bool {
    let component = std::slice::from_ref(&gap.component);
    // The possible values of the label or field in the operations of the rule set. Empty if they are
    // unknown.
    let possible = |key: &str| -> &[Text] {
        match key.strip_prefix(labels::PREFIX).unwrap_or(key) {
            "component" | "spec.component" if !gap.component.is_empty() => component,
            "subject-kind" | "spec.subject.kind" => gap.kind.as_slice(),
            "operation" | "spec.operation" => &gap.operations,
            _ => &[],
        }
    };
    let mut requirements = selectors.labels.iter().chain(&selectors.fields);
    requirements.all(|requirement| {
        let values = possible(&requirement.key);
        values.is_empty() || values.iter().any(|value| admits(requirement, value))
    })
}

/// Returns true if the requirement could match `value`.
fn admits(requirement: &SelectorRequirement, value: &str) -> bool {
    let mut values = requirement.values.iter();
    match requirement.operator {
        SelectorOperator::In => values.any(|wanted| wanted.eq_ignore_ascii_case(value)),
        SelectorOperator::NotIn => values.all(|wanted| wanted != value),
        SelectorOperator::DoesNotExist => false,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aggregated_apiserver::serve::Query;

    fn gap() -> Gap {
        Gap {
            rule_set: "vm-rules".into(),
            reason: "does not compile".to_owned(),
            component: "kubevirt".into(),
            kind: Some("VirtualMachine".into()),
            operations: vec!["Migrating".into(), "Starting".into()],
            is_being_read: false,
            namespaces: None,
            cluster_scoped: true,
            lacks_nodes: false,
        }
    }

    fn matches(options: &[(&str, &str)]) -> bool {
        let query: String = form_urlencoded::Serializer::new("/?".to_owned())
            .extend_pairs(options)
            .finish();
        may_match(
            &gap(),
            &ReviewedSelectors::of(&Query::of(&query.parse().unwrap())),
        )
    }

    #[test]
    fn a_selector_that_no_operation_of_the_rule_set_can_match_causes_no_warning() {
        for (option, selector, expected) in [
            ("labelSelector", "", true),
            ("labelSelector", "ifo.kubevirt.io/component=kubevirt", true),
            ("labelSelector", "ifo.kubevirt.io/component=KubeVirt", true),
            ("labelSelector", "ifo.kubevirt.io/component=tekton", false),
            (
                "labelSelector",
                "ifo.kubevirt.io/component!=kubevirt",
                false,
            ),
            ("labelSelector", "ifo.kubevirt.io/component!=KubeVirt", true),
            ("labelSelector", "!ifo.kubevirt.io/component", false),
            ("labelSelector", "ifo.kubevirt.io/component", true),
            (
                "labelSelector",
                "ifo.kubevirt.io/operation in (Stopping,Starting)",
                true,
            ),
            ("labelSelector", "ifo.kubevirt.io/operation=Stopping", false),
            ("labelSelector", "ifo.kubevirt.io/subject-kind=Pod", false),
            // The values of these two labels can differ between the operations of a rule set, so
            // each value could match.
            ("labelSelector", "ifo.kubevirt.io/subject-name=x", true),
            ("labelSelector", "team=x", true),
            ("fieldSelector", "spec.component=tekton", false),
            ("fieldSelector", "spec.operation=Migrating", true),
            ("fieldSelector", "spec.operation=Stopping", false),
            ("fieldSelector", "spec.subject.kind=Pod", false),
            ("fieldSelector", "status.phase=Active", true),
        ] {
            assert_eq!(matches(&[(option, selector)]), expected, "{selector}");
        }
    }

    #[test]
    fn an_unknown_kind_component_or_operation_may_match_any_selector() {
        let unresolved = Gap {
            kind: None,
            ..gap()
        };
        let query = Query::of(&"/?fieldSelector=spec.subject.kind%3DPod".parse().unwrap());
        assert!(may_match(&unresolved, &ReviewedSelectors::of(&query)));
        let unreadable = Gap {
            component: "".into(),
            operations: Vec::new(),
            ..unresolved
        };
        let query = Query::of(
            &"/?fieldSelector=spec.operation%3DA,spec.component%3Db"
                .parse()
                .unwrap(),
        );
        assert!(may_match(&unreadable, &ReviewedSelectors::of(&query)));
    }
}
