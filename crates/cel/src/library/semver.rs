//! The functions of semantic versions, such as `semver('1.2.3-rc.1')`. The crate `semver` parses and
//! compares the versions.

use std::rc::Rc;

use semver::Version;

use crate::budget::{Budget, charge_arguments};
use crate::value::V;
use crate::value::fault::{Fault, Outcome};

pub(crate) const SIGNATURES: &str = "
semver(<string>) -> <kubernetes.Semver>
semver(<string>, <bool>) -> <kubernetes.Semver>
isSemver(<string>) -> <bool>
isSemver(<string>, <bool>) -> <bool>
<kubernetes.Semver>.major|minor|patch() -> <int>
<kubernetes.Semver>.compareTo(<kubernetes.Semver>) -> <int>
<kubernetes.Semver>.isGreaterThan|isLessThan(<kubernetes.Semver>) -> <bool>
";

/// Calls a function of semantic versions. A call costs one step for each 64 bytes of its arguments.
pub(crate) fn call<'e>(name: &str, args: &[V<'e>], budget: &mut Budget) -> Outcome<'e> {
    charge_arguments(args, budget)?;
    Ok(match (name, args) {
        ("semver", [V::Str(text)]) => version(text, false)?,
        ("semver", [V::Str(text), V::Bool(normalize)]) => version(text, *normalize)?,
        ("isSemver", [V::Str(text)]) => V::Bool(parse(text, false).is_some()),
        ("isSemver", [V::Str(text), V::Bool(normalize)]) => {
            V::Bool(parse(text, *normalize).is_some())
        }
        // As in Kubernetes, a number of 2^63 or more becomes negative.
        ("major", [V::Semver(version)]) => V::Int(version.major.cast_signed()),
        ("minor", [V::Semver(version)]) => V::Int(version.minor.cast_signed()),
        ("patch", [V::Semver(version)]) => V::Int(version.patch.cast_signed()),
        ("isGreaterThan", [V::Semver(a), V::Semver(b)]) => V::Bool(a.cmp_precedence(b).is_gt()),
        ("isLessThan", [V::Semver(a), V::Semver(b)]) => V::Bool(a.cmp_precedence(b).is_lt()),
        ("compareTo", [V::Semver(a), V::Semver(b)]) => V::Int(a.cmp_precedence(b) as i64),
        _ => return Err(Fault::no_overload()),
    })
}

fn version<'e>(text: &str, normalize: bool) -> Outcome<'e> {
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
