//! What this room promises for every input, each promise checked on one. Enters: bytes
//! as a client may send them. Leaves: nothing, or a panic that names the promise that
//! was broken. Compiled for the fuzz targets in `fuzz/` and for the tests, which check
//! the corpus of each of them; never part of a server.

mod answers;
mod requests;
mod world;

pub(super) use answers::refused;
pub(super) use world::{Known, World};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, HeaderValue, Method, Uri};

/// The longest input that is looked at, in bytes: more makes a fuzzer slow and finds
/// nothing new. Also the fuzz targets' `-max_len`.
pub const LONGEST: usize = 2048;

/// `input` as text, if it is some and not too long.
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

/// The option `fieldSelector`, with a label selector after the first end of line.
pub fn field_selector(input: &[u8]) {
    if let Some(text) = text(input) {
        let (fields, labels) = text.split_once('\n').unwrap_or((text, ""));
        super::select::check_fields(fields);
        World::with(|world| super::select::check_selector(world, labels, fields));
    }
}

/// The option `continue`. The first byte says how many objects a page has, and whether
/// the rest is a token as clients send it or the JSON inside one.
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

/// A query, as it stands in the URI.
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

/// `Accept` headers, one a line.
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

/// A whole request: method and target on the first line, then a header a line.
pub fn request(input: &[u8]) {
    if input.len() > LONGEST {
        return;
    }
    if let Some((method, uri, headers)) = requests::read(input) {
        super::request::check(&method, &uri);
        World::with(|world| requests::check(world, &method, &uri, &headers));
    }
}
