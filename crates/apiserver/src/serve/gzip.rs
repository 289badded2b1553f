//! Compresses large answers with gzip. Input: the header `Accept-Encoding` of a request, and the
//! answer to this request. Output: the answer, which is compressed if it is large and the client
//! accepts gzip. A body is compressed chunk by chunk while it is sent. A chunk of 64 KiB becomes
//! about 8 KiB.
//!
//! A compressor takes 270 KB of memory. If each answer kept its own compressor, slow clients would
//! cause a high memory usage. So each chunk is compressed independently, and only a checksum is
//! kept between two chunks. The independent compression makes the chunks 5 % larger.

use axum::body::Body;
use axum::response::Response;
use bytes::{Buf as _, Bytes};
use flate2::{Compress, Compression, Crc, FlushCompress};
use http::{HeaderMap, HeaderValue, header};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Frame};
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, ready};

/// Size in bytes above which answers are compressed. It is the kube-apiserver's constant
/// `defaultGzipThresholdBytes`.
const THRESHOLD: usize = 128 << 10;

/// Largest number of bytes that are compressed together. Longer data is compressed in several
/// parts. A chunk of a list (64 KiB) usually fits into this size. Deflate only finds repetitions
/// within 32 KiB. So with larger chunks, the compressed answer would hardly be smaller.
const CHUNK: usize = 128 << 10;

/// The fastest compression level. It is the kube-apiserver's constant
/// `defaultGzipContentEncodingLevel`.
///
/// With this level, a list of 10,000 objects shrinks from 17.3 MB to 2.5 MB in 20 ms. With the
/// next level, the list shrinks to 2.0 MB in 28 ms. The next level would be faster for the client
/// only on a connection with less than 600 Mbit/s.
const FAST_LEVEL: Compression = Compression::new(1);

/// The compression level for documents that are compressed once and sent often.
const BEST_LEVEL: Compression = Compression::new(9);

/// The header of a gzip member (RFC 1952, section 2.3): method deflate, no file name, no time,
/// unknown operating system.
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];

/// An empty last deflate block with fixed codes (RFC 1951, section 3.2.3). This block can be
/// appended as whole bytes, because all earlier blocks end at byte boundaries.
const LAST_BLOCK: [u8; 2] = [3, 0];

/// Returns true if `Accept-Encoding` contains `gzip`, without a weight (the parameter `q`) or with
/// a weight above 0. A weight that is not a number counts as 0. As in the kube-apiserver, `*` does
/// not count.
pub fn accepts_gzip(request: &HeaderMap) -> bool {
    request
        .get_all(header::ACCEPT_ENCODING)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|coding| {
            let mut parts = coding.split(';').map(str::trim);
            let named = parts
                .next()
                .is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
            let weight = parts.find_map(|parameter| {
                let (name, value) = parameter.split_once('=')?;
                name.trim().eq_ignore_ascii_case("q").then(|| value.trim())
            });
            let accepted = |weight: &str| weight.parse::<f32>().is_ok_and(|weight| weight > 0.0);
            named && weight.is_none_or(accepted)
        })
}

/// Compresses the answer if its body is larger than [`THRESHOLD`] and is not compressed yet. If the
/// size of the body is unknown, this function waits until it has received more than [`THRESHOLD`]
/// bytes or the whole body. So the caller must not pass the answer to a watch: the events of a
/// watch must be sent at once.
pub async fn compress(response: Response) -> Response {
    let size = response.body().size_hint();
    let is_small = size.upper().is_some_and(|most| most <= THRESHOLD as u64);
    if is_small || response.headers().contains_key(header::CONTENT_ENCODING) {
        return response;
    }
    let (mut parts, mut body) = response.into_parts();
    let mut received = VecDeque::new();
    let mut bytes = 0;
    while bytes <= THRESHOLD {
        match body.frame().await {
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    bytes += data.len();
                    received.push_back(data);
                }
            }
            Some(Err(error)) => {
                // The client gets the data that arrived before the error, and then the error.
                let broken = futures::stream::once(std::future::ready(Err(error)));
                let stream = futures::stream::iter(received.into_iter().map(Ok));
                let stream = futures::StreamExt::chain(stream, broken);
                return Response::from_parts(parts, Body::from_stream(stream));
            }
            None => {
                let stream = futures::stream::iter(received.into_iter().map(Ok::<_, axum::Error>));
                return Response::from_parts(parts, Body::from_stream(stream));
            }
        }
    }
    let mut gzip = Gzip {
        compressed: VecDeque::new(),
        uncompressed: Bytes::new(),
        rest: Some(body),
        member: Member::new(),
    };
    // The received data is compressed now, so that it takes less memory until it is sent.
    for data in received {
        let mut out = Vec::new();
        for chunk in data.chunks(CHUNK) {
            gzip.member.write_chunk(chunk, FAST_LEVEL, &mut out);
        }
        gzip.compressed.push_back(out.into());
    }
    set_headers(&mut parts.headers);
    parts.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(parts, Body::new(gzip))
}

/// Sets the headers of a compressed answer.
pub fn set_headers(headers: &mut HeaderMap) {
    headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    headers.append(header::VARY, HeaderValue::from_static("Accept-Encoding"));
}

/// Compresses `data` with the best level.
pub fn compress_bytes(data: &[u8]) -> Bytes {
    let mut member = Member::new();
    let mut out = Vec::new();
    member.write_chunk(data, BEST_LEVEL, &mut out);
    member.write_end(&mut out);
    out.into()
}

/// A body that is compressed while it is sent.
struct Gzip {
    /// Compressed data that is sent first.
    compressed: VecDeque<Bytes>,
    /// Data that has arrived from `rest` and is not compressed yet.
    uncompressed: Bytes,
    /// The rest of the original body. None after the end of the original body, or after an error.
    rest: Option<Body>,
    member: Member,
}

impl hyper::body::Body for Gzip {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        if let Some(data) = this.compressed.pop_front() {
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        let mut out = Vec::new();
        while this.uncompressed.is_empty() {
            let Some(rest) = &mut this.rest else {
                return Poll::Ready(None);
            };
            match ready!(Pin::new(rest).poll_frame(context)) {
                Some(Ok(frame)) => this.uncompressed = frame.into_data().unwrap_or_default(),
                Some(Err(error)) => {
                    this.rest = None;
                    return Poll::Ready(Some(Err(error)));
                }
                None => {
                    this.rest = None;
                    this.member.write_end(&mut out);
                    return Poll::Ready(Some(Ok(Frame::data(out.into()))));
                }
            }
        }
        let length = this.uncompressed.len().min(CHUNK);
        this.member
            .write_chunk(&this.uncompressed[..length], FAST_LEVEL, &mut out);
        this.uncompressed.advance(length);
        Poll::Ready(Some(Ok(Frame::data(out.into()))))
    }
}

/// A gzip member (RFC 1952) that is being written: a header, deflate blocks, a checksum and the
/// length of the uncompressed data.
struct Member {
    has_header: bool,
    crc: Crc,
}

impl Member {
    fn new() -> Self {
        Self {
            has_header: false,
            crc: Crc::new(),
        }
    }

    /// Writes `data` as deflate blocks. The first call writes the header before the blocks.
    fn write_chunk(&mut self, data: &[u8], level: Compression, out: &mut Vec<u8>) {
        if !self.has_header {
            out.extend_from_slice(&HEADER);
            self.has_header = true;
        }
        self.crc.update(data);
        deflate(data, level, out);
    }

    /// Writes the last block, the checksum and the length.
    fn write_end(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(&LAST_BLOCK);
        out.extend_from_slice(&self.crc.sum().to_le_bytes());
        // The format requires the length modulo 2^32.
        out.extend_from_slice(&self.crc.amount().to_le_bytes());
    }
}

/// Idle compressors of level [`FAST_LEVEL`] for reuse. Each compressor takes 270 KB of memory.
static IDLE_COMPRESSORS: Mutex<Vec<Compress>> = Mutex::new(Vec::new());

/// Largest number of idle compressors. Further compressors are dropped when they become idle. The
/// server has at most four threads for requests, and each thread uses at most one compressor at a
/// time.
const MAX_IDLE_COMPRESSORS: usize = 4;

/// Writes `data` as deflate blocks. The blocks do not refer to the data of earlier calls. The last
/// block ends at a byte boundary.
fn deflate(data: &[u8], level: Compression, out: &mut Vec<u8>) {
    let idle = || {
        IDLE_COMPRESSORS
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    };
    let mut compress = if level == FAST_LEVEL {
        idle().pop()
    } else {
        None
    }
    .unwrap_or_else(|| Compress::new(level, false));
    out.reserve(data.len() / 4);
    loop {
        let done = usize::try_from(compress.total_in()).unwrap_or(usize::MAX);
        let remaining = data.get(done..).unwrap_or_default();
        compress
            .compress_vec(remaining, out, FlushCompress::Sync)
            .expect("compression fails only after the end of a stream, which is never written");
        // If `out` has free capacity, the compressor has written all its output.
        if compress.total_in() >= data.len() as u64 && out.len() < out.capacity() {
            break;
        }
        out.reserve(data.len() / 4 + 64);
    }
    if level == FAST_LEVEL {
        compress.reset();
        let mut idle = idle();
        if idle.len() < MAX_IDLE_COMPRESSORS {
            idle.push(compress);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::header::CONTENT_ENCODING;

    #[tokio::test]
    async fn the_threshold_is_that_of_the_kube_apiserver() {
        for (size, compressed) in [(128 << 10, false), ((128 << 10) + 1, true)] {
            let bytes = vec![b'x'; size];
            let pieces: Vec<_> = bytes.chunks(10_000).map(<[u8]>::to_vec).collect();
            let streamed = futures::stream::iter(pieces.into_iter().map(Ok::<_, std::io::Error>));
            for body in [Body::from(bytes), Body::from_stream(streamed)] {
                let answer = compress(Response::new(body)).await;
                assert_eq!(
                    answer.headers().contains_key(CONTENT_ENCODING),
                    compressed,
                    "{size}"
                );
                let body = answer.into_body().collect().await.unwrap().to_bytes();
                assert_eq!(body.len() == size, !compressed);
            }
        }
    }

    #[tokio::test]
    async fn a_body_error_reaches_the_client() {
        for pieces in [1, 10] {
            let whole = std::iter::repeat_with(|| Ok(vec![b'x'; 64 << 10])).take(pieces);
            let stream = whole.chain([Err(std::io::Error::other("broken"))]);
            let body = Body::from_stream(futures::stream::iter(stream));
            let mut body = compress(Response::new(body)).await.into_body();
            let mut broken = false;
            while let Some(frame) = body.frame().await {
                broken = frame.is_err();
            }
            assert!(broken, "{pieces}");
        }
    }
}
