//! Semantic versions (`semver('1.2.3-rc.1')`), with the parsing and the order of Kubernetes.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;

/// The error for a text that is not a semantic version. The message is that of Kubernetes, but
/// without the part of the version that Kubernetes quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SemanticVersionError(&'static str);

impl SemanticVersionError {
    /// Returns the text of the error.
    pub(super) fn message(self) -> &'static str {
        self.0
    }
}

/// A semantic version. Two versions that differ only in their build metadata are equal.
#[derive(Clone, Debug)]
pub(super) struct SemanticVersion {
    major: u64,
    minor: u64,
    patch: u64,
    /// The identifiers of the pre-release with the dots between them, such as `rc.1` in
    /// `1.2.3-rc.1`. It is empty if the version has no pre-release.
    pre_release: Box<str>,
    /// The build metadata, such as `b1` in `1.2.3+b1`. It is empty if there is none.
    build: Box<str>,
}

impl PartialEq for SemanticVersion {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for SemanticVersion {}

impl fmt::Display for SemanticVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)?;
        if !self.pre_release.is_empty() {
            write!(f, "-{}", self.pre_release)?;
        }
        if !self.build.is_empty() {
            write!(f, "+{}", self.build)?;
        }
        Ok(())
    }
}

/// The error texts for one of the three numbers of a version, or for an identifier of the
/// pre-release.
struct IdentifierFaults {
    character: SemanticVersionError,
    leading_zero: SemanticVersionError,
}

const MAJOR: IdentifierFaults = IdentifierFaults {
    character: SemanticVersionError("Invalid character(s) found in major number"),
    leading_zero: SemanticVersionError("Major number must not contain leading zeroes"),
};
const MINOR: IdentifierFaults = IdentifierFaults {
    character: SemanticVersionError("Invalid character(s) found in minor number"),
    leading_zero: SemanticVersionError("Minor number must not contain leading zeroes"),
};
const PATCH: IdentifierFaults = IdentifierFaults {
    character: SemanticVersionError("Invalid character(s) found in patch number"),
    leading_zero: SemanticVersionError("Patch number must not contain leading zeroes"),
};
const PRE_RELEASE: IdentifierFaults = IdentifierFaults {
    character: SemanticVersionError("Invalid character(s) found in prerelease"),
    leading_zero: SemanticVersionError(
        "Numeric PreRelease version must not contain leading zeroes",
    ),
};

fn parse_number(text: &str, faults: &IdentifierFaults) -> Result<u64, SemanticVersionError> {
    if !is_number(text) {
        return Err(faults.character);
    }
    if text.len() > 1 && text.starts_with('0') {
        return Err(faults.leading_zero);
    }
    if text.is_empty() {
        return Err(SemanticVersionError("strconv.ParseUint: invalid syntax"));
    }
    text.parse()
        .map_err(|_| SemanticVersionError("strconv.ParseUint: value out of range"))
}

fn is_identifier(text: &str) -> bool {
    text.bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

fn is_number(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

fn check_pre_release(pre_release: &str) -> Result<(), SemanticVersionError> {
    for identifier in pre_release.split('.') {
        if identifier.is_empty() {
            return Err(SemanticVersionError("Prerelease is empty"));
        }
        if is_number(identifier) || !is_identifier(identifier) {
            parse_number(identifier, &PRE_RELEASE)?;
        }
    }
    Ok(())
}

/// Compares two identifiers of a pre-release. A number comes before a text. Of two numbers, the
/// shorter one comes first, because numbers have no leading zeros.
fn compare_identifiers(a: &str, b: &str) -> Ordering {
    match (is_number(a), is_number(b)) {
        (true, true) => a.len().cmp(&b.len()).then_with(|| a.cmp(b)),
        (true, false) => Ordering::Less,
        (false, true) => Ordering::Greater,
        (false, false) => a.cmp(b),
    }
}

fn check_build(build: &str) -> Result<(), SemanticVersionError> {
    for identifier in build.split('.') {
        if identifier.is_empty() {
            return Err(SemanticVersionError("Build meta data is empty"));
        }
        if !is_identifier(identifier) {
            return Err(SemanticVersionError(
                "Invalid character(s) found in build meta data",
            ));
        }
    }
    Ok(())
}

/// Removes the leading zeros of a part of a version: `007` gives `7`, and `00` gives `0`. As in
/// Kubernetes, `-rc` gives `0-rc`, so `1.2.-rc` is the same version as `1.2.0-rc`. A part of fewer
/// than two bytes is not changed.
fn normalize_part(part: &str) -> Cow<'_, str> {
    if part.len() < 2 {
        return Cow::Borrowed(part);
    }
    let trimmed = part.trim_start_matches('0');
    if trimmed.starts_with(|first: char| first.is_ascii_digit()) {
        Cow::Borrowed(trimmed)
    } else {
        Cow::Owned(format!("0{trimmed}"))
    }
}

impl SemanticVersion {
    /// Parses a version. A missing number or a leading zero is an error.
    pub(super) fn parse(text: &str) -> Result<Self, SemanticVersionError> {
        if text.is_empty() {
            return Err(SemanticVersionError("Version string empty"));
        }
        let mut parts = text.splitn(3, '.');
        let (Some(major), Some(minor), Some(rest)) = (parts.next(), parts.next(), parts.next())
        else {
            return Err(SemanticVersionError("No Major.Minor.Patch elements found"));
        };
        Self::parse_parts(major, minor, rest)
    }

    /// Parses `text` like [`Self::parse`], but accepts a leading `v`, leading zeros, and short
    /// versions such as `1` and `1.2`.
    pub(super) fn parse_normalized(text: &str) -> Result<Self, SemanticVersionError> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let mut parts = text.splitn(3, '.');
        let major = parts.next().unwrap_or_default();
        let minor = parts.next();
        let rest = parts.next();
        if rest.is_none() && minor.unwrap_or(major).contains(['+', '-']) {
            return Err(SemanticVersionError(
                "short version cannot contain PreRelease/Build meta data",
            ));
        }
        Self::parse_parts(
            &normalize_part(major),
            &normalize_part(minor.unwrap_or("0")),
            &normalize_part(rest.unwrap_or("0")),
        )
    }

    /// Parses the parts of a version. `rest` is the patch number with pre-release and build
    /// metadata, such as `3-rc.1+b1`.
    fn parse_parts(major: &str, minor: &str, rest: &str) -> Result<Self, SemanticVersionError> {
        let major = parse_number(major, &MAJOR)?;
        let minor = parse_number(minor, &MINOR)?;
        let (rest, build) = match rest.split_once('+') {
            Some((rest, build)) => (rest, Some(build)),
            None => (rest, None),
        };
        let (patch, pre_release) = match rest.split_once('-') {
            Some((patch, pre_release)) => (patch, Some(pre_release)),
            None => (rest, None),
        };
        let patch = parse_number(patch, &PATCH)?;
        pre_release.map_or(Ok(()), check_pre_release)?;
        build.map_or(Ok(()), check_build)?;
        Ok(Self {
            major,
            minor,
            patch,
            pre_release: pre_release.unwrap_or_default().into(),
            build: build.unwrap_or_default().into(),
        })
    }

    /// Returns the number of bytes of the pre-release and the build metadata. A function with a
    /// version as its argument costs more steps if this number is higher.
    pub(super) fn len(&self) -> usize {
        self.pre_release.len() + self.build.len()
    }

    /// Returns the major number. As in Kubernetes, a number of 2^63 or more becomes negative.
    pub(super) fn major(&self) -> i64 {
        self.major.cast_signed()
    }

    /// Returns the minor number. As in Kubernetes, a number of 2^63 or more becomes negative.
    pub(super) fn minor(&self) -> i64 {
        self.minor.cast_signed()
    }

    /// Returns the patch number. As in Kubernetes, a number of 2^63 or more becomes negative.
    pub(super) fn patch(&self) -> i64 {
        self.patch.cast_signed()
    }

    /// Compares two versions. A version with a pre-release comes before the same version without a
    /// pre-release.
    pub(super) fn cmp(&self, other: &Self) -> Ordering {
        let key = |version: &Self| {
            (
                version.major,
                version.minor,
                version.patch,
                version.pre_release.is_empty(),
            )
        };
        key(self).cmp(&key(other)).then_with(|| {
            let (mut own, mut others) = (self.pre_release.split('.'), other.pre_release.split('.'));
            loop {
                let order = match (own.next(), others.next()) {
                    (None, None) => return Ordering::Equal,
                    (None, Some(_)) => Ordering::Less,
                    (Some(_), None) => Ordering::Greater,
                    (Some(own), Some(other)) => compare_identifiers(own, other),
                };
                if order.is_ne() {
                    return order;
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(text: &str) -> SemanticVersion {
        SemanticVersion::parse(text).expect("the version is valid")
    }

    #[test]
    fn versions_are_ordered() {
        let ascending = [
            "1.2.3-0",
            "1.2.3-1",
            "1.2.3-18446744073709551615",
            "1.2.3--",
            "1.2.3-0a",
            "1.2.3-RC",
            "1.2.3-alpha",
            "1.2.3-alpha.1",
            "1.2.3-alpha.beta",
            "1.2.3-beta.2",
            "1.2.3-beta.11",
            "1.2.3",
            "1.10.0",
            "18446744073709551615.0.0",
        ];
        for pair in ascending.windows(2) {
            assert!(version(pair[0]).cmp(&version(pair[1])).is_lt(), "{pair:?}");
            assert!(version(pair[1]).cmp(&version(pair[0])).is_gt(), "{pair:?}");
        }
    }

    #[test]
    fn build_metadata_is_ignored() {
        assert_eq!(version("1.2.3+a"), version("1.2.3+b.01"));
        assert!(version("1.2.3+a").cmp(&version("1.2.3")).is_eq());
    }

    #[test]
    fn large_numbers_become_negative() {
        assert_eq!(version("9223372036854775808.0.0").major(), i64::MIN);
    }

    #[test]
    fn errors_do_not_contain_the_version() {
        for (text, message) in [
            ("", "Version string empty"),
            ("1.2", "No Major.Minor.Patch elements found"),
            ("v1.2.3", "Invalid character(s) found in major number"),
            ("1.02.3", "Minor number must not contain leading zeroes"),
            (".1.1", "strconv.ParseUint: invalid syntax"),
            ("1.2.3.4", "Invalid character(s) found in patch number"),
            (
                "1.2.18446744073709551616",
                "strconv.ParseUint: value out of range",
            ),
            ("1.2.3-", "Prerelease is empty"),
            (
                "1.2.3-01",
                "Numeric PreRelease version must not contain leading zeroes",
            ),
            ("1.2.3-a_b", "Invalid character(s) found in prerelease"),
            ("1.2.3+a..b", "Build meta data is empty"),
            ("1.2.3+a+b", "Invalid character(s) found in build meta data"),
        ] {
            let error = SemanticVersion::parse(text).expect_err(text);
            assert_eq!(error.message(), message, "{text}");
        }
    }

    #[test]
    fn normalization_completes_short_versions() {
        for (text, same) in [
            ("v1", "1.0.0"),
            ("01.002", "1.2.0"),
            ("v1.2.00-rc.1", "1.2.0-rc.1"),
            ("000.0.0001", "0.0.1"),
            ("1.2.-rc+b", "1.2.0-rc"),
        ] {
            assert_eq!(
                SemanticVersion::parse_normalized(text),
                Ok(version(same)),
                "{text}"
            );
        }
        for text in ["", "v", "vv1", "V1", "1-rc", "1.2+a", "1.2.3-01", "1..2"] {
            assert!(SemanticVersion::parse_normalized(text).is_err(), "{text}");
        }
    }
}
