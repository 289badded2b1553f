//! Decides which requests are answered. The page has the data of the user. Other web sites, other
//! programs and other users of the machine must not read it:
//!
//! - Only GET and HEAD are answered.
//! - The header `Host` must name this server. So a web site whose name resolves to 127.0.0.1 (DNS
//!   rebinding) gets no answer.
//! - A request that the browser sends for another web site is refused (`Origin`, `Sec-Fetch-Site`).
//! - Everything below `/api/` needs a cookie. A token in the printed address can be exchanged for
//!   the cookie once.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{COOKIE, HOST, HeaderValue, ORIGIN};
use http::{HeaderMap, Method, StatusCode, request};
use ring::digest::{SHA256, digest};
use ring::rand::{self, SystemRandom};
use std::sync::{Mutex, PoisonError};

/// The header with the token of the printed address.
const TOKEN_HEADER: &str = "x-ifo-token";

/// The status code and the reason of a refused request.
pub(super) type Refusal = (StatusCode, String);

pub(super) fn refuse<T>(code: StatusCode, why: &str) -> Result<T, Refusal> {
    Err((code, why.to_owned()))
}

/// Checks requests.
pub(super) struct Guard {
    port: u16,
    /// The token in the printed address. None after its use.
    token: Mutex<Option<String>>,
    session: String,
}

impl Guard {
    /// Creates a guard for the server at this port of 127.0.0.1, with a new session secret.
    pub(super) fn new(port: u16) -> Self {
        Self {
            port,
            session: secret(),
            token: Mutex::new(None),
        }
    }

    /// Returns an address with a new token. The token of an earlier address becomes invalid.
    pub(super) fn new_address(&self) -> String {
        let token = secret();
        let address = format!("http://127.0.0.1:{}/#token={token}", self.port);
        *self.lock() = Some(token);
        address
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        self.token.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses requests that the page cannot have sent.
    pub(super) fn check(&self, request: &request::Parts) -> Result<(), Refusal> {
        if ![Method::GET, Method::HEAD].contains(&request.method) {
            let why = "only GET and HEAD are allowed";
            return refuse(StatusCode::METHOD_NOT_ALLOWED, why);
        }
        let [host] = values(&request.headers, HOST.as_str())[..] else {
            return refuse(StatusCode::BAD_REQUEST, "the request needs one Host header");
        };
        let names = ["127.0.0.1", "localhost"].map(|it| format!("{it}:{}", self.port));
        if request.uri.authority().is_some() || !names.iter().any(|it| it == host) {
            let why = "the Host header names another server";
            return refuse(StatusCode::MISDIRECTED_REQUEST, why);
        }
        let own = format!("http://{host}");
        let is_own = |header: &str, allowed: &[&str]| {
            let mut values = values(&request.headers, header).into_iter();
            values.all(|it| allowed.contains(&it))
        };
        if !is_own(ORIGIN.as_str(), &[&own]) || !is_own("sec-fetch-site", &["same-origin", "none"])
        {
            let why = "the request comes from another web site";
            return refuse(StatusCode::FORBIDDEN, why);
        }
        Ok(())
    }

    /// Exchanges the token of a request for the cookie. Returns the value of `Set-Cookie`.
    pub(super) fn sign_in(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let [token] = values(headers, TOKEN_HEADER)[..] else {
            return None;
        };
        let mut expected = self.lock();
        if !is_same(token, expected.as_ref()?) {
            return None;
        }
        *expected = None;
        let (name, session) = (self.cookie_name(), &self.session);
        let cookie = format!("{name}{session}; HttpOnly; SameSite=Strict; Path=/api/");
        HeaderValue::try_from(cookie).ok()
    }

    /// Refuses requests without the cookie.
    pub(super) fn check_session(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let name = self.cookie_name();
        let cookies = values(headers, COOKIE.as_str()).into_iter();
        let cookies = cookies.flat_map(|it| it.split(';'));
        let mut sessions = cookies.filter_map(|it| it.trim().strip_prefix(&name));
        if sessions.any(|it| is_same(it, &self.session)) {
            return Ok(());
        }
        let how = "open the address that `kubectl ifo ui` has printed last";
        refuse(StatusCode::UNAUTHORIZED, how)
    }

    /// Returns the name of the cookie and `=`. Browsers share cookies between all ports of
    /// 127.0.0.1, so the name contains the port.
    fn cookie_name(&self) -> String {
        format!("ifo-session-{}=", self.port)
    }
}

/// Compares the hashes of two secrets. So the duration of the comparison reveals nothing about the
/// secrets.
fn is_same(given: &str, expected: &str) -> bool {
    let hash = |text: &str| digest(&SHA256, text.as_bytes());
    hash(given).as_ref() == hash(expected).as_ref()
}

/// Returns the values of a header. A value that is not text is empty.
fn values<'a>(headers: &'a HeaderMap, name: &str) -> Vec<&'a str> {
    let values = headers.get_all(name).into_iter();
    values.map(|it| it.to_str().unwrap_or_default()).collect()
}

/// Returns a new secret of 256 random bits.
fn secret() -> String {
    let random = rand::generate::<[u8; 32]>(&SystemRandom::new());
    let random = random.expect("the system has random numbers");
    URL_SAFE_NO_PAD.encode(random.expose())
}
