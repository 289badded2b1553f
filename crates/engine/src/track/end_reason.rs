//! The reasons why operations complete, and the state and message that a completed operation shows
//! for each reason.

use ifo_api::live::State;
use std::sync::Arc;

/// The reason why an operation completed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// No rule detected the operation during the debounce period.
    NotDetected,
    /// No rule detected the operation during the debounce period, because the labels of the object
    /// no longer match the label selector.
    SelectorLeft,
    /// The rule's `outcome` yielded this state. The text is the result of the rule's `message`,
    /// which may be empty.
    Outcome(State, Arc<str>),
    /// The operation with this name superseded the completed operation.
    Superseded(Arc<str>),
    /// Another run of the operation started.
    Replaced,
    /// The object was deleted.
    SubjectDeleted,
    /// The rule that detected the operation was removed, and no other rule can detect the
    /// operation.
    RuleRemoved,
    /// The cluster no longer serves the resource of the object.
    TargetRemoved,
}

impl End {
    /// Returns the CamelCase `reason` of the completed operation.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NotDetected => "NotDetected",
            Self::SelectorLeft => "SelectorLeft",
            Self::Outcome(State::Failed, ..) => "Failed",
            Self::Superseded(_) | Self::Outcome(State::Superseded, ..) => "Superseded",
            Self::Outcome(..) => "Succeeded",
            Self::Replaced => "Replaced",
            Self::SubjectDeleted => "SubjectDeleted",
            Self::RuleRemoved => "RuleRemoved",
            Self::TargetRemoved => "TargetRemoved",
        }
    }

    /// Returns the `state` of the completed operation.
    pub fn state(&self) -> State {
        match self {
            Self::Outcome(state, ..) => *state,
            Self::Superseded(_) => State::Superseded,
            _ => State::Ended,
        }
    }

    /// Returns the `message` of the completed operation.
    pub fn message(&self) -> String {
        let fixed = match self {
            Self::NotDetected => "No rule detects the operation any more.",
            Self::SelectorLeft => {
                "The labels of the subject no longer match the label selector of the rule set."
            }
            Self::Outcome(_, message) if !message.is_empty() => message,
            Self::Outcome(State::Failed, ..) => "The subject reports that the operation failed.",
            Self::Outcome(State::Superseded, ..) => {
                "The subject reports that the operation was superseded."
            }
            Self::Outcome(..) => "The subject reports that the operation succeeded.",
            Self::Superseded(by) => return format!("Superseded by {by}."),
            Self::Replaced => "Another run of the operation took over.",
            Self::SubjectDeleted => "The subject was deleted.",
            Self::RuleRemoved => "The rule that detected the operation was removed.",
            Self::TargetRemoved => "The subject's resource is no longer served.",
        };
        fixed.to_owned()
    }
}
