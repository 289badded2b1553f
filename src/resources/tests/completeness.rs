//! Tests of the `Warning` header of incomplete answers. Lists and watches of operations have this
//! header if operations may be missing, for example because a rule set does not work.

use super::*;
use http::header::WARNING;
use ifo_api::completeness::Gap;

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
    }
}

/// Sends a request of `user` and returns the warnings in the answer.
async fn warnings(fixture: &Fixture, path: &str, user: &str) -> Vec<String> {
    let request = request("GET", &format!("{BASE}{path}"), &[("x-user", user)]);
    let response = fixture.send(request).await;
    assert_eq!(response.status(), StatusCode::OK);
    let values = response.headers().get_all(WARNING).into_iter();
    values
        .map(|value| value.to_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn list_warns_while_a_rule_set_does_not_work() {
    let mut fixture = Fixture::filled();
    let list = "/inflightoperations";
    assert!(warnings(&fixture, list, "jane").await.is_empty());
    fixture.set_gaps(Gaps {
        rule_sets: vec![gap("tekton-rules", "tekton")],
        ..no_gaps()
    });
    let warning = "299 - \"1 of 3 rule sets is not working, operations may be missing: \
                   tekton-rules (does not compile)\"";
    for path in [
        "/inflightoperations",
        "/inflightoperations?limit=1",
        "/namespaces/a/inflightoperations",
        "/inflightoperations?watch=1&timeoutSeconds=1",
        "/inflightoperations?labelSelector=ifo.kubevirt.io%2Fcomponent%3Dtekton",
    ] {
        assert_eq!(warnings(&fixture, path, "jane").await, [warning], "{path}");
    }
    for path in [
        "/inflightoperations?labelSelector=ifo.kubevirt.io%2Fcomponent%3Dkubevirt",
        "/namespaces/a/inflightoperations/x",
        "",
    ] {
        let none: [&str; 0] = [];
        assert_eq!(warnings(&fixture, path, "jane").await, none, "{path}");
    }
}

#[tokio::test]
async fn rule_sets_that_the_client_ignores_are_left_out_before_the_warning_is_cut() {
    let mut fixture = Fixture::filled();
    let name = |number: usize| format!("rules-{number:02}");
    let gaps = (0..12).map(|number| gap(&name(number), "a")).collect();
    fixture.set_gaps(Gaps {
        rule_sets: gaps,
        ..no_gaps()
    });
    let list = async |ignored: &str, user: &str| {
        let path = format!("{BASE}/inflightoperations");
        let headers = [("ifo-ignored-rule-sets", ignored), ("x-user", user)];
        let response = fixture.send(request("GET", &path, &headers)).await;
        let warning = response.headers().get(WARNING);
        warning.map(|it| it.to_str().unwrap().to_owned())
    };
    let all: Vec<String> = (0..12).map(name).collect();
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
    let mut gaps: Vec<_> = (0..12)
        .map(|number| gap(&format!("rules-{number:02}"), "a"))
        .collect();
    gaps.push(gap("vm-rules", "kubevirt"));
    fixture.set_gaps(Gaps {
        rule_sets: gaps,
        ..no_gaps()
    });
    let list = async |selector: &str| {
        let path = format!("{BASE}/inflightoperations");
        let headers = [("ifo-completeness-selector", selector), ("x-user", "jane")];
        let response = fixture.send(request("GET", &path, &headers)).await;
        let warning = response.headers().get(WARNING);
        warning.map(|it| it.to_str().unwrap().to_owned())
    };
    assert_eq!(list("ifo.kubevirt.io/component in (tekton)").await, None);
    let own = list("ifo.kubevirt.io/component in (KubeVirt)")
        .await
        .unwrap();
    assert!(own.contains("1 of 3 rule sets"), "{own}");
    for all in ["", "no valid selector (", "team=x"] {
        let warning = list(all).await.unwrap();
        assert!(warning.contains("13 of 3 rule sets"), "{warning}");
    }
}

#[tokio::test]
async fn list_warns_while_rule_sets_are_unknown_or_absent() {
    let mut fixture = Fixture::filled();
    fixture.set_gaps(Gaps::default());
    let warnings_shown = warnings(&fixture, "/inflightoperations", "tenant").await;
    assert!(
        warnings_shown[0].contains("have not been read yet"),
        "{warnings_shown:?}"
    );
    fixture.set_gaps(Gaps {
        rule_sets_are_read: true,
        ..Gaps::default()
    });
    let warnings_shown = warnings(&fixture, "/inflightoperations", "tenant").await;
    assert!(
        warnings_shown[0].contains("no rule set is installed"),
        "{warnings_shown:?}"
    );
    // A list of rule sets has no warning, because the warnings are about operations.
    let response = fixture
        .send(request(
            "GET",
            "/apis/ifo.kubevirt.io/v1alpha1/operationrulesets",
            &[],
        ))
        .await;
    assert!(response.headers().get(WARNING).is_none());
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
    fixture.set_gaps(Gaps {
        rule_sets: vec![gap("vm-rules", "kubevirt")],
        ..no_gaps()
    });
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
