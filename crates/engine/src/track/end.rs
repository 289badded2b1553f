//! Why operations end, and what is said of it.

use ifo_api::live::State;
use std::sync::Arc;

/// Why an operation ended: the `reason` of a completed one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// No rule detected it for the debounce.
    NotDetected,
    /// The same, since its subject's labels left the selection.
    SelectorLeft,
    /// The rule's `outcome` told how it ended, with the message then.
    Outcome(State, Arc<str>),
    /// Another operation of the subject, of this name, took over.
    Superseded(Arc<str>),
    /// Another run of the same operation took over.
    Replaced,
    /// The subject is gone.
    SubjectDeleted,
    /// No rule is about it any more.
    RuleRemoved,
    /// The target's resource is not served any more.
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

    /// The state it leaves the operation in.
    pub fn state(&self) -> State {
        match self {
            Self::Outcome(state, ..) => *state,
            Self::Superseded(_) => State::Superseded,
            _ => State::Ended,
        }
    }

    /// What a person reads.
    pub fn message(&self) -> String {
        let fixed = match self {
            Self::NotDetected => "No rule detects the operation any more.",
            Self::SelectorLeft => "The subject's labels are no longer those that are selected.",
            Self::Outcome(_, message) if !message.is_empty() => message,
            Self::Outcome(State::Failed, ..) => "The subject says that the operation failed.",
            Self::Outcome(State::Superseded, ..) => {
                "The subject says that the operation was superseded."
            }
            Self::Outcome(..) => "The subject says that the operation succeeded.",
            Self::Superseded(by) => return format!("Superseded by {by}."),
            Self::Replaced => "Another run of the operation took over.",
            Self::SubjectDeleted => "The subject was deleted.",
            Self::RuleRemoved => "The rule that detected the operation was removed.",
            Self::TargetRemoved => "The subject's resource is no longer served.",
        };
        fixed.to_owned()
    }
}
