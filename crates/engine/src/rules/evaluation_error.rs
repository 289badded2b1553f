//! Errors of evaluations. Input: the expected and the actual kind of a value. Output: an
//! [`EvaluationError`], which the cluster-scoped status of the rule set shows.

use ifo_cel::{DocError, EvaluationFault};

/// Why a rule or one of its fields has no value for an object. It contains kinds, lengths and
/// positions, and never a value of the object, because users who may read rule sets may not be
/// allowed to read the object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvaluationError {
    /// The expression failed.
    #[error(transparent)]
    Expression(#[from] EvaluationFault),
    /// An invalid `state`.
    #[error("expected Progressing, Blocked or Failing, found another string of {0} characters")]
    State(usize),
    /// An invalid `reason`.
    #[error(
        "expected at most 128 letters and digits in CamelCase, found another string of {0} characters"
    )]
    Reason(usize),
    /// An invalid `outcome`.
    #[error(
        "expected Succeeded, Failed, Superseded or an empty string, found another string of {0} characters"
    )]
    Outcome(usize),
    /// An `itemKey` of the wrong type.
    #[error("expected a string of 1 to 253 bytes, found one of {0} bytes")]
    KeyLength(usize),
    /// An `itemKey` that an earlier element already has, with the index of that element.
    #[error("expected another key for each element, found the key of element {0} twice")]
    KeyTwice(usize),
    /// A `forEach` with too many elements.
    #[error("expected at most 1000 elements, found more")]
    TooManyElements,
    /// An `instance` that is too long.
    #[error("expected a string of at most 253 bytes, found one of {0} bytes")]
    InstanceLength(usize),
    /// The object is too large to be read. Contains its size in bytes.
    #[error("the object has {0} bytes, which is more than the limit for one object")]
    TooLarge(u64),
    /// The object cannot be read.
    #[error(transparent)]
    Unreadable(#[from] DocError),
}
