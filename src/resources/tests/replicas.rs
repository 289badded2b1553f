//! Tests of requests that other replicas send to the leader, and of the answers of a follower to
//! clients.

use super::*;
use crate::replicate::link::LinkError;
use crate::replicate::{Leader, Leadership, Term};
use http::header::WARNING;
use std::time::Duration;

const LIST: &str = "/apis/live.ifo.kubevirt.io/v1alpha1/inflightoperations";
const WATCH: &str =
    "/apis/live.ifo.kubevirt.io/v1alpha1/inflightoperations?watch=1&resourceVersion=105";

/// The headers of a request from another replica. The header `ifo-term` names a leadership term:
/// the time for which one replica is the leader.
const REPLICA: &[(&str, &str)] = &[("x-user", "replica"), ("ifo-term", "pod_1")];

fn following() -> ReplicaRole {
    ReplicaRole::Following(Leader {
        term: Term::from("pod_2"),
        address: "leader:1".to_owned(),
    })
}

#[tokio::test]
async fn replicas_are_served_only_in_the_term_in_which_this_replica_leads() {
    let fixture = Fixture::filled();
    for path in ["/peer", LIST, WATCH] {
        let (code, _) = fixture.ask(path, REPLICA).await;
        assert_eq!(code, StatusCode::MISDIRECTED_REQUEST, "{path}");
    }
    fixture.replica_status.serve(&Term::from("pod_1"));
    let answer = fixture.json("/peer", REPLICA).await;
    assert_eq!(answer["leading"], true);
    assert_eq!(
        (&answer["head"], &answer["oldest"]),
        (&105.into(), &99.into())
    );
    let list = fixture.json(LIST, REPLICA).await;
    // Five operations, and the rule sets that may miss operations.
    assert_eq!(list["items"].as_array().unwrap().len(), 6);
}

#[tokio::test]
async fn requests_of_replicas_require_access_to_the_peer_path() {
    let fixture = Fixture::filled();
    fixture.replica_status.serve(&Term::from("pod_1"));
    for path in ["/peer", LIST, WATCH] {
        let headers = [("x-user", "nobody"), ("ifo-term", "pod_1")];
        let (code, body) = fixture.ask(path, &headers).await;
        assert_eq!(code, StatusCode::FORBIDDEN, "{path}");
        assert!(body.contains("cannot get path \\\"/peer\\\""), "{body}");
    }
}

#[tokio::test]
async fn the_watch_of_a_replica_ends_with_the_term() {
    let mut fixture = Fixture::filled();
    fixture.replica_status.serve(&Term::from("pod_1"));
    let of_replica = fixture.send(request("GET", WATCH, REPLICA)).await;
    let mut of_user = fixture
        .send(request("GET", WATCH, &[("x-user", "jane")]))
        .await
        .into_body();
    fixture.put(106, "a", "new", |_| {});
    let mut of_replica = of_replica.into_body();
    let mut next = async || {
        let frame = of_replica.frame().await.unwrap().unwrap();
        String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap()
    };
    let first = next().await;
    assert!(
        first.contains("BOOKMARK") && first.contains(r#""105""#),
        "{first}"
    );
    let event = next().await;
    assert!(event.contains(r#""resourceVersion":"106""#), "{event}");
    fixture.replica_status.end_streams(false);
    assert!(of_replica.frame().await.is_none());
    assert!(
        of_user.frame().await.is_some(),
        "the watch of a user has ended, too"
    );
    let (code, _) = fixture.ask("/peer", REPLICA).await;
    assert_eq!(code, StatusCode::MISDIRECTED_REQUEST);
}

#[tokio::test]
async fn requests_of_replicas_do_not_count_in_the_limits_of_users() {
    let fixture = Fixture::limited(1, 1);
    fixture.replica_status.serve(&Term::from("pod_1"));
    let user = [("x-user", "jane")];
    let _held = fixture.send(request("GET", WATCH, &user)).await;
    let (code, _) = fixture.ask(WATCH, &user).await;
    assert_eq!(code, StatusCode::TOO_MANY_REQUESTS);
    let streams: Vec<_> =
        futures::future::join_all((0..4).map(|_| fixture.send(request("GET", WATCH, REPLICA))))
            .await;
    assert!(streams.iter().all(|it| it.status() == StatusCode::OK));
    assert_eq!(fixture.json("/peer", REPLICA).await["leading"], true);
}

#[tokio::test(start_paused = true)]
async fn only_requests_for_the_newest_state_query_the_leader() {
    let fixture = Fixture::filled();
    fixture.role.send_replace(following());
    fixture.replica_status.set_asking(true);
    let object = "/apis/live.ifo.kubevirt.io/v1alpha1/namespaces/a/inflightoperations/x";
    // In this test, the leader never answers. So a request that queries the leader takes one
    // second, which is the time limit of the query.
    for (path, queries_leader) in [
        (LIST.to_owned(), true),
        (object.to_owned(), true),
        (
            format!(
                "{LIST}?watch=1&sendInitialEvents=true&allowWatchBookmarks=true\
            &resourceVersionMatch=NotOlderThan&timeoutSeconds=0"
            ),
            true,
        ),
        (format!("{LIST}?resourceVersion=0"), false),
        (format!("{LIST}?resourceVersion=105"), false),
        (format!("{object}?resourceVersion=101"), false),
        (
            format!("{LIST}?resourceVersion=105&resourceVersionMatch=Exact"),
            false,
        ),
    ] {
        let started = tokio::time::Instant::now();
        let (code, body) = fixture.get(&path).await;
        assert_eq!(code, StatusCode::OK, "{path}: {body}");
        let waited = started.elapsed() >= Duration::from_secs(1);
        assert_eq!(
            waited,
            queries_leader,
            "{path} took {:?}",
            started.elapsed()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_leader_answers_about_the_newest_state_are_not_confirmed() {
    let fixture = Fixture::filled();
    let activities = LIST.replace("inflightoperations", "activities");
    let reason = async |path: &str| {
        let answer = fixture.send(request("GET", path, &[])).await;
        assert_eq!(answer.status(), StatusCode::OK, "{path}");
        assert!(answer.headers().get(WARNING).is_none());
        answer.headers().get("ifo-incomplete").cloned()
    };
    for path in [LIST, &activities] {
        assert_eq!(reason(path).await, None);
    }
    for role in [following(), ReplicaRole::Vacant(None)] {
        fixture.role.send_replace(role);
        for path in [LIST, &activities] {
            assert_eq!(reason(path).await.unwrap(), "\"notConfirmed\"", "{path}");
            // The client accepts an old state.
            assert_eq!(reason(&format!("{path}?resourceVersion=0")).await, None);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_stale_replica_warns_in_its_responses() {
    let fixture = Fixture::filled();
    let path = format!("{LIST}?resourceVersion=0");
    let answer = async || fixture.send(request("GET", &path, &[])).await;
    assert_eq!(answer().await.headers()["ifo-complete"], "true");
    fixture.role.send_replace(following());
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(answer().await.headers().get(WARNING).is_none());
    tokio::time::sleep(Duration::from_secs(10)).await;
    let late = answer().await;
    assert!(late.headers().get("ifo-complete").is_none());
    assert_eq!(
        late.headers()[WARNING],
        "299 - \"this server has not been up to date for more than 15 s, operations may be \
         missing or over\""
    );
}

#[tokio::test(start_paused = true)]
async fn a_stale_replica_serves_no_activities_and_ends_their_watches() {
    let fixture = Fixture::filled();
    let list = "/apis/live.ifo.kubevirt.io/v1alpha1/activities?resourceVersion=0";
    let watch = format!("{list}&watch=1");
    assert_eq!(fixture.get(list).await.0, StatusCode::OK);
    let mut open = fixture.send(request("GET", &watch, &[])).await.into_body();
    fixture.role.send_replace(following());
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(fixture.get(list).await.0, StatusCode::OK);
    let ended = async move { while open.frame().await.is_some() {} };
    let ended = tokio::time::timeout(Duration::from_secs(10), ended).await;
    ended.expect("the watch ends after 15 s without a leader");
    for path in [list, &watch] {
        let (code, body) = fixture.get(path).await;
        assert_eq!(code, StatusCode::SERVICE_UNAVAILABLE, "{body}");
        assert!(
            body.contains("this replica has not been up to date"),
            "{body}"
        );
    }
}

#[tokio::test]
async fn an_impaired_replica_is_not_ready() {
    let fixture = Fixture::new();
    fixture.readiness.set_impaired(true);
    let (code, body) = fixture.get("/readyz").await;
    assert_eq!(code, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(body.contains("[-]replica failed"), "{body}");
    fixture.readiness.set_impaired(false);
    assert_eq!(fixture.get("/readyz").await.0, StatusCode::OK);
    let new = Readiness::new();
    assert!(!new.is_among_replicas());
    new.set_has_joined();
    assert!(new.is_among_replicas());
}

#[tokio::test]
async fn the_path_of_the_check_shows_why_a_replica_is_not_ready() {
    let fixture = Fixture::new();
    fixture.role.send_replace(following());
    let reason = "the leader answers 403 Forbidden";
    let interruption = Some(LinkError::Failed(reason.to_owned()));
    fixture.replica_status.set_interruption(interruption);
    fixture.readiness.set_impaired(true);
    let (_, body) = fixture.ask("/readyz/replica", &[("x-user", "jane")]).await;
    assert_eq!(body, format!("internal server error: {reason}\n"));
    // A leader does not copy operations, so this reason no longer applies.
    let leading = Leadership::alone(Rv(100));
    fixture.role.send_replace(ReplicaRole::Leading(leading));
    let (_, body) = fixture.ask("/readyz/replica", &[]).await;
    assert_eq!(body, "internal server error: reason withheld\n");
}

#[tokio::test(start_paused = true)]
async fn a_gate_refuses_at_once_if_no_leader_answers() {
    let fixture = Fixture::filled();
    let roles = [following(), ReplicaRole::Vacant(None)];
    let is_refused_without_leader = async || {
        let review = r#"{"request": {"uid": "u", "resource": {"resource": "nodes"}, "name": "n"}}"#;
        let mut gate = request("POST", "/gate", &[]);
        *gate.body_mut() = review.into();
        text(fixture.send(gate).await)
            .await
            .contains("no leader answers")
    };
    assert!(!is_refused_without_leader().await);
    for role in roles {
        fixture.role.send_replace(role);
        assert!(is_refused_without_leader().await);
    }
}
