//! Tests of the `Warning` header of incomplete answers. Lists and watches of operations have this
//! header if operations may be missing, for example because a rule set does not work.

use super::*;
use http::header::WARNING;
use ifo_api::completeness::Gap;

const LIST: &str = "/apis/live.ifo.kubevirt.io/v1alpha1/inflightoperations";

fn gap(rule_set: &str, component: &str) -> Gap {
    Gap {
        rule_set: rule_set.into(),
        reason: "does not compile".to_owned(),
        component: component.into(),
        kind: None,
        operations: vec!["Running".into()],
        is_being_read: false,
        namespaces: None,
        cluster_scoped: true,
        lacks_nodes: false,
    }
}

/// Sends a request with these headers. Returns the warning in the answer, if there is one.
async fn warning(fixture: &Fixture, path: &str, headers: &[(&str, &str)]) -> Option<String> {
    let response = fixture.send(request("GET", path, headers)).await;
    assert_eq!(response.status(), StatusCode::OK);
    let mut values = response.headers().get_all(WARNING).into_iter();
    let warning = values.next();
    assert!(values.next().is_none(), "an answer has at most one warning");
    warning.map(|value| value.to_str().unwrap().to_owned())
}

/// Returns the gaps if `count` rule sets of the component `a`, and then `others`, do not compile.
fn broken(count: usize, others: Vec<Gap>) -> Gaps {
    let rule_sets = (0..count).map(|number| gap(&format!("rules-{number:02}"), "a"));
    Gaps {
        rule_sets: rule_sets.chain(others).collect(),
        ..no_gaps()
    }
}

#[tokio::test]
async fn list_warns_while_a_rule_set_does_not_work() {
    let mut fixture = Fixture::filled();
    let warns = async |fixture: &Fixture, path: &str| {
        warning(fixture, &format!("{BASE}{path}"), &[("x-user", "jane")]).await
    };
    assert_eq!(warns(&fixture, "/inflightoperations").await, None);
    fixture.set_gaps(broken(0, vec![gap("tekton-rules", "tekton")]));
    let expected = "299 - \"1 of 3 rule sets is not working, operations may be missing: \
                    tekton-rules (does not compile)\"";
    for path in [
        "/inflightoperations",
        "/inflightoperations?limit=1",
        "/namespaces/a/inflightoperations",
        "/inflightoperations?watch=1&timeoutSeconds=1",
        "/inflightoperations?labelSelector=ifo.kubevirt.io%2Fcomponent%3Dtekton",
    ] {
        let shown = warns(&fixture, path).await;
        assert_eq!(shown.as_deref(), Some(expected), "{path}");
    }
    for path in [
        "/inflightoperations?labelSelector=ifo.kubevirt.io%2Fcomponent%3Dkubevirt",
        "/namespaces/a/inflightoperations/x",
        "",
    ] {
        assert_eq!(warns(&fixture, path).await, None, "{path}");
    }
}

#[tokio::test]
async fn rule_sets_that_the_client_ignores_are_left_out_before_the_warning_is_cut() {
    let mut fixture = Fixture::filled();
    fixture.set_gaps(broken(12, Vec::new()));
    let list = async |ignored: &str, user: &str| {
        let headers = [("ifo-ignored-rule-sets", ignored), ("x-user", user)];
        warning(&fixture, LIST, &headers).await
    };
    let all: Vec<String> = (0..12).map(|number| format!("rules-{number:02}")).collect();
    assert_eq!(list(&all.join(","), "jane").await, None);
    let but_one = list(&all[..11].join(", "), "jane").await.unwrap();
    assert!(but_one.contains("1 of 3 rule sets"), "{but_one}");
    assert!(but_one.contains("rules-11 (does not compile)"), "{but_one}");
    let cut = list("", "jane").await.unwrap();
    assert!(cut.contains("2 more"), "{cut}");
    // The user `tenant` may not list rule sets, and must not find out their names by guessing.
    let hidden = list(&all.join(","), "tenant").await.unwrap();
    assert!(hidden.contains("12 of 3 rule sets"), "{hidden}");
    assert!(!hidden.contains("rules-"), "{hidden}");
}

#[tokio::test]
async fn rule_sets_that_do_not_matter_to_the_client_are_left_out_before_the_warning_is_cut() {
    let mut fixture = Fixture::filled();
    fixture.set_gaps(broken(12, vec![gap("vm-rules", "kubevirt")]));
    for (selector, expected) in [
        ("ifo.kubevirt.io/component in (tekton)", None),
        ("ifo.kubevirt.io/component in (KubeVirt)", Some("1 of 3")),
        ("", Some("13 of 3")),
        ("no valid selector (", Some("13 of 3")),
        ("team=x", Some("13 of 3")),
    ] {
        let headers = [("ifo-completeness-selector", selector), ("x-user", "jane")];
        let shown = warning(&fixture, LIST, &headers).await;
        let count = shown
            .as_deref()
            .and_then(|it| it.split(" rule sets").next());
        let count = count.and_then(|it| it.strip_prefix("299 - \""));
        assert_eq!(count, expected, "{selector}");
    }
}

#[tokio::test]
async fn list_warns_while_rule_sets_are_unknown_or_absent() {
    let mut fixture = Fixture::filled();
    for (rule_sets_are_read, expected) in [
        (false, "have not been read yet"),
        (true, "no rule set is installed"),
    ] {
        fixture.set_gaps(Gaps {
            rule_sets_are_read,
            ..Gaps::default()
        });
        let shown = warning(&fixture, LIST, &[("x-user", "tenant")]).await;
        assert!(shown.unwrap().contains(expected), "{expected}");
    }
    // A list of records has no warning, because the warnings are about operations in flight.
    let records = format!("{BASE}/operationrecords");
    assert_eq!(warning(&fixture, &records, &[]).await, None);
}

/// Returns the header that states whether the list is complete, and the body of the answer.
async fn list(fixture: &Fixture, query: &str) -> (String, Value) {
    let path = format!("{BASE}/inflightoperations{query}");
    let response = fixture.send(request("GET", &path, &[])).await;
    assert_eq!(response.status(), StatusCode::OK, "{path}");
    let header = |name| response.headers().get(name);
    let header = match (header("warning"), header("ifo-complete")) {
        (Some(warning), None) => warning.to_str().unwrap().to_owned(),
        (None, Some(_)) => "complete".to_owned(),
        both => panic!("{both:?}"),
    };
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (header, serde_json::from_slice(&body).unwrap())
}

#[tokio::test]
async fn the_header_of_a_list_is_about_the_version_of_the_list() {
    let mut fixture = Fixture::filled();
    let (header, first_page) = list(&fixture, "?limit=1").await;
    assert_eq!(header, "complete");
    let metadata = |name| first_page["metadata"][name].as_str().unwrap();
    let older = [
        format!("?limit=1&continue={}", metadata("continue")),
        format!(
            "?resourceVersionMatch=Exact&resourceVersion={}",
            metadata("resourceVersion")
        ),
    ];
    // A rule set is broken since then.
    fixture.set_gaps(broken(0, vec![gap("vm-rules", "kubevirt")]));
    for query in &older {
        assert_eq!(list(&fixture, query).await.0, "complete", "{query}");
    }
    let (header, broken) = list(&fixture, "").await;
    assert!(header.contains("vm-rules (does not compile)"), "{header}");
    // The rule set works again, but it did not work at the version of the list.
    fixture.set_gaps(no_gaps());
    assert_eq!(list(&fixture, "").await.0, "complete");
    let version = broken["metadata"]["resourceVersion"].as_str().unwrap();
    let query = format!("?resourceVersionMatch=Exact&resourceVersion={version}");
    let (header, _) = list(&fixture, &query).await;
    assert!(header.contains("vm-rules (does not compile)"), "{header}");
}

#[tokio::test]
async fn a_rule_set_that_the_index_does_not_have_yet_is_reported_for_the_newest_version() {
    let mut fixture = Fixture::filled();
    let (_, before) = list(&fixture, "").await;
    fixture.put(106, "a", "x", |_| {});
    fixture.unwritten_gaps.lock().unwrap().rule_sets = vec![gap("vm-rules", "kubevirt")];
    let (header, _) = list(&fixture, "").await;
    assert!(header.contains("vm-rules (does not compile)"), "{header}");
    let version = before["metadata"]["resourceVersion"].as_str().unwrap();
    let query = format!("?resourceVersionMatch=Exact&resourceVersion={version}");
    assert_eq!(list(&fixture, &query).await.0, "complete");
}
