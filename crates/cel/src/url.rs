//! URLs as CEL values, such as `url('https://example.com/a?b=c')`. As in Kubernetes, the parser
//! follows Go's package `net/url`.
//!
//! This module does not use the crate `url`, which implements the WHATWG standard. That standard
//! normalizes hosts, ports and paths, and accepts other texts than Go.

use std::collections::BTreeMap;
use std::fmt;

use super::ip_address::{AddressFault, parse_address};
use super::strings::is_printable;

/// Maximum number of `&`-separated parameters in a query. As in Go, a query with more parameters is
/// treated like an empty query.
const MAX_QUERY_PARAMETERS: usize = 10_000;

/// The part of a URL that is escaped or unescaped.
#[derive(Clone, Copy)]
enum UrlPart {
    UserInfo,
    Host,
    /// The zone of an IPv6 address, such as `%25eth0`.
    Zone,
    Path,
    Query,
    Fragment,
}

/// Why Go refuses a URL.
enum Reason<'t> {
    Fixed(&'static str),
    /// An invalid `%` escape. It has at most 3 bytes.
    Escape(&'t [u8]),
    /// An ASCII character that a host cannot contain.
    HostCharacter(u8),
    /// An invalid port with its colon.
    Port(&'t str),
    /// A host in brackets that is not an IP address.
    Address(Vec<u8>, AddressFault),
}

impl Reason<'_> {
    /// Returns Go's text of the reason, with the quoted parts of the URL.
    fn text(&self) -> String {
        match self {
            Self::Fixed(text) => (*text).to_owned(),
            Self::Escape(escape) => format!("invalid URL escape {}", quote(escape)),
            Self::HostCharacter(byte) => {
                format!("invalid character {} in host name", quote(&[*byte]))
            }
            Self::Port(port) => format!("invalid port {} after host", quote(port.as_bytes())),
            Self::Address(host, fault) => {
                let host = host.as_slice();
                let reason = fault.reason;
                let at = match host.get(fault.at.clone()) {
                    None | Some([]) => String::new(),
                    Some(at) => format!(" (at {})", quote(at)),
                };
                format!("invalid host: ParseAddr({}): {reason}{at}", quote(host))
            }
        }
    }
}

/// Quotes a text like Go's `strconv.Quote`. Bytes that are not UTF-8 are written as `\x..`.
fn quote(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len() + 2);
    out.push('"');
    for chunk in bytes.utf8_chunks() {
        for char in chunk.valid().chars() {
            let (prefix, digits) = match char {
                '"' => ("\\\"", 0),
                '\\' => ("\\\\", 0),
                '\u{7}' => ("\\a", 0),
                '\u{8}' => ("\\b", 0),
                '\u{c}' => ("\\f", 0),
                '\n' => ("\\n", 0),
                '\r' => ("\\r", 0),
                '\t' => ("\\t", 0),
                '\u{b}' => ("\\v", 0),
                ' '..='~' => {
                    out.push(char);
                    continue;
                }
                '\0'..='\u{7f}' => ("\\x", 2),
                _ if is_printable(char) => {
                    out.push(char);
                    continue;
                }
                '\0'..='\u{ffff}' => ("\\u", 4),
                _ => ("\\U", 8),
            };
            out.push_str(prefix);
            push_hex(&mut out, u32::from(char), digits);
        }
        for byte in chunk.invalid() {
            out.push_str("\\x");
            push_hex(&mut out, u32::from(*byte), 2);
        }
    }
    out.push('"');
    out
}

/// Writes the last `digits` hexadecimal digits of a number in lower case.
fn push_hex(out: &mut String, number: u32, digits: u32) {
    for place in (0..digits).rev() {
        let digit = char::from_digit(number >> (4 * place) & 15, 16);
        out.push(digit.unwrap_or_default());
    }
}

/// Returns true if Go writes `byte` in this part of a URL as it is, and not as a `%` escape.
fn is_plain(byte: u8, part: UrlPart) -> bool {
    // These are patterns and not byte strings, because a search in a byte string takes three times
    // as long.
    let plain_in_part = match part {
        UrlPart::UserInfo => matches!(byte, b'$' | b'&' | b'+' | b',' | b';' | b'='),
        UrlPart::Host | UrlPart::Zone => {
            is_sub_delimiter(byte) || matches!(byte, b':' | b'[' | b']' | b'<' | b'>' | b'"')
        }
        UrlPart::Path => {
            matches!(
                byte,
                b'$' | b'&' | b'+' | b',' | b'/' | b':' | b';' | b'=' | b'@'
            )
        }
        UrlPart::Query => false,
        UrlPart::Fragment => {
            (is_sub_delimiter(byte) && byte != b'\'') || matches!(byte, b'/' | b':' | b'?' | b'@')
        }
    };
    plain_in_part || byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~')
}

/// Returns true for a `sub-delims` character of RFC 3986.
fn is_sub_delimiter(byte: u8) -> bool {
    matches!(
        byte,
        b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'='
    )
}

fn escape(bytes: &[u8], part: UrlPart) -> String {
    let mut out = String::with_capacity(bytes.len());
    for byte in bytes {
        if is_plain(*byte, part) {
            out.push(char::from(*byte));
        } else {
            out.push('%');
            for digit in [byte >> 4, byte & 15] {
                let digit = char::from_digit(u32::from(digit), 16).unwrap_or_default();
                out.push(digit.to_ascii_uppercase());
            }
        }
    }
    out
}

/// Parses the `%` escape at the start of `bytes`: `%41` gives the byte 0x41. Returns None if two
/// hexadecimal digits do not follow the `%`.
fn escaped_byte(bytes: &[u8]) -> Option<u8> {
    let digit = |at: usize| char::from(*bytes.get(at)?).to_digit(16);
    u8::try_from(digit(1)? << 4 | digit(2)?).ok()
}

/// Decodes the `%` escapes. The result can be invalid UTF-8. As in Go, two things are errors in
/// a host or a zone, but not in the other parts of a URL:
///
/// - an escape that is not allowed, such as `%41` in a host
/// - an ASCII character that must be escaped, such as a space
fn unescape(text: &str, part: UrlPart) -> Result<Vec<u8>, Reason<'_>> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        if *first != b'%' {
            if matches!(part, UrlPart::Host | UrlPart::Zone)
                && first.is_ascii()
                && !is_plain(*first, part)
            {
                return Err(Reason::HostCharacter(*first));
            }
            out.push(match (first, part) {
                (b'+', UrlPart::Query) => b' ',
                _ => *first,
            });
            rest = after;
            continue;
        }
        let (escape, after) = rest.split_at_checked(3).unwrap_or((rest, &[]));
        let decoded = escaped_byte(escape).ok_or(Reason::Escape(escape))?;
        let allowed = match part {
            UrlPart::Host => !decoded.is_ascii() || decoded == b'%',
            UrlPart::Zone => decoded == b'%' || decoded == b' ' || is_plain(decoded, UrlPart::Host),
            _ => true,
        };
        if !allowed {
            return Err(Reason::Escape(escape));
        }
        out.push(decoded);
        rest = after;
    }
    Ok(out)
}

/// Returns the escaped form of a path or fragment: `text` itself, or a new escaped form if `text`
/// contains characters that must be escaped.
fn escaped_form(text: &str, part: UrlPart) -> Result<String, Reason<'_>> {
    let decoded = unescape(text, part)?;
    let valid = |byte: u8| {
        is_plain(byte, part)
            || is_sub_delimiter(byte)
            || matches!(byte, b':' | b'@' | b'[' | b']' | b'%')
    };
    Ok(if text.bytes().all(valid) {
        text.to_owned()
    } else {
        escape(&decoded, part)
    })
}

/// Converts decoded bytes to text. Each byte that is not UTF-8 becomes U+FFFD. In Kubernetes, these
/// bytes stay in the string, but the functions of CEL treat each of them as one U+FFFD. So the
/// functions return the same results here.
fn to_text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| {
        let mut out = String::new();
        for chunk in error.as_bytes().utf8_chunks() {
            out.push_str(chunk.valid());
            out.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
        }
        out
    })
}

/// Returns the scheme of a URL, and the text after the colon. If the URL has no scheme, returns an
/// empty scheme and the whole URL.
fn split_scheme(text: &str) -> Result<(&str, &str), Reason<'_>> {
    let is_letter = |byte: u8| byte.is_ascii_alphabetic();
    let end = text
        .bytes()
        .position(|byte| !is_letter(byte) && !byte.is_ascii_digit() && !b"+-.".contains(&byte));
    match end {
        Some(0) if text.starts_with(':') => Err(Reason::Fixed("missing protocol scheme")),
        Some(end) if text.starts_with(|first: char| first.is_ascii_alphabetic()) => {
            match text.split_at_checked(end) {
                Some((scheme, rest)) if rest.starts_with(':') => {
                    Ok((scheme, rest.get(1..).unwrap_or_default()))
                }
                _ => Ok(("", text)),
            }
        }
        _ => Ok(("", text)),
    }
}

/// Returns true for an empty text, and for a colon followed by any number of digits, even none.
fn is_optional_port(text: &str) -> bool {
    text.is_empty()
        || text
            .strip_prefix(':')
            .is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Parses a host with an optional port, and decodes its `%` escapes.
fn parse_host<'t>(scheme: &str, text: &'t str) -> Result<Vec<u8>, Reason<'t>> {
    match text.rfind('[') {
        Some(0) => return parse_bracketed_host(text),
        Some(_) => return Err(Reason::Fixed("invalid IP-literal")),
        None => {}
    }
    // An `http` or `https` URL has one host, so the port begins at the first colon. Other URLs,
    // such as those of PostgreSQL, can have several hosts with ports. For these URLs, only the last
    // port is checked.
    let one_host = scheme == "http" || scheme == "https";
    let colon = if one_host {
        text.find(':')
    } else {
        text.rfind(':')
    };
    if let Some(port) = colon.and_then(|colon| text.get(colon..))
        && !is_optional_port(port)
    {
        return Err(Reason::Port(port));
    }
    unescape(text, UrlPart::Host)
}

/// Parses an IPv6 address in brackets with an optional port.
fn parse_bracketed_host(text: &str) -> Result<Vec<u8>, Reason<'_>> {
    let (address, port) = text
        .get(1..)
        .and_then(|text| text.rsplit_once(']'))
        .ok_or(Reason::Fixed("missing ']' in host"))?;
    if !is_optional_port(port) {
        return Err(Reason::Port(port));
    }
    let zone_start = address.find("%25").unwrap_or(address.len());
    let (address, zone) = address
        .split_at_checked(zone_start)
        .unwrap_or((address, ""));
    let mut host = unescape(address, UrlPart::Host)?;
    host.extend(unescape(zone, UrlPart::Zone)?);
    match parse_address(&host) {
        Ok(parsed) if parsed.address.is_ipv4() => Err(Reason::Fixed("invalid IP-literal")),
        Ok(_) => Ok([b"[", host.as_slice(), b"]", port.as_bytes()].concat()),
        Err(fault) => Err(Reason::Address(host, fault)),
    }
}

/// Checks the user name with the optional password, and returns their escaped form.
fn parse_user_info(text: &str) -> Result<String, Reason<'_>> {
    let valid = |byte: u8| {
        byte.is_ascii_alphanumeric()
            || is_sub_delimiter(byte)
            || matches!(byte, b'-' | b'.' | b'_' | b':' | b'~' | b'%' | b'@')
    };
    if !text.bytes().all(valid) {
        return Err(Reason::Fixed("net/url: invalid userinfo"));
    }
    let escaped =
        |text| unescape(text, UrlPart::UserInfo).map(|text| escape(&text, UrlPart::UserInfo));
    match text.split_once(':') {
        None => escaped(text),
        Some((name, password)) => Ok(format!("{}:{}", escaped(name)?, escaped(password)?)),
    }
}

/// How a URL is parsed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ParseMode {
    /// Like Go's `url.ParseRequestURI`, which does not accept relative URLs. A fragment is treated
    /// as a part of the path or query.
    Request,
    /// Like Go's `url.Parse`, for the text before the fragment. The difference from `Request` is
    /// that a URL without a scheme can have a host, such as `//example.com/path`. Go's `url.Parse`
    /// also accepts relative URLs. This mode refuses them, because [`Url::parse`] refuses every
    /// text that is not valid as a `Request`.
    Reference,
}

/// The components of a URL without its fragment.
#[derive(Default)]
struct Components {
    scheme: String,
    /// The text between the scheme and the query, if this text does not start with `/`. An example
    /// is the address after `mailto:`.
    opaque: String,
    /// The escaped user name and password.
    user_info: Option<String>,
    /// The decoded host with the port.
    host: Vec<u8>,
    escaped_path: String,
    query: String,
    /// True if the URL ends with `?` and has no query.
    ends_with_question_mark: bool,
    /// True if the URL has a scheme, and no `//` between the scheme and the path.
    omits_host: bool,
}

impl Components {
    fn parse(text: &str, mode: ParseMode) -> Result<Self, Reason<'_>> {
        if text.bytes().any(|byte| byte.is_ascii_control()) {
            let reason = "net/url: invalid control character in URL";
            return Err(Reason::Fixed(reason));
        }
        if text.is_empty() {
            return Err(Reason::Fixed("empty url"));
        }
        let mut components = Self::default();
        if text == "*" {
            text.clone_into(&mut components.escaped_path);
            return Ok(components);
        }
        let (scheme, rest) = split_scheme(text)?;
        components.scheme = scheme.to_ascii_lowercase();
        let (rest, query) = match rest.split_once('?') {
            Some((rest, query)) => (rest, Some(query)),
            None => (rest, None),
        };
        components.ends_with_question_mark = query == Some("");
        query.unwrap_or_default().clone_into(&mut components.query);
        if !rest.starts_with('/') {
            if !scheme.is_empty() {
                rest.clone_into(&mut components.opaque);
                return Ok(components);
            }
            return Err(Reason::Fixed("invalid URI for request"));
        }
        let is_reference = mode == ParseMode::Reference;
        let may_have_host = !scheme.is_empty() || (is_reference && !rest.starts_with("///"));
        let after_slashes = rest.strip_prefix("//").filter(|_| may_have_host);
        let path = if let Some(rest) = after_slashes {
            let path_start = rest.find('/').unwrap_or(rest.len());
            let (authority, path) = rest.split_at_checked(path_start).unwrap_or((rest, ""));
            components.parse_authority(authority)?;
            path
        } else {
            components.omits_host = !scheme.is_empty();
            rest
        };
        components.escaped_path = escaped_form(path, UrlPart::Path)?;
        Ok(components)
    }

    fn parse_authority<'t>(&mut self, authority: &'t str) -> Result<(), Reason<'t>> {
        let (user_info, host) = match authority.rsplit_once('@') {
            Some((user_info, host)) => (Some(user_info), host),
            None => (None, authority),
        };
        // Go checks the host before the user name.
        self.host = parse_host(&self.scheme, host)?;
        self.user_info = user_info.map(parse_user_info).transpose()?;
        Ok(())
    }

    /// Returns the URL like Go's `URL.String`. An empty fragment is omitted.
    ///
    /// Go has two special rules for paths without a leading `/`. These rules are not needed here,
    /// because each path that [`Url::parse`] accepts is empty, starts with `/`, or is `*`.
    fn text(&self, escaped_fragment: &str) -> String {
        let mut out = String::new();
        if !self.scheme.is_empty() {
            out.push_str(&self.scheme);
            out.push(':');
        }
        if self.opaque.is_empty() {
            let has_authority = !self.host.is_empty() || self.user_info.is_some();
            let has_path = !self.scheme.is_empty() && !self.escaped_path.is_empty();
            if has_authority || (has_path && !self.omits_host) {
                out.push_str("//");
            }
            if let Some(user_info) = &self.user_info {
                out.push_str(user_info);
                out.push('@');
            }
            out.push_str(&escape(&self.host, UrlPart::Host));
            out.push_str(&self.escaped_path);
        } else {
            out.push_str(&self.opaque);
        }
        if self.ends_with_question_mark || !self.query.is_empty() {
            out.push('?');
            out.push_str(&self.query);
        }
        if !escaped_fragment.is_empty() {
            out.push('#');
            out.push_str(escaped_fragment);
        }
        out
    }
}

/// The error for a text that is not a URL. In Kubernetes, the message is longer: the URL and Go's
/// reason follow this text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UrlError(&'static str);

const NO_URL: UrlError = UrlError("URL parse error during conversion from string");

impl UrlError {
    pub(super) fn message(self) -> &'static str {
        self.0
    }
}

/// Returns the message of the error that Go's `url.ParseRequestURI` returns for `text`. The message
/// contains `text`. Returns None if there is no error.
pub(super) fn request_uri_error(text: &str) -> Option<String> {
    let reason = Components::parse(text, ParseMode::Request).err()?;
    Some(format!(
        "parse {}: {}",
        quote(text.as_bytes()),
        reason.text()
    ))
}

/// Returns true if `text` is an absolute URL or an absolute path. As in Kubernetes, [`Url::parse`]
/// can refuse such a text, because it also checks the fragment and the host after a leading `//`.
pub(super) fn is_url(text: &str) -> bool {
    Components::parse(text, ParseMode::Request).is_ok()
}

/// A URL of CEL.
#[derive(Clone, Debug)]
pub(super) struct Url {
    scheme: String,
    host: String,
    escaped_path: String,
    query: String,
    /// The whole URL.
    text: String,
}

/// Two URLs are equal if Go prints the same text for both of them.
impl PartialEq for Url {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Url {}

/// Prints the whole URL like Go's `URL.String`.
impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Url {
    /// Parses an absolute URL or an absolute path.
    pub(super) fn parse(text: &str) -> Result<Self, UrlError> {
        if !is_url(text) {
            return Err(NO_URL);
        }
        let (start, fragment) = text.split_once('#').unwrap_or((text, ""));
        let components = Components::parse(start, ParseMode::Reference).map_err(|_| NO_URL)?;
        let escaped_fragment = escaped_form(fragment, UrlPart::Fragment).map_err(|_| NO_URL)?;
        Ok(Self {
            text: components.text(&escaped_fragment),
            scheme: components.scheme,
            host: to_text(components.host),
            escaped_path: components.escaped_path,
            query: components.query,
        })
    }

    /// Returns the number of bytes of the whole URL. The work of each method is at most
    /// proportional to this number.
    pub(super) fn len(&self) -> usize {
        self.text.len()
    }

    /// Returns the scheme in lower case, or an empty text.
    pub(super) fn scheme(&self) -> &str {
        &self.scheme
    }

    /// Returns the decoded host with the port. An IPv6 address has brackets.
    pub(super) fn host(&self) -> &str {
        &self.host
    }

    /// Returns the decoded host without the port, and an IPv6 address without brackets.
    pub(super) fn hostname(&self) -> &str {
        let host = self.split_port().0;
        host.strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
            .unwrap_or(host)
    }

    /// Returns the port, or an empty text.
    pub(super) fn port(&self) -> &str {
        self.split_port().1
    }

    /// Splits the host into the part before the port, and the port without its colon.
    fn split_port(&self) -> (&str, &str) {
        match self.host.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => (host, port),
            _ => (&self.host, ""),
        }
    }

    /// Returns the path with its `%` escapes.
    pub(super) fn escaped_path(&self) -> &str {
        &self.escaped_path
    }

    /// Returns the decoded parameters of the query, sorted by key. As in Go, parameters with a `;`
    /// or an invalid `%` escape are skipped. Returns no parameters if the query has more than
    /// [`MAX_QUERY_PARAMETERS`].
    pub(super) fn query(&self) -> Vec<(String, Vec<String>)> {
        let separators = self.query.bytes().filter(|byte| *byte == b'&').count();
        if separators >= MAX_QUERY_PARAMETERS {
            return Vec::new();
        }
        let mut parameters: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for parameter in self.query.split('&') {
            if parameter.is_empty() || parameter.contains(';') {
                continue;
            }
            let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            let decoded = |text| unescape(text, UrlPart::Query).ok().map(to_text);
            if let (Some(key), Some(value)) = (decoded(key), decoded(value)) {
                parameters.entry(key).or_default().push(value);
            }
        }
        parameters.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).expect("the URL is valid")
    }

    #[test]
    fn a_url_has_its_parts() {
        let parsed = url("HTTPS://us@er:p%20w@[fe80::1%25en0]:8080/a%2fb?c=d#e");
        assert_eq!(parsed.scheme(), "https");
        assert_eq!(parsed.host(), "[fe80::1%en0]:8080");
        assert_eq!(parsed.hostname(), "fe80::1%en0");
        assert_eq!(parsed.port(), "8080");
        assert_eq!(parsed.escaped_path(), "/a%2fb");
        let printed = "https://us%40er:p%20w@[fe80::1%25en0]:8080/a%2fb?c=d#e";
        assert_eq!(parsed.to_string(), printed);
    }

    #[test]
    fn urls_are_printed_like_in_go() {
        for (text, printed) in [
            ("http:/a", "http:/a"),
            ("http:///a", "http:///a"),
            ("http:////a", "http:////a"),
            ("http://", "http:"),
            ("mailto:a@b?", "mailto:a@b?"),
            ("//host/a b", "//host/a%20b"),
            ("///a", "///a"),
            ("http://%C3%A9/", "http://%C3%A9/"),
            ("/a?b#é!'", "/a?b#%C3%A9!%27"),
            ("/a[b]{c}", "/a%5Bb%5D%7Bc%7D"),
            ("*", "*"),
            ("/?#", "/?"),
        ] {
            assert_eq!(url(text).to_string(), printed, "{text}");
        }
    }

    #[test]
    fn only_the_printed_text_is_compared() {
        assert_eq!(url("HTTP://a"), url("http://a"));
        assert_ne!(url("http://A"), url("http://a"));
        assert_ne!(url("/%41"), url("/A"));
    }

    #[test]
    fn some_texts_are_request_uris_but_no_urls() {
        for text in ["//[::1/", "/a?b#%zz"] {
            assert!(is_url(text), "{text}");
            assert_eq!(Url::parse(text), Err(NO_URL), "{text}");
        }
    }

    #[test]
    fn invalid_query_parameters_are_skipped() {
        let parsed = url("/?b=1+2&a&b=%41&c;d=1&%zz=1&e=%&=x&&f==");
        let expected = [
            ("", vec!["x"]),
            ("a", vec![""]),
            ("b", vec!["1 2", "A"]),
            ("f", vec!["="]),
        ];
        let query = parsed.query();
        let found = query.iter().map(|(key, values)| {
            let values: Vec<_> = values.iter().map(String::as_str).collect();
            (key.as_str(), values)
        });
        assert!(found.eq(expected));
    }

    #[test]
    fn a_query_with_too_many_parameters_is_ignored() {
        let ampersands = |count| "&".repeat(count);
        assert_eq!(url(&format!("/?a{}", ampersands(9_999))).query().len(), 1);
        assert!(
            url(&format!("/?a{}", ampersands(10_000)))
                .query()
                .is_empty()
        );
    }

    #[test]
    fn bytes_that_are_not_utf_8_are_replaced() {
        assert_eq!(url("a://%ff%fe/").host(), "\u{fffd}\u{fffd}");
        assert_eq!(url("a://%ff%fe/").to_string(), "a://%FF%FE/");
    }

    #[test]
    fn request_uri_errors_have_the_text_of_go() {
        for (text, error) in [
            ("", r#"parse "": empty url"#),
            (
                "a\n",
                r#"parse "a\n": net/url: invalid control character in URL"#,
            ),
            (":a", r#"parse ":a": missing protocol scheme"#),
            ("a/b", r#"parse "a/b": invalid URI for request"#),
            ("/%zé", "parse \"/%zé\": invalid URL escape \"%z\\xc3\""),
            (
                "/%\u{a0}",
                r#"parse "/%\u00a0": invalid URL escape "%\u00a0""#,
            ),
            ("a://h%41", r#"parse "a://h%41": invalid URL escape "%41""#),
            (
                "a://h x",
                r#"parse "a://h x": invalid character " " in host name"#,
            ),
            (
                "http://h:1:2",
                r#"parse "http://h:1:2": invalid port ":1:2" after host"#,
            ),
            ("a://[::1", r#"parse "a://[::1": missing ']' in host"#),
            (
                "a://[1.2.3.4]",
                r#"parse "a://[1.2.3.4]": invalid IP-literal"#,
            ),
            ("a://u^@h", r#"parse "a://u^@h": net/url: invalid userinfo"#),
            (
                "a://[1::%ff]",
                r#"parse "a://[1::%ff]": invalid host: ParseAddr("1::\xff"): each colon-separated field must have at least one digit (at "\xff")"#,
            ),
        ] {
            assert_eq!(request_uri_error(text).as_deref(), Some(error), "{text}");
        }
        assert_eq!(request_uri_error("postgres://a:1,b:2/db"), None);
    }
}
