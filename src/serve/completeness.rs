//! The `Warning` header on lists and watches of operations. Input: a request, and the rule sets
//! that may miss operations. Output: the header, if one of these rule sets could contribute to the
//! answer.
//!
//! kubectl prints the text of the header, and client-go logs it once. So users do not take a list
//! that is empty because of a broken rule for a quiet cluster.

use super::ServerState;
use super::request::{Query, Request};
use super::select::Reviewed;
use crate::auth::{AccessDecision, Attributes, SelectorRequirement, User};
use axum::response::Response;
use http::header::WARNING;
use http::{HeaderName, HeaderValue};
use ifo_api::completeness::{COMPLETE_HEADER, Gap, Gaps, Incomplete, Named, NotWorking};
use ifo_api::{GROUP, VERSION, labels, live, ruleset};

/// Adds the `Warning` header to the answer to a list or a watch of operations, or the header that
/// the answer is complete.
pub async fn warn(
    shared: &ServerState,
    request: &Request,
    query: &Query,
    user: Option<&User>,
    response: &mut Response,
) {
    if request.resource != live::PLURAL || !response.status().is_success() {
        return;
    }
    if shared.server.view.is_stale() {
        warn_of(&Incomplete::NotCurrent, response);
        return;
    }
    let Gaps {
        read,
        total,
        rule_sets,
    } = shared.server.completeness.gaps(&request.namespace);
    let incomplete = if !read {
        Incomplete::NotRead
    } else if total == 0 {
        Incomplete::NoRuleSets
    } else {
        let selectors = Reviewed::of(query);
        let affecting = |gap: &Gap| may_match(gap, &selectors);
        let gaps: Vec<Gap> = rule_sets.into_iter().filter(affecting).collect();
        if gaps.is_empty() {
            let complete = HeaderName::from_static(COMPLETE_HEADER);
            let headers = response.headers_mut();
            headers.insert(complete, HeaderValue::from_static("true"));
            return;
        }
        let count = gaps.len();
        let named = if may_list_rule_sets(shared, user).await {
            gaps.into_iter().map(named).collect()
        } else {
            Vec::new()
        };
        Incomplete::NotWorking(NotWorking {
            count,
            total,
            named,
        })
    };
    warn_of(&incomplete, response);
}

fn warn_of(incomplete: &Incomplete, response: &mut Response) {
    if let Some(value) = header_value(incomplete) {
        response.headers_mut().append(WARNING, value);
    }
}

fn named(gap: Gap) -> Named {
    Named {
        name: gap.rule_set.to_string(),
        reason: gap.reason,
    }
}

/// `299 - "text"`, as the kube-apiserver writes it (RFC 7234, section 5.5). 299 is a persistent
/// warning of any kind, and `-` stands for the agent.
fn header_value(incomplete: &Incomplete) -> Option<HeaderValue> {
    let text = incomplete.to_string();
    let quoted = text.replace('\\', "\\\\").replace('"', "\\\"");
    HeaderValue::from_str(&format!("299 - \"{quoted}\"")).ok()
}

/// Adds the names of rule sets if the user may list rule sets.
async fn may_list_rule_sets(shared: &ServerState, user: Option<&User>) -> bool {
    let Some(user) = user else {
        return false;
    };
    let attributes = Attributes::Resource {
        verb: "list".to_owned(),
        group: GROUP.to_owned(),
        version: VERSION.to_owned(),
        resource: ruleset::PLURAL.to_owned(),
        subresource: String::new(),
        namespace: String::new(),
        name: String::new(),
        fields: Vec::new(),
        labels: Vec::new(),
    };
    let decision = shared.server.authorize.authorize(user, &attributes).await;
    matches!(decision, Ok(AccessDecision::Allow))
}

/// Returns true if an operation of the rule set could match the selectors. Requirements on labels
/// and fields that depend on the operation count as met. Upper and lower case are equal, as in
/// `kubectl ifo`, because an unnecessary warning does less harm than a missing one.
fn may_match(gap: &Gap, selectors: &Reviewed) -> bool {
    let fits = |requirement: &SelectorRequirement, known: Option<PossibleValues<'_>>| match known {
        Some(PossibleValues::One(value)) => admits(requirement, value),
        Some(PossibleValues::Any(values)) => values.iter().any(|value| admits(requirement, value)),
        None => true,
    };
    let component = (!gap.component.is_empty()).then_some(PossibleValues::One(&gap.component));
    let kind = gap.kind.as_deref().map(PossibleValues::One);
    let operation = (!gap.operations.is_empty()).then_some(PossibleValues::Any(&gap.operations));
    let label = |key: &str| match key.strip_prefix(labels::PREFIX)? {
        "component" => component,
        "subject-kind" => kind,
        "operation" => operation,
        _ => None,
    };
    let field = |path: &str| match path {
        "spec.component" => component,
        "spec.subject.kind" => kind,
        "spec.operation" => operation,
        _ => None,
    };
    selectors.labels.iter().all(|it| fits(it, label(&it.key)))
        && selectors.fields.iter().all(|it| fits(it, field(&it.key)))
}

/// The values that a label or a field of a rule set's operations can have.
#[derive(Clone, Copy)]
enum PossibleValues<'a> {
    One(&'a str),
    Any(&'a [std::sync::Arc<str>]),
}

fn admits(requirement: &SelectorRequirement, value: &str) -> bool {
    let listed = requirement
        .values
        .iter()
        .any(|wanted| wanted.eq_ignore_ascii_case(value));
    let exact = requirement.values.iter().any(|wanted| wanted == value);
    match requirement.operator {
        "In" => listed,
        "NotIn" => !exact,
        "DoesNotExist" => false,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gap() -> Gap {
        Gap {
            rule_set: "vm-rules".into(),
            reason: "does not compile".to_owned(),
            component: "kubevirt".into(),
            kind: Some("VirtualMachine".into()),
            operations: vec!["Migrating".into(), "Starting".into()],
        }
    }

    fn matches(options: &[(&str, &str)]) -> bool {
        let query: String = form_urlencoded::Serializer::new("/?".to_owned())
            .extend_pairs(options)
            .finish();
        may_match(&gap(), &Reviewed::of(&Query::of(&query.parse().unwrap())))
    }

    #[test]
    fn rule_set_is_omitted_if_no_operation_of_it_can_match_the_selector() {
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
            // The value differs for each operation.
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
    fn unknown_kind_may_match_any_selector() {
        let unresolved = Gap {
            kind: None,
            ..gap()
        };
        let query = Query::of(&"/?fieldSelector=spec.subject.kind%3DPod".parse().unwrap());
        assert!(may_match(&unresolved, &Reviewed::of(&query)));
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
        assert!(may_match(&unreadable, &Reviewed::of(&query)));
    }
}
