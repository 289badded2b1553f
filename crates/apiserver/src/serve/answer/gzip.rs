//! Compresses large answers with gzip, if the client accepts gzip. The compressed answer is a
//! stream: each chunk of the answer is compressed and sent on its own.

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures::StreamExt as _;
use http::{HeaderMap, HeaderValue, header};
use hyper::body::Body as _;
use std::io::Write as _;
use tokio::sync::Semaphore;

/// Answers of at most this size in bytes are not compressed. The kube-apiserver has the same
/// threshold.
const THRESHOLD: u64 = 128 << 10;

/// Permits for answers that are being compressed. The state of each compression takes about 270 KB.
/// While all permits are in use, further answers are sent without compression.
static COMPRESSIONS: Semaphore = Semaphore::const_new(16);

/// Returns true if the client accepts gzip. As in the kube-apiserver, `gzip` with a weight, such as
/// `gzip;q=1`, counts as not accepted.
pub fn accepts_gzip(request: &HeaderMap) -> bool {
    let values = request.get_all(header::ACCEPT_ENCODING).iter();
    let mut codings = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    codings.any(|coding| coding.trim() == "gzip")
}

/// Compresses the body of a response. Returns the response unchanged if its body is small, or if
/// the server is already compressing 16 other answers.
pub fn compress(response: Response) -> Response {
    let size = response.body().size_hint();
    if size.upper().is_some_and(|most| most <= THRESHOLD) {
        return response;
    }
    let Ok(permit) = COMPRESSIONS.try_acquire() else {
        return response;
    };
    let (mut parts, body) = response.into_parts();
    let headers = &mut parts.headers;
    headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    headers.append(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    headers.remove(header::CONTENT_LENGTH);
    let encoder = Some(GzEncoder::new(Vec::new(), Compression::fast()));
    let chunks = futures::stream::try_unfold(
        (body.into_data_stream(), encoder, permit),
        async |(mut chunks, encoder, permit)| {
            let Some(mut encoder) = encoder else {
                return Ok::<_, axum::Error>(None);
            };
            let (compressed, encoder) = match chunks.next().await.transpose()? {
                Some(chunk) => (compress_chunk(&mut encoder, &chunk), Some(encoder)),
                None => (encoder.finish().map_err(axum::Error::new)?, None),
            };
            Ok(Some((Bytes::from(compressed), (chunks, encoder, permit))))
        },
    );
    Response::from_parts(parts, Body::from_stream(chunks))
}

/// Returns the compressed chunk. The client can decompress it without the chunks that follow.
fn compress_chunk(encoder: &mut GzEncoder<Vec<u8>>, chunk: &[u8]) -> Vec<u8> {
    encoder
        .write_all(chunk)
        .and_then(|()| encoder.flush())
        .expect("writing to a Vec cannot fail");
    std::mem::take(encoder.get_mut())
}
