use super::*;
use futures::StreamExt as _;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

const API_TIMEOUT: Duration = Duration::from_secs(30);

fn kubeconfig(server: &str, more: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Config, current-context: c, contexts: [{{name: c, context: {{cluster: k, user: u}}}}], \
         clusters: [{{name: k, cluster: {{server: \"{server}\"{more}}}}}], users: [{{name: u, user: {{token: secret}}}}]}}"
    )
}

#[tokio::test]
async fn an_unusable_kubeconfig_is_reported_on_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let socks = kubeconfig(
        "https://192.0.2.1",
        ", proxy-url: \"socks5://192.0.2.2:1080\"",
    );
    for (name, text) in [
        ("missing", None),
        ("broken", Some("a: [")),
        ("empty", Some("{}")),
        ("socks", Some(&socks)),
    ] {
        let path = dir.path().join(name);
        if let Some(text) = text {
            std::fs::write(&path, text).unwrap();
        }
        let connected = connect(Some(&path), API_TIMEOUT).await;
        let error = connected.err().unwrap().to_string();
        assert!(
            error.starts_with(&format!("kubeconfig {}: ", path.display())),
            "{error}"
        );
        assert!(!error.contains('\n'), "{error}");
        let path = path.to_str().unwrap();
        assert_eq!(error.matches(path).count(), 1, "{error}");
    }
}

#[tokio::test]
async fn requests_carry_credentials_and_a_user_agent() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("http://{}/prefix", listener.local_addr().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config");
    std::fs::write(&path, kubeconfig(&server, "")).unwrap();
    let connection = connect(Some(&path), API_TIMEOUT).await.unwrap();
    let watch_client = connection.watch_client();
    for client in [&connection.client, &watch_client] {
        let request = Request::get("/version").body(Body::empty()).unwrap();
        let (response, received) = tokio::join!(client.send(request), async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut received = Vec::new();
            while !received.ends_with(b"\r\n\r\n") {
                received.push(stream.read_u8().await.unwrap());
            }
            stream
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                .await
                .unwrap();
            String::from_utf8(received).unwrap()
        });
        assert_eq!(response.unwrap().status(), 200);
        assert!(
            received.starts_with("GET /prefix/version HTTP/1.1"),
            "{received}"
        );
        assert!(
            received.contains("authorization: Bearer secret"),
            "{received}"
        );
        assert!(
            received.contains("user-agent: ifo-apiserver/"),
            "{received}"
        );
    }
}

#[tokio::test]
async fn watches_are_spread_over_connections_below_the_stream_limit() {
    let made = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = made.clone();
    let make = move || {
        counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let never =
            service_fn(|_| std::future::pending::<Result<http::Response<Body>, BoxError>>());
        Client::new(never, "default")
    };
    let connection = Connection::new(make(), Arc::new(make));
    for watches in 1..=WATCHES_PER_CONNECTION + 1 {
        connection.watch_client();
        let clients = made.load(std::sync::atomic::Ordering::Relaxed) - 1;
        assert_eq!(clients, watches.div_ceil(WATCHES_PER_CONNECTION));
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_without_a_complete_answer_times_out_unless_it_is_a_watch() {
    let limit = Duration::from_secs(30);
    let request = |uri: &str| Request::get(uri).body(Body::empty()).unwrap();
    let never = service_fn(|_| std::future::pending::<Result<Response<Body>, BoxError>>());
    let error = limited(never, request("/api"), limit).await;
    let error = error.unwrap_err().to_string();
    assert_eq!(error, "no complete answer within 30s");
    for (uri, ends) in [
        ("/api/v1/pods", true),
        ("/api/v1/pods?watch=1", false),
        ("/api/v1/pods?limit=5&watch=true", false),
    ] {
        let stalled = service_fn(async |_| {
            let first = stream::iter([Ok::<_, BoxError>(http_body::Frame::data("x".into()))]);
            let frames = first.chain(stream::pending()).boxed();
            Ok::<_, BoxError>(Response::new(StreamBody::new(frames)))
        });
        let response = limited(stalled, request(uri), limit).await.unwrap();
        let body = timeout(limit * 10, response.into_body().collect()).await;
        assert_eq!(body.is_ok_and(|body| body.is_err()), ends, "{uri}");
    }
}

#[tokio::test]
async fn a_refusal_has_the_code_of_the_answer_and_its_size_is_limited() {
    for (code, part, parts, message) in [
        (403, r#"{"error":"zqx"}"#, 1, ""),
        (403, r#"{"message":"no","code":500}"#, 1, "no"),
        (503, "<html>", 1, "<html>"),
        (404, "too large ", 10_000, ""),
    ] {
        let server = service_fn(move |_| async move {
            let frame = move || Ok::<_, BoxError>(http_body::Frame::data(Bytes::from(part)));
            let body = StreamBody::new(stream::repeat_with(frame).take(parts).boxed());
            Response::builder().status(code).body(body)
        });
        let limit = Duration::from_secs(30);
        let service = service_fn(move |request| limited(server, request, limit));
        let request = Request::get("/x?watch=1").body(Vec::new()).unwrap();
        let refused = Client::new(service, "default")
            .request_stream(request)
            .await;
        let Err(kube::Error::Api(status)) = refused.map(|_| ()) else {
            panic!("{code} must be a refusal");
        };
        assert_eq!((status.code, &*status.message), (code, message));
    }
    let large = service_fn(async |_| {
        let body = Full::from(vec![b'x'; MAX_ANSWER + 1]);
        Ok::<_, BoxError>(Response::new(body))
    });
    for (uri, is_refused) in [("/api", true), ("/api/v1/pods?limit=5", false)] {
        let request = Request::get(uri).body(Body::empty()).unwrap();
        let answer = limited(large, request, Duration::from_secs(30)).await;
        let body = answer.unwrap().into_body().collect().await;
        assert_eq!(body.is_err(), is_refused, "{uri}");
    }
}
