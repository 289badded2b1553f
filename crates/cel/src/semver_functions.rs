//! The functions of semantic versions.

use std::cmp::Ordering;
use std::rc::Rc;

use super::Budget;
use super::conversions::charge_arguments;
use super::op::Function;
use super::semantic_version::SemanticVersion;
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
        (Function::Semver, [V::Str(text)]) => parse(text, false)?,
        (Function::Semver, [V::Str(text), V::Bool(normalize)]) => parse(text, *normalize)?,
        (Function::IsSemver, [V::Str(text)]) => V::Bool(parse(text, false).is_ok()),
        (Function::IsSemver, [V::Str(text), V::Bool(normalize)]) => {
            V::Bool(parse(text, *normalize).is_ok())
        }
        (Function::Major, [V::Semver(version)]) => V::Int(version.major()),
        (Function::Minor, [V::Semver(version)]) => V::Int(version.minor()),
        (Function::Patch, [V::Semver(version)]) => V::Int(version.patch()),
        (Function::IsGreaterThan, [V::Semver(a), V::Semver(b)]) => V::Bool(a.cmp(b).is_gt()),
        (Function::IsLessThan, [V::Semver(a), V::Semver(b)]) => V::Bool(a.cmp(b).is_lt()),
        (Function::CompareTo, [V::Semver(a), V::Semver(b)]) => V::Int(match a.cmp(b) {
            Ordering::Less => -1,
            Ordering::Equal => 0,
            Ordering::Greater => 1,
        }),
        _ => return Err(no_overload(function, args)),
    })
}

/// Parses a version. If `normalize` is true, a leading `v`, leading zeros and missing parts are
/// accepted.
fn parse<'e>(text: &str, normalize: bool) -> Result<V<'e>, Fault<'e>> {
    let version = if normalize {
        SemanticVersion::parse_normalized(text)
    } else {
        SemanticVersion::parse(text)
    };
    version
        .map(|version| V::Semver(Rc::new(version)))
        .map_err(|error| Fault::error(error.message()))
}
