//! Compression. Input: the header `Accept-Encoding` of a request, and its answer. Output: the
//! answer, compressed with gzip if it is large and the client accepts gzip. A streamed body stays
//! streamed: 64 KiB become some 8 KiB.
//!
//! Chunks of a body are compressed independently, and only a checksum is kept between two chunks.
//! So a client that reads slowly does not hold a compressor of 270 KB. This costs 5 % more bytes.

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

/// Answers above this size in bytes are compressed (`defaultGzipThresholdBytes` of the
/// kube-apiserver).
const MIN_BODY: usize = 128 << 10;

/// Largest number of bytes that are compressed together: a chunk of a list and the item that
/// exceeds it. Independent chunks cost little, because this is twice the distance of a match.
const CHUNK: usize = 128 << 10;

/// The fastest level (`defaultGzipContentEncodingLevel` of the kube-apiserver). 10,000 operations
/// take 20 ms, and 17.3 MB become 2.5 MB. The next level takes 28 ms for 2.0 MB. It is only faster
/// on connections below 600 Mbit/s.
const FAST_LEVEL: Compression = Compression::new(1);

/// Level for documents that are compressed once and sent often.
const BEST_LEVEL: Compression = Compression::new(9);

/// The header of a member: deflate, without a name or a time, unknown system (RFC 1952, 2.3).
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];

/// An empty last block with fixed codes (RFC 1951, 3.2.3). The blocks before it end at byte
/// boundaries.
const LAST_BLOCK: [u8; 2] = [3, 0];

/// Returns true if the client accepts gzip by this name and with a weight above 0, as upstream.
pub fn accepted(request: &HeaderMap) -> bool {
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
            let refused = |weight: &str| weight.parse::<f32>().is_ok_and(|weight| weight <= 0.0);
            named && !weight.is_some_and(refused)
        })
}

/// Compresses the answer if it is larger than the threshold. Watches are not compressed, because
/// their events must not wait for each other.
pub async fn compress(response: Response) -> Response {
    let size = response.body().size_hint();
    let small = size.upper().is_some_and(|most| most <= MIN_BODY as u64);
    if small || response.headers().contains_key(header::CONTENT_ENCODING) {
        return response;
    }
    let (mut parts, mut body) = response.into_parts();
    let mut ready = VecDeque::new();
    let mut bytes = 0;
    while bytes <= MIN_BODY {
        match body.frame().await {
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    bytes += data.len();
                    ready.push_back(data);
                }
            }
            Some(Err(error)) => {
                // The compressed body fails where the original body fails.
                let broken = futures::stream::once(std::future::ready(Err(error)));
                let stream = futures::stream::iter(ready.into_iter().map(Ok));
                let stream = futures::StreamExt::chain(stream, broken);
                return Response::from_parts(parts, Body::from_stream(stream));
            }
            None => {
                let stream = futures::stream::iter(ready.into_iter().map(Ok::<_, axum::Error>));
                return Response::from_parts(parts, Body::from_stream(stream));
            }
        }
    }
    let mut compressed = Gzip {
        ready: VecDeque::new(),
        left: Bytes::new(),
        rest: Some(body),
        member: Member::begin(),
    };
    // Data that waits to be sent is compressed.
    for data in ready {
        let mut out = Vec::new();
        for piece in data.chunks(CHUNK) {
            compressed.member.piece(piece, FAST_LEVEL, &mut out);
        }
        compressed.ready.push_back(out.into());
    }
    mark(&mut parts.headers);
    parts.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(parts, Body::new(compressed))
}

/// The headers of a compressed answer.
pub fn mark(headers: &mut HeaderMap) {
    headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    headers.append(header::VARY, HeaderValue::from_static("Accept-Encoding"));
}

/// Compresses `data` at once, with the best level.
pub fn whole(data: &[u8]) -> Bytes {
    let mut member = Member::begin();
    let mut out = Vec::new();
    member.piece(data, BEST_LEVEL, &mut out);
    member.end(&mut out);
    out.into()
}

/// A body that is compressed as it is read.
struct Gzip {
    /// Compressed data.
    ready: VecDeque<Bytes>,
    /// Data that has arrived and is not compressed yet.
    left: Bytes,
    /// The rest of the body. None at its end.
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
        if let Some(data) = this.ready.pop_front() {
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        let mut out = Vec::new();
        while this.left.is_empty() {
            let Some(rest) = &mut this.rest else {
                return Poll::Ready(None);
            };
            match ready!(Pin::new(rest).poll_frame(context)) {
                Some(Ok(frame)) => this.left = frame.into_data().unwrap_or_default(),
                Some(Err(error)) => {
                    this.rest = None;
                    return Poll::Ready(Some(Err(error)));
                }
                None => {
                    this.rest = None;
                    this.member.end(&mut out);
                    return Poll::Ready(Some(Ok(Frame::data(out.into()))));
                }
            }
        }
        let piece = this.left.len().min(CHUNK);
        this.member.piece(&this.left[..piece], FAST_LEVEL, &mut out);
        this.left.advance(piece);
        Poll::Ready(Some(Ok(Frame::data(out.into()))))
    }
}

/// A gzip member that is being written. Each piece consists of its own deflate blocks.
struct Member {
    begun: bool,
    crc: Crc,
}

impl Member {
    fn begin() -> Self {
        Self {
            begun: false,
            crc: Crc::new(),
        }
    }

    /// Writes the blocks of `data`.
    fn piece(&mut self, data: &[u8], level: Compression, out: &mut Vec<u8>) {
        if !self.begun {
            out.extend_from_slice(&HEADER);
            self.begun = true;
        }
        self.crc.update(data);
        deflate(data, level, out);
    }

    /// Writes the end: the last block, the checksum and the length.
    fn end(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(&LAST_BLOCK);
        out.extend_from_slice(&self.crc.sum().to_le_bytes());
        // Modulo 2^32, as the format demands.
        out.extend_from_slice(&self.crc.amount().to_le_bytes());
    }
}

/// Idle compressors of 270 KB each. A piece is compressed without a pause, so there are not more
/// than threads. After a burst, some of them are dropped.
static IDLE_COMPRESSORS: Mutex<Vec<Compress>> = Mutex::new(Vec::new());
const MAX_IDLE_COMPRESSORS: usize = 4;

/// Writes `data` as deflate blocks that do not refer to earlier data and end at a byte boundary.
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
        let left = data.get(done..).unwrap_or_default();
        compress
            .compress_vec(left, out, FlushCompress::Sync)
            .expect("a compressor that was neither finished nor misused takes any bytes");
        // If there is room left, the compressor holds nothing back.
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
