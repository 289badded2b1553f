//! The reasons for which operations end, with their states and messages.

use ifo_api::live::State;
use std::sync::Arc;

/// Why an operation ended. It is the `reason` of the completed operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// No rule detected it during the debounce period.
    NotDetected,
    /// The same, because its subject's labels no longer match the selector.
    SelectorLeft,
    /// The rule's `outcome` yielded a value. Contains the last message.
    Outcome(State, Arc<str>),
    /// The operation with this name superseded it.
    Superseded(Arc<str>),
    /// Another run of the operation replaced it.
    Replaced,
    /// The subject was deleted.
    SubjectDeleted,
    /// No rule detects this operation any more.
    RuleRemoved,
    /// The target is no longer served.
    TargetRemoved,
}

impl End {
    /// The CamelCase reason.
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

    /// The state of the completed operation.
    pub fn state(&self) -> State {
        match self {
            Self::Outcome(state, ..) => *state,
            Self::Superseded(_) => State::Superseded,
            _ => State::Ended,
        }
    }

    /// The message for people.
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
