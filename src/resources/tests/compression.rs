//! Test of the compression of large answers. The comparison with a custom resource in
//! `tests/e2e/compare_with_custom_resource` proves which answers are compressed.

use super::*;
use std::io::Read as _;

const ALL: &str = "/apis/live.ifo.kubevirt.io/v1alpha1/inflightoperations";
const GZIP: (&str, &str) = ("accept-encoding", "gzip");

/// Creates a server with many operations, so that their list is large enough for compression.
fn large() -> Fixture {
    let mut fixture = Fixture::bounded(16 << 20);
    for number in 0..1_000 {
        fixture.put(101 + number, "n", &format!("o{number:04}"), |_| {});
    }
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
async fn a_compressed_list_is_streamed() {
    let fixture = large();
    let plain = fixture.send(request("GET", ALL, &[])).await;
    let compressed = fixture.send(request("GET", ALL, &[GZIP])).await;
    let (plain, compressed) = (frames(plain).await, frames(compressed).await);
    // The server compresses each frame of the list into one frame. One further frame has the end of
    // the gzip data.
    assert_eq!(compressed.len(), plain.len() + 1);
    let text = String::from_utf8(plain.concat()).unwrap();
    assert_eq!(decoded(&compressed.concat()), text);
}
