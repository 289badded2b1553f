//! The errors that an evaluation of a rule can return. The status of the rule set shows their
//! texts.

use ifo_cel::{DocError, EvaluationFault};

/// The reason why an expression of a rule has no valid value for an object, or why the whole object
/// cannot be evaluated. The texts contain types, lengths and positions, but never a value of the
/// object. The reason: some users may read the rule set, but not the object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvaluationError {
    /// The evaluation of the expression failed.
    #[error(transparent)]
    Expression(#[from] EvaluationFault),
    /// The rules need more steps than the share of the rule set.
    #[error(
        "evaluation cost limit exceeded: the rule set may use {} of {} steps on the object \
         (components: {}, rule sets of this component: {})",
        .0.steps, ifo_cel::STEPS_PER_OBJECT, .0.components, .0.rule_sets
    )]
    Steps(StepShare),
    /// The `state` is invalid. Contains its length in characters.
    #[error(
        "expected Progressing, Blocked, Held or Failing, found another string of {0} characters"
    )]
    State(usize),
    /// The `reason` is invalid. Contains its length in characters.
    #[error(
        "expected at most 128 letters and digits in CamelCase, found another string of {0} characters"
    )]
    Reason(usize),
    /// The `outcome` is invalid. Contains its length in characters.
    #[error(
        "expected Succeeded, Failed, Superseded or an empty string, found another string of {0} characters"
    )]
    Outcome(usize),
    /// The rule has no `itemKey`, and an element cannot be a key. Contains the index of the element.
    #[error(
        "the rule needs an itemKey such as item.name, because element {0} is neither a string nor an int"
    )]
    NoKey(usize),
    /// The `itemKey` is empty or too long. Contains its length in bytes.
    #[error("expected a string of 1 to 253 bytes, found {0} bytes")]
    KeyLength(usize),
    /// Two elements have the same `itemKey`. Contains the index of the later element.
    #[error(
        "expected a different key for each element, but element {0} has the key of an earlier element"
    )]
    KeyTwice(usize),
    /// The list of `forEach` has too many elements.
    #[error("expected at most 1000 elements, found more")]
    TooManyElements,
    /// The text of another field, such as `instance`, is too long.
    #[error("expected a string of at most {limit} {unit}, found {length} {unit}")]
    TextLength {
        /// The maximum length.
        limit: usize,
        /// The length of the text.
        length: usize,
        /// The unit of both lengths, such as `bytes`.
        unit: &'static str,
    },
    /// A word of `cancel` is not printable. Contains the index of the word.
    #[error("expected printable ASCII characters, found others in word {0} of the command")]
    CommandWord(usize),
    /// The command line of `cancel` is too long. Contains its length in bytes.
    #[error("expected a command line of at most 1024 bytes, found {0} bytes")]
    CommandLength(usize),
    /// The object cannot be decoded.
    #[error(transparent)]
    Unreadable(#[from] DocError),
}

/// The share of a rule set of the evaluation steps for one object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepShare {
    /// The number of steps that the rule set may use.
    pub steps: u64,
    /// The number of rule sets of the component that cover the object.
    pub rule_sets: u32,
    /// The number of components whose rule sets cover the object.
    pub components: u32,
}
