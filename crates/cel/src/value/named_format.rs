//! The named formats of Kubernetes, such as `format.dns1123Label()`. A format checks a text and
//! returns the reasons why the text is invalid.

use std::sync::LazyLock;

use jiff::civil::Date;
use regex::Regex;

use super::url::is_url;

/// A named format.
pub(crate) struct NamedFormat {
    /// The argument of `format.named`, and the last part of the function's name, as in
    /// `format.dns1123Label`.
    function: &'static str,
    /// Kubernetes' name of the format.
    pub name: &'static str,
    /// Returns Kubernetes' messages about an invalid text. The result is empty if the text is
    /// valid. Only the message of the format `uri` is not that of Kubernetes.
    pub validate: fn(&str) -> Vec<String>,
}

static FORMATS: [NamedFormat; 13] = [
    format("dns1123Label", "DNS1123Label", dns_1123_label),
    format("dns1123LabelPrefix", "DNS1123LabelPrefix", |text| {
        dns_1123_label(&with_final_dash_replaced(text))
    }),
    format("dns1123Subdomain", "DNS1123Subdomain", dns_1123_subdomain),
    format("dns1123SubdomainPrefix", "DNS1123SubdomainPrefix", |text| {
        dns_1123_subdomain(&with_final_dash_replaced(text))
    }),
    format("dns1035Label", "DNS1035Label", dns_1035_label),
    format("dns1035LabelPrefix", "DNS1035LabelPrefix", |text| {
        dns_1035_label(&with_final_dash_replaced(text))
    }),
    format("qualifiedName", "QualifiedName", qualified_name),
    format("labelValue", "LabelValue", |text| {
        name(text, MAX_LABEL, "bytes", &LABEL_VALUE, NO_LABEL_VALUE)
    }),
    format("uri", "URI", |text| check(is_url(text), NO_URI)),
    format("uuid", "uuid", |text| {
        check(UUID.is_match(text), "does not match the UUID format")
    }),
    format("byte", "byte", |text| {
        check(BASE64.is_match(text), "invalid base64")
    }),
    format("date", "date", |text| check(is_date(text), "invalid date")),
    format("datetime", "datetime", |text| {
        check(is_date_time(text), "invalid datetime")
    }),
];

const fn format(
    function: &'static str,
    name: &'static str,
    validate: fn(&str) -> Vec<String>,
) -> NamedFormat {
    NamedFormat {
        function,
        name,
        validate,
    }
}

fn check(is_valid: bool, message: &str) -> Vec<String> {
    let messages = (!is_valid).then(|| message.to_owned());
    messages.into_iter().collect()
}

/// Maximum length of a DNS label, a label value, and the name in a label key, in bytes. A longer
/// text is invalid, and the reason that the format returns contains this limit.
const MAX_LABEL: usize = 63;
/// Maximum length of a DNS subdomain in bytes. A longer text is invalid, and the reason that the
/// format returns contains this limit.
const MAX_SUBDOMAIN: usize = 253;

const NO_DNS_1123_LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric \
    characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or \
    '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const NO_DNS_1123_SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case \
    alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character \
    (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const NO_DNS_1035_LABEL: &str = "a DNS-1035 label must consist of lower case alphanumeric \
    characters or '-', start with an alphabetic character, and end with an alphanumeric character \
    (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const NO_LABEL_NAME: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must \
    start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', \
    regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const NO_LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric \
    characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. \
    'MyValue',  or 'my_value',  or '12345', regex used for validation is \
    '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
/// The message of the format `uri`. Kubernetes' message is Go's reason, which quotes the text.
pub(crate) const NO_URI: &str =
    "must be an absolute URL or an absolute path, with escapes as in RFC 3986";

/// Returns a regular expression that matches only whole texts.
fn whole(pattern: &str) -> Regex {
    Regex::new(&format!(r"^(?:{pattern})\z")).expect("the pattern is valid")
}

static LABEL: LazyLock<Regex> = LazyLock::new(|| whole("[a-z0-9]([-a-z0-9]*[a-z0-9])?"));
static SUBDOMAIN: LazyLock<Regex> =
    LazyLock::new(|| whole(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"));
static DNS_1035_LABEL: LazyLock<Regex> = LazyLock::new(|| whole("[a-z]([-a-z0-9]*[a-z0-9])?"));
/// The name in a label key, such as `name` in `app.kubernetes.io/name`.
static LABEL_NAME: LazyLock<Regex> =
    LazyLock::new(|| whole("([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"));
static LABEL_VALUE: LazyLock<Regex> =
    LazyLock::new(|| whole("(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?"));
/// A UUID of any version. Each of the four dashes is optional.
static UUID: LazyLock<Regex> =
    LazyLock::new(|| whole("[0-9a-fA-F]{8}(-?[0-9a-fA-F]{4}){3}-?[0-9a-fA-F]{12}"));
/// Base64 with padding. The unused bits of the last character are not checked.
static BASE64: LazyLock<Regex> = LazyLock::new(|| {
    whole("([A-Za-z0-9+/]{4})*[A-Za-z0-9+/]{2}(==|[A-Za-z0-9+/](=|[A-Za-z0-9+/]))")
});
static DATE: LazyLock<Regex> = LazyLock::new(|| whole("([0-9]{4})-([0-9]{2})-([0-9]{2})"));
/// The time of a date and time. Like Kubernetes, this pattern also accepts texts that RFC 3339 does
/// not allow: any character except for a line feed can separate the fraction from the seconds, and
/// the UTC offset can have any digits.
static TIME: LazyLock<Regex> = LazyLock::new(|| {
    whole("([01][0-9]|2[0-3])(:[0-5][0-9]){2}(.[0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})")
});

impl NamedFormat {
    /// Returns the format with the given name, or None if there is no such format. The name is the
    /// argument of `format.named`, or the last part of a function such as `format.uri`.
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        FORMATS.iter().find(|format| format.function == name)
    }
}

/// If a prefix ends with `-`, replaces its last two bytes by `a`: `my-` becomes `ma`. Kubernetes
/// does the same. The replacement has two effects: a prefix can be one byte longer than a name, and
/// the byte before the `-` is not checked.
fn with_final_dash_replaced(name: &str) -> String {
    match name.as_bytes() {
        [start @ .., _, b'-'] => format!("{}a", String::from_utf8_lossy(start)),
        _ => name.to_owned(),
    }
}

/// Checks the length and the form of a name. Kubernetes counts bytes in all messages about lengths.
/// The word `unit` is "bytes" for labels, and "characters" for DNS names.
fn name(name: &str, limit: usize, unit: &str, form: &Regex, message: &str) -> Vec<String> {
    let mut messages = Vec::new();
    if name.len() > limit {
        messages.push(format!("must be no more than {limit} {unit}"));
    }
    if !form.is_match(name) {
        messages.push(message.to_owned());
    }
    messages
}

fn dns_1123_label(text: &str) -> Vec<String> {
    let message = if SUBDOMAIN.is_match(text) {
        "must not contain dots"
    } else {
        NO_DNS_1123_LABEL
    };
    name(text, MAX_LABEL, "characters", &LABEL, message)
}

fn dns_1123_subdomain(text: &str) -> Vec<String> {
    let message = NO_DNS_1123_SUBDOMAIN;
    name(text, MAX_SUBDOMAIN, "characters", &SUBDOMAIN, message)
}

fn dns_1035_label(text: &str) -> Vec<String> {
    let message = NO_DNS_1035_LABEL;
    name(text, MAX_LABEL, "characters", &DNS_1035_LABEL, message)
}

/// Checks a label key, and returns Kubernetes' messages.
fn qualified_name(key: &str) -> Vec<String> {
    let parts: Vec<&str> = key.split('/').collect();
    let (prefix, own) = match *parts {
        [prefix, own] => (Some(prefix), own),
        [own] => (None, own),
        _ => {
            return vec![format!(
                "a valid label key {NO_LABEL_NAME} with an optional DNS subdomain prefix and '/' \
                 (e.g. 'example.com/MyName')"
            )];
        }
    };
    let mut messages = Vec::new();
    let mut add = |part: &str, message: &str| messages.push(format!("{part} part {message}"));
    match prefix {
        Some("") => add("prefix", "must be non-empty"),
        Some(prefix) => {
            let message = NO_DNS_1123_SUBDOMAIN;
            for message in name(prefix, MAX_SUBDOMAIN, "bytes", &SUBDOMAIN, message) {
                add("prefix", &message);
            }
        }
        None => {}
    }
    if own.is_empty() {
        add("name", "must be non-empty");
    }
    for message in name(own, MAX_LABEL, "bytes", &LABEL_NAME, NO_LABEL_NAME) {
        add("name", &message);
    }
    messages
}

/// Returns true for a date such as `2024-02-29`. The year has four digits, and can be 0.
fn is_date(text: &str) -> bool {
    let date = DATE.captures(text).and_then(|parts| {
        let (_, [year, month, day]) = parts.extract();
        let (year, month) = (year.parse().ok()?, month.parse().ok()?);
        Date::new(year, month, day.parse().ok()?).ok()
    });
    date.is_some()
}

/// Returns true for a date and a time, such as `2024-02-29T12:00:00.5+01:00`. As in RFC 3339, `t`
/// and `z` can be small letters. Like Kubernetes, this function ignores a second `T` or `t` and all
/// characters after it.
fn is_date_time(text: &str) -> bool {
    let mut parts = text.split(['T', 't']);
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else {
        return false;
    };
    is_date(date) && TIME.is_match(time)
}
