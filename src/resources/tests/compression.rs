//! Tests of the compression of large answers.

use super::*;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, VARY};
use std::io::Read as _;

const ALL: &str = "/apis/live.ifo.kubevirt.io/v1alpha1/inflightoperations";
const GZIP: (&str, &str) = ("accept-encoding", "gzip");

/// Creates a server with two large answers: the list of all operations, and the operation `big` in
/// the namespace `big`. In every format, both answers are large enough for compression.
fn large() -> Fixture {
    let mut fixture = Fixture::bounded(16 << 20);
    for number in 0..1_000 {
        fixture.put(101 + number, "n", &format!("o{number:04}"), |_| {});
    }
    fixture.put(1_200, "big", "big", |object| {
        object["status"]["message"] = json!("moving ".repeat(30_000));
    });
    fixture
}

/// Returns the frames of a body.
async fn frames(response: Response<Body>) -> Vec<Vec<u8>> {
    let mut body = response.into_body();
    let mut frames = Vec::new();
    while let Some(frame) = body.frame().await {
        frames.push(frame.unwrap().into_data().unwrap().to_vec());
    }
    frames
}

/// Decompresses gzip data with a decoder that supports only one gzip member, because some clients
/// have such a decoder.
fn decoded(compressed: &[u8]) -> String {
    let mut text = String::new();
    let mut decoder = flate2::bufread::GzDecoder::new(compressed);
    decoder.read_to_string(&mut text).unwrap();
    assert!(
        decoder.into_inner().is_empty(),
        "there is data after the gzip member"
    );
    text
}

#[tokio::test]
async fn large_responses_are_compressed_for_clients_that_accept_gzip() {
    let fixture = large();
    let table = ("accept", TABLE);
    let partial = (
        "accept",
        "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    );
    let big = format!("{BASE}/namespaces/big/inflightoperations/big");
    for (path, accept) in [
        (ALL, ("accept", "application/json")),
        (ALL, table),
        (ALL, partial),
        (&big, ("accept", "application/json")),
        (&big, table),
    ] {
        let plain = fixture.send(request("GET", path, &[accept])).await;
        assert!(!plain.headers().contains_key(CONTENT_ENCODING), "{path}");
        assert!(!plain.headers().contains_key(VARY), "{path}");
        let kind = plain.headers()[CONTENT_TYPE].clone();
        let plain = text(plain).await;

        let answer = fixture.send(request("GET", path, &[accept, GZIP])).await;
        assert_eq!(answer.headers()[CONTENT_ENCODING], "gzip", "{path}");
        assert_eq!(answer.headers()[VARY], "Accept-Encoding", "{path}");
        assert_eq!(answer.headers()[CONTENT_TYPE], kind, "{path}");
        assert!(!answer.headers().contains_key(CONTENT_LENGTH), "{path}");
        let compressed = frames(answer).await.concat();
        assert!(compressed.len() * 4 < plain.len(), "{path}");
        assert!(decoded(&compressed) == plain, "{path} {accept:?}");
    }
}

#[tokio::test]
async fn a_compressed_list_is_streamed() {
    let fixture = large();
    let plain = fixture.send(request("GET", ALL, &[])).await;
    let compressed = fixture.send(request("GET", ALL, &[GZIP])).await;
    let (plain, compressed) = (frames(plain).await, frames(compressed).await);
    // The server compresses each frame of the list into one frame. One further frame has the end of
    // the gzip data.
    assert_eq!(compressed.len(), plain.len() + 1);
}

#[tokio::test]
async fn small_responses_are_not_compressed() {
    let fixture = Fixture::filled();
    let one = format!("{BASE}/namespaces/a/inflightoperations/x");
    for path in [ALL, &one, "/apis", "/version", "/nowhere"] {
        let plain = fixture.send(request("GET", path, &[])).await;
        let answer = fixture.send(request("GET", path, &[GZIP])).await;
        assert!(!answer.headers().contains_key(CONTENT_ENCODING), "{path}");
        assert_eq!(answer.headers().get(VARY), plain.headers().get(VARY));
        assert_eq!(text(answer).await, text(plain).await, "{path}");
    }
}

#[tokio::test]
async fn a_client_gets_gzip_only_if_it_accepts_it() {
    let fixture = large();
    for (accept, compressed) in [
        ("gzip", true),
        ("GZIP", true),
        ("deflate, gzip", true),
        ("br;q=1.0,gzip;q=0.001", true),
        ("gzip; q=1", true),
        ("gzip;q=0", false),
        ("gzip; q=0.000", false),
        ("gzip;q=abc", false),
        ("gzip;q=", false),
        ("identity", false),
        ("deflate, br, zstd", false),
        ("xgzip", false),
        ("*", false),
        ("", false),
    ] {
        let asked = request("HEAD", ALL, &[("accept-encoding", accept)]);
        let answer = fixture.send(asked).await;
        assert_eq!(
            answer.headers().contains_key(CONTENT_ENCODING),
            compressed,
            "{accept:?}"
        );
    }
    let mut asked = request("HEAD", ALL, &[("accept-encoding", "br")]);
    asked
        .headers_mut()
        .append(ACCEPT_ENCODING, "gzip".parse().unwrap());
    let answer = fixture.send(asked).await;
    assert_eq!(answer.headers()[CONTENT_ENCODING], "gzip");
}

#[tokio::test]
async fn head_has_the_headers_of_the_compressed_response() {
    let fixture = large();
    for path in [ALL] {
        let (mut get, head) = (
            fixture.send(request("GET", path, &[GZIP])).await,
            fixture.send(request("HEAD", path, &[GZIP])).await,
        );
        let headers = get.headers_mut();
        for name in ["content-encoding", "content-type", "etag", "content-length"] {
            assert_eq!(headers.get(name), head.headers().get(name), "{path} {name}");
        }
        let vary = |headers: &HeaderMap| headers.get_all(VARY).iter().cloned().collect::<Vec<_>>();
        assert_eq!(vary(get.headers()), vary(head.headers()), "{path}");
        assert_eq!(get.headers()[CONTENT_ENCODING], "gzip", "{path}");
        assert_eq!(text(head).await, "");
    }
}

#[tokio::test]
async fn a_watch_is_never_compressed() {
    let fixture = large();
    for query in ["watch=1", "watch=1&resourceVersion=110"] {
        let asked = request("GET", &format!("{ALL}?{query}"), &[GZIP]);
        let answer = fixture.send(asked).await;
        assert!(!answer.headers().contains_key(CONTENT_ENCODING), "{query}");
        let mut body = answer.into_body();
        let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert!(first.starts_with(b"{\"type\":\"ADDED\""), "{query}");
    }
    let answer = fixture
        .send(request(
            "GET",
            &format!("{BASE}/watch/inflightoperations"),
            &[GZIP],
        ))
        .await;
    assert!(!answer.headers().contains_key(CONTENT_ENCODING));
}
