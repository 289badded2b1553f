//! Tests of the log lines of requests.

use super::{BASE, Fixture};
use crate::telemetry::testing::CapturedLog;
use aggregated_apiserver::serve::{ACCESS_LOG, ClientAddress};
use axum::body::Body;
use http::Request;
use http_body_util::BodyExt as _;
use serde_json::Value;
use tower::ServiceExt as _;
use tracing::subscriber::DefaultGuard;

/// Starts to log the events of this thread. The log ends when the guard is dropped.
///
/// Before that, a request is answered. If another test answered the first request of the process
/// while this log starts, `tracing` could regard the log lines of requests as disabled.
async fn start_log(fixture: &Fixture) -> (CapturedLog, DefaultGuard) {
    let first = fixture.router.clone().oneshot(request(BASE, &[])).await;
    first.unwrap().into_body().collect().await.unwrap();
    let log = CapturedLog::default();
    let guard = log.begin();
    (log, guard)
}

/// Returns the log lines of requests so far.
fn lines(log: &CapturedLog) -> Vec<Value> {
    let lines = log.lines().into_iter();
    lines.filter(|line| line["target"] == ACCESS_LOG).collect()
}

fn request(uri: &str, headers: &[(&str, &str)]) -> Request<Body> {
    let address = ClientAddress("192.0.2.1:5000".parse().unwrap());
    let request = headers.iter().fold(Request::get(uri), |request, header| {
        request.header(header.0, header.1)
    });
    let request = request.header("audit-id", "a-1").extension(address);
    request.body(Body::empty()).unwrap()
}

#[tokio::test]
async fn each_request_is_one_log_line_with_user_request_and_response() {
    let fixture = Fixture::new();
    let (log, _guard) = start_log(&fixture).await;
    let cases = [
        (
            format!("{BASE}/namespaces/shop/inflightoperations?labelSelector=a%3Dsecret"),
            &[("x-user", "jane")][..],
            ["jane", "list", "inflightoperations", "shop"],
            200,
        ),
        (
            format!("{BASE}/namespaces/shop/inflightoperations/x"),
            &[("x-user", "nobody")],
            ["nobody", "get", "inflightoperations", "shop"],
            403,
        ),
        (
            format!("{BASE}/inflightoperations"),
            &[("authorization", "Bearer bad")],
            ["", "list", "inflightoperations", ""],
            401,
        ),
        ("/version".to_owned(), &[], ["", "get", "", ""], 200),
        ("/%ff".to_owned(), &[], ["", "get", "", ""], 400),
    ];
    for (n, (uri, headers, [user, verb, resource, namespace], code)) in
        cases.into_iter().enumerate()
    {
        let path = uri.split('?').next().unwrap().to_owned();
        let answer = fixture.router.clone().oneshot(request(&uri, headers)).await;
        let answer = answer.unwrap();
        assert_eq!(answer.status(), code, "{uri}");
        assert_eq!(
            lines(&log).len(),
            n,
            "{uri}: logged before the answer was read"
        );
        answer.into_body().collect().await.unwrap();
        let lines = lines(&log);
        assert_eq!(lines.len(), n + 1, "{uri}");
        let line = &lines[n];
        let expected = [
            ("user", user),
            ("verb", verb),
            ("resource", resource),
            ("namespace", namespace),
            ("path", &path),
            ("audit_id", "a-1"),
            ("client", "192.0.2.1:5000"),
        ];
        for (field, value) in expected {
            assert_eq!(line[field], value, "{field}: {line}");
        }
        assert_eq!(line["code"], code, "{line}");
        assert!(line["latency_ms"].is_u64(), "{line}");
        for secret in ["secret", "bad", "Bearer"] {
            assert!(!line.to_string().contains(secret), "{line}");
        }
    }
}

#[tokio::test]
async fn a_watch_is_logged_when_it_ends() {
    let fixture = Fixture::new();
    let (log, _guard) = start_log(&fixture).await;
    let uri = format!("{BASE}/inflightoperations?watch=1");
    let asked = request(&uri, &[("x-user", "jane")]);
    let answer = fixture.router.clone().oneshot(asked).await.unwrap();
    assert!(lines(&log).is_empty());
    fixture.shutdown.cancel();
    answer.into_body().collect().await.unwrap();
    let lines = lines(&log);
    assert_eq!(lines.len(), 1);
    assert_eq!(
        (&lines[0]["verb"], &lines[0]["code"]),
        (&"watch".into(), &200.into())
    );
}
