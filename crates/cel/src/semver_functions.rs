//! The functions of semantic versions, such as `semver('1.2.3-rc.1')`. The crate `semver` parses and
//! compares the versions.

use std::cmp::Ordering;
use std::rc::Rc;

use semver::Version;

use super::Budget;
use super::conversions::charge_arguments;
use super::op::Function;
use super::strings::no_overload;
use super::value::{Fault, V};

/// Calls a function of semantic versions. A call costs one step for each 64 bytes of its arguments.
pub(super) fn call<'e>(
    function: Function,
    args: &[V<'e>],
    budget: &mut Budget,
) -> Result<V<'e>, Fault<'e>> {
    charge_arguments(args, budget)?;
    Ok(match (function, args) {
        (Function::Semver, [V::Str(text)]) => version(text, false)?,
        (Function::Semver, [V::Str(text), V::Bool(normalize)]) => version(text, *normalize)?,
        (Function::IsSemver, [V::Str(text)]) => V::Bool(parse(text, false).is_some()),
        (Function::IsSemver, [V::Str(text), V::Bool(normalize)]) => {
            V::Bool(parse(text, *normalize).is_some())
        }
        // As in Kubernetes, a number of 2^63 or more becomes negative.
        (Function::Major, [V::Semver(version)]) => V::Int(version.major.cast_signed()),
        (Function::Minor, [V::Semver(version)]) => V::Int(version.minor.cast_signed()),
        (Function::Patch, [V::Semver(version)]) => V::Int(version.patch.cast_signed()),
        (Function::IsGreaterThan, [V::Semver(a), V::Semver(b)]) => {
            V::Bool(a.cmp_precedence(b).is_gt())
        }
        (Function::IsLessThan, [V::Semver(a), V::Semver(b)]) => {
            V::Bool(a.cmp_precedence(b).is_lt())
        }
        (Function::CompareTo, [V::Semver(a), V::Semver(b)]) => V::Int(match a.cmp_precedence(b) {
            Ordering::Less => -1,
            Ordering::Equal => 0,
            Ordering::Greater => 1,
        }),
        _ => return Err(no_overload(function, args)),
    })
}

fn version<'e>(text: &str, normalize: bool) -> Result<V<'e>, Fault<'e>> {
    let version = parse(text, normalize);
    // The error of the crate is not used, because it quotes characters of the text.
    version
        .map(|version| V::Semver(Rc::new(version)))
        .ok_or(Fault::error(
            "the text is not a semantic version such as 1.2.3-rc.1",
        ))
}

/// Parses a version. If `normalize` is true, a leading `v`, leading zeros and missing parts are
/// accepted.
fn parse(text: &str, normalize: bool) -> Option<Version> {
    let version = if normalize {
        Version::parse(&normalized(text)?)
    } else {
        Version::parse(text)
    };
    version.ok()
}

/// Returns the form of a version that [`Version::parse`] accepts: `v1.02` gives `1.2.0`. Returns
/// None for a short version with a pre-release or build metadata, such as `1.2-rc`.
fn normalized(text: &str) -> Option<String> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let mut parts: Vec<_> = text.splitn(3, '.').map(without_leading_zeros).collect();
    if parts.len() < 3 && text.contains(['-', '+']) {
        return None;
    }
    parts.resize(3, "0");
    Some(parts.join("."))
}

fn without_leading_zeros(part: &str) -> &str {
    let digits = part.bytes().take_while(u8::is_ascii_digit).count();
    let zeros = part.bytes().take_while(|byte| *byte == b'0').count();
    // A number that is zero keeps one digit.
    part.get(zeros.min(digits.saturating_sub(1))..)
        .unwrap_or(part)
}

/// Returns the number of bytes of the pre-release and the build metadata. A function with a version
/// as its argument costs more steps if this number is higher.
pub(super) fn version_len(version: &Version) -> usize {
    version.pre.len() + version.build.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compare(a: &str, b: &str) -> Ordering {
        let version = |text| parse(text, false).expect("the version is valid");
        version(a).cmp_precedence(&version(b))
    }

    #[test]
    fn versions_are_ordered() {
        let ascending = [
            "1.2.3-1",
            "1.2.3-alpha",
            "1.2.3-alpha.beta",
            "1.2.3-beta.2",
            "1.2.3-beta.11",
            "1.2.3",
            "1.10.0",
        ];
        for pair in ascending.windows(2) {
            assert!(compare(pair[0], pair[1]).is_lt(), "{pair:?}");
            assert!(compare(pair[1], pair[0]).is_gt(), "{pair:?}");
        }
        assert!(compare("1.2.3+a", "1.2.3+b.01").is_eq());
    }

    #[test]
    fn normalization_completes_short_versions() {
        for (text, same) in [
            ("v1", "1.0.0"),
            ("01.002", "1.2.0"),
            ("v1.2.00-rc.1", "1.2.0-rc.1"),
            ("000.0.0001", "0.0.1"),
            ("v1.30.2+k3s1", "1.30.2+k3s1"),
        ] {
            assert_eq!(parse(text, true), parse(same, false), "{text}");
        }
        for text in [
            "", "v", "vv1", "V1", "1-rc", "1.2+a", "1.2.3-01", "1..2", "1.2.3.4",
        ] {
            assert_eq!(parse(text, true), None, "{text}");
        }
    }
}
