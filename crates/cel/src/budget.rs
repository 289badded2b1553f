//! The budget of an evaluation, and the amounts of work that one step pays for.

use crate::value::V;
use crate::value::fault::Fault;

/// The number of steps that evaluations may still take. If an evaluation needs more steps, it ends
/// with [`EvaluationFault::Budget`](crate::EvaluationFault::Budget).
///
/// A comprehension takes at least one step for each element that it visits. The README lists how
/// much work of other kinds counts as one step. In a release build, a step takes at most about 300
/// ns.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Number of remaining steps.
    pub left: u64,
}

/// The recommended number of steps for all expressions on one object together. In a release build,
/// these steps take at most about 30 ms.
pub const STEPS_PER_OBJECT: u64 = 100_000;

/// Number of bytes that an evaluation may copy for one step of the budget. A step that creates an
/// element of a list needs a few dozen bytes. Because each step allocates so little memory, the
/// budget also limits the memory of an evaluation.
pub(crate) const COPY_BYTES_PER_STEP: usize = 64;

/// Number of bytes that are compared or searched in one step of the budget.
pub(crate) const SEARCH_BYTES_PER_STEP: usize = 1024;

/// Number of bytes that are matched with a regular expression in one step of the budget. The number
/// is smaller than [`SEARCH_BYTES_PER_STEP`], because matching is slower than searching for a text.
pub(crate) const MATCH_BYTES_PER_STEP: usize = 64;

/// Subtracts `steps` from the budget. If the budget has fewer steps left, the budget becomes zero
/// and the result is an error.
pub(crate) fn charge<'e>(budget: &mut Budget, steps: u64) -> Result<(), Fault<'e>> {
    let left = budget.left.checked_sub(steps);
    budget.left = left.unwrap_or_default();
    left.map(|_| ()).ok_or(Fault::Budget)
}

/// Returns the number of steps for `len` units of work, such as bytes. One step pays for `per_step`
/// units. The result is rounded down.
pub(crate) fn steps(len: usize, per_step: usize) -> u64 {
    u64::try_from(len / per_step).unwrap_or(u64::MAX)
}

/// Charges the steps for copying `bytes` bytes.
pub(crate) fn charge_copy<'e>(budget: &mut Budget, bytes: usize) -> Result<(), Fault<'e>> {
    charge(budget, steps(bytes, COPY_BYTES_PER_STEP))
}

/// Charges the steps for reading the arguments of a library function: one step for each
/// [`COPY_BYTES_PER_STEP`] bytes of an argument.
pub(crate) fn charge_arguments<'e>(
    arguments: &[V<'e>],
    budget: &mut Budget,
) -> Result<(), Fault<'e>> {
    for argument in arguments {
        let bytes = match argument {
            V::Str(text) => text.len(),
            V::Url(url) => url.len(),
            V::Semver(version) => version.pre.len() + version.build.len(),
            _ => 0,
        };
        charge_copy(budget, bytes)?;
    }
    Ok(())
}
