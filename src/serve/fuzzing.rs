//! Checks the guarantees of this module with one input. Input: bytes as a client may send them.
//! Output: a panic that names the violated guarantee, if there is one. It is compiled for the fuzz
//! targets in `fuzz/` and for the tests, which check the corpus of each target. It is never part of
//! a server.

mod answers;
mod requests;
mod world;

pub(super) use answers::refused;
pub(super) use world::{Known, World};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, HeaderValue, Method, Uri};

/// Largest input in bytes. A larger one slows the fuzzer down and finds no new cases. It is also
/// `-max_len` of the fuzz targets.
pub const LONGEST: usize = 2048;

/// Returns `input` as text, if it is valid UTF-8 and not too long.
fn text(input: &[u8]) -> Option<&str> {
    std::str::from_utf8(input)
        .ok()
        .filter(|text| text.len() <= LONGEST)
}

/// The option `labelSelector`.
pub fn label_selector(input: &[u8]) {
    if let Some(text) = text(input) {
        super::select::check_labels(text);
        World::with(|world| super::select::check_selector(world, text, ""));
    }
}

/// The option `fieldSelector`, followed by a label selector on the next line.
pub fn field_selector(input: &[u8]) {
    if let Some(text) = text(input) {
        let (fields, labels) = text.split_once('\n').unwrap_or((text, ""));
        super::select::check_fields(fields);
        World::with(|world| super::select::check_selector(world, labels, fields));
    }
}

/// The option `continue`. The first byte selects the page size, and if the rest is a token as
/// clients send it or its JSON content.
pub fn continue_token(input: &[u8]) {
    let Some((first, rest)) = input.split_first() else {
        return;
    };
    let Some(rest) = text(rest) else {
        return;
    };
    let encoded;
    let token = if first & 8 == 0 {
        encoded = URL_SAFE_NO_PAD.encode(rest);
        &encoded
    } else {
        rest
    };
    World::with(|world| super::list::check_token(world, token, usize::from(first % 8)));
}

/// A query, as in a URI.
pub fn query(input: &[u8]) {
    let Some(text) = text(input) else {
        return;
    };
    for path in [requests::ALL, "/livez"] {
        let Ok(uri) = format!("{path}?{text}").parse::<Uri>() else {
            return;
        };
        World::with(|world| {
            super::request::check_options(world, &uri);
            requests::check(world, &Method::GET, &uri, &HeaderMap::new());
        });
    }
}

/// `Accept` headers, one per line.
pub fn accept(input: &[u8]) {
    if input.len() > LONGEST {
        return;
    }
    let lines = input.split(|byte| *byte == b'\n');
    let values: Vec<HeaderValue> = lines
        .filter_map(|line| HeaderValue::from_bytes(line).ok())
        .collect();
    if let Some(first) = values.first() {
        super::negotiate::check(first);
    }
    World::with(|world| requests::check_discovery(world, &values));
}

/// A complete request: method and target on the first line, then one header per line.
pub fn request(input: &[u8]) {
    if input.len() > LONGEST {
        return;
    }
    if let Some((method, uri, headers)) = requests::read(input) {
        super::request::check(&method, &uri);
        World::with(|world| requests::check(world, &method, &uri, &headers));
    }
}
