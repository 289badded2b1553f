//! Tests of the limits of concurrent requests, watches, token verifications and error answers.

use super::*;

const ALL: &str = "/apis/live.ifo.kubevirt.io/v1alpha1/inflightoperations";
const ADMINISTRATOR: (&str, &str) = ("x-group", "system:masters");

async fn code(fixture: &Fixture, path: &str, headers: &[(&str, &str)]) -> StatusCode {
    fixture.send(request("GET", path, headers)).await.status()
}

#[tokio::test]
async fn watches_are_limited_per_user_and_in_total() {
    let fixture = Fixture::within(Limits {
        watches: 5,
        watches_per_user: 2,
        ..Limits::default()
    });
    let watch = async |user: &str, more: &[(&str, &str)]| {
        let headers = [&[("x-user", user)], more].concat();
        let path = format!("{ALL}?watch=1");
        fixture.send(request("GET", &path, &headers)).await
    };
    let mut open = vec![watch("a", &[]).await, watch("a", &[]).await];
    let refused = watch("a", &[]).await;
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(refused.headers()["retry-after"], "1");
    let status: Value = serde_json::from_str(&text(refused).await).unwrap();
    assert_eq!(status["reason"], "TooManyRequests");
    assert_eq!(
        status["message"],
        "too many watches (--max-watches, --max-watches-per-user): 2 of 5 belong to the user \"a\", \
         and 3 are free"
    );
    // Other users can watch, and the user with too many watches can still list.
    open.push(watch("b", &[]).await);
    assert_eq!(code(&fixture, ALL, &[("x-user", "a")]).await, 200);
    // The limit of each user does not apply to administrators, but the total limit does.
    open.push(watch("root", &[ADMINISTRATOR]).await);
    open.push(watch("root", &[ADMINISTRATOR]).await);
    assert!(open.iter().all(|watch| watch.status() == StatusCode::OK));
    for user in ["b", "c", "root"] {
        let refused = watch(user, &[ADMINISTRATOR]).await.status();
        assert_eq!(refused, StatusCode::TOO_MANY_REQUESTS, "{user}");
    }
    open.remove(0);
    assert_eq!(watch("c", &[]).await.status(), StatusCode::OK);
    let rejected = "apiserver_request_terminations_total{verb=\"WATCH\",\
                    group=\"live.ifo.kubevirt.io\",version=\"v1alpha1\",\
                    resource=\"inflightoperations\",scope=\"cluster\",code=\"429\"} 4";
    let metrics = fixture.metrics.render();
    assert!(metrics.contains(rejected), "{metrics}");
}

#[tokio::test]
async fn a_reserve_is_for_controllers_and_authorized_requests_for_all_namespaces() {
    let fixture = Fixture::within(Limits {
        watches: 40,
        ..Limits::default()
    });
    let watch = |namespace: &str| format!("{BASE}{namespace}/inflightoperations?watch=1");
    let (in_namespace, everywhere) = (watch("/namespaces/a"), watch(""));
    let send = async |user: &str, path: &str| {
        let request = request("GET", path, &[("x-user", user)]);
        fixture.send(request).await
    };
    let mut admitted = Vec::new();
    for number in 0..40 {
        let answer = send(&format!("user-{number}"), &in_namespace).await;
        admitted.extend(Some(answer).filter(|it| it.status() == StatusCode::OK));
    }
    assert_eq!(admitted.len(), 36);
    // A user who may not read all namespaces does not keep a slot of the reserve.
    for _ in 0..10 {
        let refused = send("nobody", &everywhere).await.status();
        assert_eq!(refused, StatusCode::FORBIDDEN);
    }
    let controller = "system:serviceaccount:kube-system:namespace-controller";
    for (user, path, code) in [
        ("b", &in_namespace, StatusCode::TOO_MANY_REQUESTS),
        (controller, &in_namespace, StatusCode::OK),
        ("b", &everywhere, StatusCode::OK),
    ] {
        let answer = send(user, path).await;
        assert_eq!(answer.status(), code, "{user} {path}");
        admitted.push(answer);
    }
}

#[tokio::test]
async fn a_request_keeps_its_slot_until_its_response_is_read() {
    let fixture = Fixture::limited(1, 1);
    let first = fixture.send(request("GET", ALL, &[])).await;
    assert_eq!(first.status(), StatusCode::OK);
    assert_eq!(code(&fixture, ALL, &[]).await, 429);
    let gauge = "apiserver_current_inflight_requests{request_kind=\"readOnly\"}";
    assert!(fixture.metrics.render().contains(&format!("{gauge} 1\n")));
    // Discovery and watches do not count in this limit.
    assert_eq!(code(&fixture, "/apis", &[]).await, 200);
    assert_eq!(code(&fixture, &format!("{ALL}?watch=1"), &[]).await, 200);
    text(first).await;
    assert_eq!(code(&fixture, ALL, &[]).await, 200);
    assert!(fixture.metrics.render().contains(&format!("{gauge} 0\n")));
}

#[tokio::test]
async fn token_verifications_are_limited_and_do_not_delay_requests_without_tokens() {
    let fixture = Fixture::filled();
    let slow = [("authorization", "Bearer slow")];
    let mut waiting = Vec::new();
    for _ in 0..aggregated_apiserver::serve::MAX_AUTHENTICATING {
        let mut asked = Box::pin(fixture.send(request("GET", ALL, &slow)));
        assert!(futures::poll!(&mut asked).is_pending());
        waiting.push(asked);
    }
    assert_eq!(code(&fixture, ALL, &slow).await, 429);
    // Requests through the front proxy and requests with a client certificate have no token, so
    // this limit does not apply to them.
    assert_eq!(code(&fixture, ALL, &[("x-user", "a")]).await, 200);
    assert_eq!(code(&fixture, "/apis", &[]).await, 200);
    drop(waiting.pop());
    let known = [("authorization", "Bearer good")];
    assert_eq!(code(&fixture, ALL, &known).await, 200);
}

#[tokio::test]
async fn error_responses_quote_little_of_the_request() {
    let fixture = Fixture::filled();
    let long = "&".repeat(60_000);
    let nobody = [("x-user", "nobody")];
    for path in [
        format!("/apis/g/v1/{long}"),
        format!("{BASE}/namespaces/n1/inflightoperations/{long}"),
        format!("/apis/g/v1/things/%25{long}"),
        format!("{ALL}?resourceVersion={}", "9".repeat(60_000)),
        format!("{ALL}?fieldSelector=x{}", "=".repeat(15_000)),
        format!("{ALL}?labelSelector=a,,{}", "!".repeat(15_000)),
        format!("/readyz?verbose&exclude={}", "%00".repeat(20_000)),
    ] {
        for headers in [&nobody[..], &[]] {
            let answer = fixture.send(request("GET", &path, headers)).await;
            let size = text(answer).await.len();
            assert!(size < 24 << 10, "{size} bytes for {}", &path[..60]);
        }
    }
}

#[tokio::test]
async fn errors_and_public_answers_are_limited_and_beyond_that_have_no_body() {
    let fixture = Fixture::filled();
    let nobody = [("x-user", "nobody")];
    let refused = async || fixture.send(request("GET", ALL, &nobody)).await;
    let mut waiting = Vec::new();
    for number in 0..aggregated_apiserver::serve::MAX_SMALL_ANSWERS {
        let public = fixture.send(request("GET", "/version", &[]));
        let answer = if number % 2 == 0 {
            refused().await
        } else {
            public.await
        };
        assert!(answer.headers().contains_key("content-type"));
        waiting.push(answer);
    }
    let more = refused().await;
    assert_eq!(more.status(), StatusCode::FORBIDDEN);
    assert!(!more.headers().contains_key("content-type"));
    assert_eq!(text(more).await, "");
    let probe = fixture.send(request("GET", "/livez", &[])).await;
    assert_eq!(probe.status(), StatusCode::OK);
    assert_eq!(text(probe).await, "");
    let more = fixture.send(request("GET", "/apis", &[])).await;
    assert_eq!(more.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(more.headers()["retry-after"], "1");
    assert_eq!(text(more).await, "");
    // Other requests are not affected.
    assert_eq!(code(&fixture, ALL, &[("x-user", "a")]).await, 200);
    text(waiting.remove(0)).await;
    assert_eq!(code(&fixture, "/apis", &[]).await, 200);
    assert!(!text(refused().await).await.is_empty());
}
