//! The named formats of Kubernetes, such as `format.dns1123Label()`. A format checks a text and
//! returns the reasons why the text is invalid.

use super::url::is_url;

/// A named format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NamedFormat {
    Dns1123Label,
    Dns1123LabelPrefix,
    Dns1123Subdomain,
    Dns1123SubdomainPrefix,
    Dns1035Label,
    Dns1035LabelPrefix,
    QualifiedName,
    LabelValue,
    Uri,
    Uuid,
    Byte,
    Date,
    DateTime,
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
/// The message of [`NamedFormat::Uri`]. Kubernetes' message is Go's reason, which quotes the text.
pub(super) const NO_URI: &str =
    "must be an absolute URL or an absolute path, with escapes as in RFC 3986";

impl NamedFormat {
    /// Returns the format with the given name, or None if there is no such format. The name is the
    /// argument of `format.named`, or the last part of a function such as `format.uri`.
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "dns1123Label" => Self::Dns1123Label,
            "dns1123LabelPrefix" => Self::Dns1123LabelPrefix,
            "dns1123Subdomain" => Self::Dns1123Subdomain,
            "dns1123SubdomainPrefix" => Self::Dns1123SubdomainPrefix,
            "dns1035Label" => Self::Dns1035Label,
            "dns1035LabelPrefix" => Self::Dns1035LabelPrefix,
            "qualifiedName" => Self::QualifiedName,
            "labelValue" => Self::LabelValue,
            "uri" => Self::Uri,
            "uuid" => Self::Uuid,
            "byte" => Self::Byte,
            "date" => Self::Date,
            "datetime" => Self::DateTime,
            _ => return None,
        })
    }

    /// Returns Kubernetes' name of the format.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Dns1123Label => "DNS1123Label",
            Self::Dns1123LabelPrefix => "DNS1123LabelPrefix",
            Self::Dns1123Subdomain => "DNS1123Subdomain",
            Self::Dns1123SubdomainPrefix => "DNS1123SubdomainPrefix",
            Self::Dns1035Label => "DNS1035Label",
            Self::Dns1035LabelPrefix => "DNS1035LabelPrefix",
            Self::QualifiedName => "QualifiedName",
            Self::LabelValue => "LabelValue",
            Self::Uri => "URI",
            Self::Uuid => "uuid",
            Self::Byte => "byte",
            Self::Date => "date",
            Self::DateTime => "datetime",
        }
    }

    /// Returns Kubernetes' messages about an invalid text. The result is empty if the text is
    /// valid. Only the message of [`Self::Uri`] is not that of Kubernetes.
    pub(super) fn validate(self, text: &str) -> Vec<String> {
        let bytes = text.as_bytes();
        let check = |valid: bool, message: &str| {
            if valid {
                Vec::new()
            } else {
                vec![message.to_owned()]
            }
        };
        match self {
            Self::Dns1123Label => dns_1123_label(bytes),
            Self::Dns1123LabelPrefix => dns_1123_label(&with_final_dash_replaced(bytes)),
            Self::Dns1123Subdomain => dns_1123_subdomain(bytes),
            Self::Dns1123SubdomainPrefix => dns_1123_subdomain(&with_final_dash_replaced(bytes)),
            Self::Dns1035Label => dns_1035_label(bytes),
            Self::Dns1035LabelPrefix => dns_1035_label(&with_final_dash_replaced(bytes)),
            Self::QualifiedName => qualified_name(bytes),
            Self::LabelValue => label_value(bytes),
            Self::Uri => check(is_url(text), NO_URI),
            Self::Uuid => check(is_uuid(bytes), "does not match the UUID format"),
            Self::Byte => check(is_base64(bytes), "invalid base64"),
            Self::Date => check(is_date(bytes), "invalid date"),
            Self::DateTime => check(is_date_time(text), "invalid datetime"),
        }
    }
}

/// If a prefix ends with `-`, replaces its last two bytes by `a`: `my-` becomes `ma`. Kubernetes
/// does the same. The replacement has two effects: a prefix can be one byte longer than a name, and
/// the byte before the `-` is not checked.
fn with_final_dash_replaced(name: &[u8]) -> Vec<u8> {
    match name {
        [start @ .., _, b'-'] => [start, b"a"].concat(),
        _ => name.to_vec(),
    }
}

fn is_lower_alphanumeric(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

fn is_label(label: &[u8]) -> bool {
    let ends = |end: Option<&u8>| end.is_some_and(|byte| is_lower_alphanumeric(*byte));
    let valid = |byte: &u8| is_lower_alphanumeric(*byte) || *byte == b'-';
    ends(label.first()) && ends(label.last()) && label.iter().all(valid)
}

fn is_subdomain(name: &[u8]) -> bool {
    name.split(|byte| *byte == b'.').all(is_label)
}

/// Returns true if `name` can be the name in a label key, such as `name` in
/// `app.kubernetes.io/name`. A label value that is not empty has the same form.
fn is_label_name(name: &[u8]) -> bool {
    let ends = |end: Option<&u8>| end.is_some_and(u8::is_ascii_alphanumeric);
    let valid = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    ends(name.first()) && ends(name.last()) && name.iter().all(valid)
}

fn dns_1123_label(name: &[u8]) -> Vec<String> {
    let mut messages = Vec::new();
    if name.len() > MAX_LABEL {
        messages.push(format!("must be no more than {MAX_LABEL} characters"));
    }
    if !is_label(name) {
        messages.push(if is_subdomain(name) {
            "must not contain dots".to_owned()
        } else {
            NO_DNS_1123_LABEL.to_owned()
        });
    }
    messages
}

fn dns_1123_subdomain(name: &[u8]) -> Vec<String> {
    let mut messages = Vec::new();
    if name.len() > MAX_SUBDOMAIN {
        messages.push(format!("must be no more than {MAX_SUBDOMAIN} characters"));
    }
    if !is_subdomain(name) {
        messages.push(NO_DNS_1123_SUBDOMAIN.to_owned());
    }
    messages
}

fn dns_1035_label(name: &[u8]) -> Vec<String> {
    let mut messages = Vec::new();
    if name.len() > MAX_LABEL {
        messages.push(format!("must be no more than {MAX_LABEL} characters"));
    }
    if !is_label(name) || !name.first().is_some_and(u8::is_ascii_lowercase) {
        messages.push(NO_DNS_1035_LABEL.to_owned());
    }
    messages
}

/// Checks a label key, and returns Kubernetes' messages. Kubernetes counts bytes in all messages
/// about lengths. It writes "bytes" for label keys and label values, and "characters" for DNS
/// names.
fn qualified_name(key: &[u8]) -> Vec<String> {
    let mut parts = key.split(|byte| *byte == b'/');
    let (prefix, name) = match (parts.next(), parts.next(), parts.next()) {
        (Some(prefix), Some(name), None) => (Some(prefix), name),
        (Some(name), None, None) => (None, name),
        _ => {
            return vec![format!(
                "a valid label key {NO_LABEL_NAME} with an optional DNS subdomain prefix and '/' \
                 (e.g. 'example.com/MyName')"
            )];
        }
    };
    let mut messages = Vec::new();
    if let Some(prefix) = prefix {
        if prefix.is_empty() {
            messages.push("prefix part must be non-empty".to_owned());
        } else {
            if prefix.len() > MAX_SUBDOMAIN {
                messages.push(format!(
                    "prefix part must be no more than {MAX_SUBDOMAIN} bytes"
                ));
            }
            if !is_subdomain(prefix) {
                messages.push(format!("prefix part {NO_DNS_1123_SUBDOMAIN}"));
            }
        }
    }
    if name.is_empty() {
        messages.push("name part must be non-empty".to_owned());
    } else if name.len() > MAX_LABEL {
        messages.push(format!("name part must be no more than {MAX_LABEL} bytes"));
    }
    if !is_label_name(name) {
        messages.push(format!("name part {NO_LABEL_NAME}"));
    }
    messages
}

fn label_value(value: &[u8]) -> Vec<String> {
    let mut messages = Vec::new();
    if value.len() > MAX_LABEL {
        messages.push(format!("must be no more than {MAX_LABEL} bytes"));
    }
    if !value.is_empty() && !is_label_name(value) {
        messages.push(NO_LABEL_VALUE.to_owned());
    }
    messages
}

/// Returns `text` without its first `len` bytes. Returns None if `text` is shorter, or if `wanted`
/// is false for one of these bytes.
fn strip(text: &[u8], len: usize, wanted: impl Fn(&u8) -> bool) -> Option<&[u8]> {
    let (start, rest) = text.split_at_checked(len)?;
    start.iter().all(wanted).then_some(rest)
}

/// Returns true for a UUID of any version. Each of the four dashes is optional.
fn is_uuid(text: &[u8]) -> bool {
    let mut rest = text;
    for (index, len) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if index > 0 {
            rest = rest.strip_prefix(b"-").unwrap_or(rest);
        }
        match strip(rest, len, u8::is_ascii_hexdigit) {
            Some(after) => rest = after,
            None => return false,
        }
    }
    rest.is_empty()
}

/// Returns true for base64 with padding and with the standard alphabet. The unused bits of the last
/// character are not checked. An empty text is invalid.
fn is_base64(text: &[u8]) -> bool {
    let digits = match text {
        [digits @ .., b'=', b'='] | [digits @ .., b'='] => digits,
        _ => text,
    };
    let valid = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/".contains(byte);
    !text.is_empty() && text.len().is_multiple_of(4) && digits.iter().all(valid)
}

/// Parses a number with exactly two digits.
fn two_digits(text: &[u8]) -> Option<u8> {
    match text {
        [tens @ b'0'..=b'9', ones @ b'0'..=b'9'] => Some((tens - b'0') * 10 + (ones - b'0')),
        _ => None,
    }
}

/// Returns true for a date such as `2024-02-29`. The year has four digits, and can be 0.
fn is_date(text: &[u8]) -> bool {
    let [century @ .., y1, y2, b'-', m1, m2, b'-', d1, d2] = text else {
        return false;
    };
    let numbers = [century, &[*y1, *y2], &[*m1, *m2], &[*d1, *d2]].map(two_digits);
    let [Some(century), Some(year), Some(month), Some(day)] = numbers else {
        return false;
    };
    let leap = if year == 0 {
        century.is_multiple_of(4)
    } else {
        year.is_multiple_of(4)
    };
    let days = match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return false,
    };
    (1..=days).contains(&day)
}

/// Returns true for a date and a time, such as `2024-02-29T12:00:00.5+01:00`. As in RFC 3339, `t`
/// and `z` can be small letters. Like Kubernetes, this function also accepts texts that RFC 3339
/// does not allow:
///
/// - Any character except for a line feed can separate the fraction from the seconds.
/// - The UTC offset can have any digits.
/// - If the text has a second `T` or `t`, this letter and all characters after it are ignored.
fn is_date_time(text: &str) -> bool {
    let mut parts = text.split(['T', 't']);
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else {
        return false;
    };
    is_date(date.as_bytes()) && is_time(time)
}

fn is_time(text: &str) -> bool {
    let Some((clock, rest)) = text.split_at_checked(8) else {
        return false;
    };
    let [h1, h2, b':', m1, m2, b':', s1, s2] = clock.as_bytes() else {
        return false;
    };
    let numbers = [[*h1, *h2], [*m1, *m2], [*s1, *s2]].map(|number| two_digits(&number));
    let [Some(0..=23), Some(0..=59), Some(0..=59)] = numbers else {
        return false;
    };
    is_offset(rest) || without_fraction(rest).is_some_and(is_offset)
}

/// Returns `text` without the fraction at its start: one character that is not a line feed, and the
/// digits after this character. Returns None if `text` does not start with a fraction.
fn without_fraction(text: &str) -> Option<&str> {
    let mut chars = text.chars();
    chars.next().filter(|separator| *separator != '\n')?;
    let digits = chars.as_str();
    let rest = digits.trim_start_matches(|digit: char| digit.is_ascii_digit());
    (rest.len() < digits.len()).then_some(rest)
}

fn is_offset(text: &str) -> bool {
    match text.as_bytes() {
        [b'Z' | b'z'] => true,
        [b'+' | b'-', h1, h2, b':', m1, m2] => {
            [h1, h2, m1, m2].iter().all(|digit| digit.is_ascii_digit())
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_and_names_agree() {
        for name in [
            "dns1123Label",
            "dns1123LabelPrefix",
            "dns1123Subdomain",
            "dns1123SubdomainPrefix",
            "dns1035Label",
            "dns1035LabelPrefix",
            "qualifiedName",
            "labelValue",
            "uri",
            "uuid",
            "byte",
            "date",
            "datetime",
        ] {
            let format = NamedFormat::named(name).expect("the format exists");
            assert!(format.name().eq_ignore_ascii_case(name));
        }
        assert_eq!(NamedFormat::named("URI"), None);
    }

    #[test]
    fn names_have_the_messages_of_kubernetes() {
        let label = NamedFormat::Dns1123Label;
        assert_eq!(label.validate("a.b"), ["must not contain dots"]);
        assert_eq!(label.validate("A"), [NO_DNS_1123_LABEL]);
        let long = format!("{}-", "a".repeat(63));
        let too_long = "must be no more than 63 characters";
        assert_eq!(label.validate(&long), [too_long, NO_DNS_1123_LABEL]);
        assert!(NamedFormat::Dns1123LabelPrefix.validate(&long).is_empty());
        assert!(NamedFormat::Dns1123LabelPrefix.validate("a_-").is_empty());
        assert!(!NamedFormat::Dns1123LabelPrefix.validate("-").is_empty());
        assert_eq!(
            NamedFormat::Dns1035Label.validate("1a"),
            [NO_DNS_1035_LABEL]
        );
        assert!(NamedFormat::LabelValue.validate("").is_empty());
        let long = "a".repeat(64);
        assert_eq!(
            NamedFormat::LabelValue.validate(&long),
            ["must be no more than 63 bytes"]
        );
    }

    #[test]
    fn label_keys_have_a_message_for_each_part() {
        let format = NamedFormat::QualifiedName;
        assert!(format.validate("example.com/My_Name").is_empty());
        let name = format!("name part {NO_LABEL_NAME}");
        let prefix = format!("prefix part {NO_DNS_1123_SUBDOMAIN}");
        assert_eq!(format.validate("A/_"), [prefix, name.clone()]);
        let empty = [
            "prefix part must be non-empty",
            "name part must be non-empty",
        ];
        assert_eq!(format.validate("/"), [empty[0], empty[1], &name]);
        assert!(format.validate("a/b/c")[0].starts_with("a valid label key must consist"));
    }

    #[test]
    fn encoded_texts_are_checked() {
        let uuid = |text| NamedFormat::Uuid.validate(text).is_empty();
        assert!(uuid("123E4567e89b-12d3a456-426614174000"));
        assert!(!uuid("123e4567--e89b-12d3-a456-426614174000"));
        let byte = |text| NamedFormat::Byte.validate(text).is_empty();
        assert!(byte("aG==") && byte("+/+/") && byte("aGV="));
        assert!(!byte("") && !byte("a===") && !byte("====") && !byte("-_-_"));
    }

    #[test]
    fn dates_follow_the_calendar() {
        let date = |text| NamedFormat::Date.validate(text).is_empty();
        assert!(date("2000-02-29") && date("0000-02-29") && date("2024-12-31"));
        assert!(!date("1900-02-29") && !date("2024-04-31") && !date("2024-1-01"));
        assert!(!date("20240-01-01") && !date("2024-01-00"));
    }

    #[test]
    fn more_times_than_in_rfc_3339_are_accepted() {
        let valid = |text: &str| {
            let text = format!("2024-02-29{text}");
            NamedFormat::DateTime.validate(&text).is_empty()
        };
        for text in [
            "T10:00:00Z",
            "t10:00:00é5z",
            "T10:00:00+99:99",
            "T10:00:00-05+05:00",
            "T10:00:00Ttext",
            "T10:00:00ZTtext",
        ] {
            assert_eq!(valid(text), text != "T10:00:00Ttext", "{text}");
        }
        for text in [
            "T24:00:00Z",
            "T10:00:60Z",
            "T10:00:00.Z",
            "T10:00:00\n5Z",
            " 10:00:00Z",
        ] {
            assert!(!valid(text), "{text}");
        }
    }
}
