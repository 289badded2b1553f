//! The reasons why operations complete, and the state and message that a completed operation shows
//! for each reason.

use ifo_api::Text;
use ifo_api::live::{FAILED_WITHOUT_CAUSE, State, cut_message};

/// The reason why an operation completed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// No rule detected the operation during the debounce period.
    NotDetected,
    /// No rule detected the operation during the debounce period, because the labels of the object
    /// no longer match the label selector.
    SelectorLeft,
    /// The rule's `outcome` yielded this state. The text is about the end, such as the cause of a
    /// failure. It may be empty.
    Outcome(State, Text),
    /// The rule's `outcome` yielded `Succeeded`, but the operation of this rule is a problem and
    /// not work. So the problem is over. The text is about the end. It may be empty.
    Recovered(Text),
    /// The operation with this name superseded the completed operation.
    Superseded(Text),
    /// Another run of the operation started.
    Replaced,
    /// The object was deleted.
    SubjectDeleted {
        /// True if the purpose of the operation was that the object is deleted.
        is_success: bool,
    },
    /// No rule can detect the operation any more. For example, its rule was removed, or its rule
    /// set no longer watches the namespace of the object.
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
            Self::Recovered(_) => "Recovered",
            Self::Replaced => "Replaced",
            Self::SubjectDeleted { .. } => "SubjectDeleted",
            Self::RuleRemoved => "RuleRemoved",
            Self::TargetRemoved => "TargetRemoved",
        }
    }

    /// Returns the `state` of the completed operation.
    pub fn state(&self) -> State {
        match self {
            Self::Outcome(state, ..) => *state,
            Self::SubjectDeleted { is_success: true } => State::Succeeded,
            Self::Superseded(_) => State::Superseded,
            _ => State::Ended,
        }
    }

    /// Returns the last message of the operation. `before` is its last message while it was in
    /// flight.
    ///
    /// At the end, the object has already changed, so the rule's `message` may no longer be true.
    /// For example, the message of a completed upgrade would describe an upgrade from the new
    /// version to the new version. So the last message contains `before`.
    pub fn message(&self, before: &str) -> String {
        let about_end = self.about_end();
        if before.is_empty() || about_end.contains(before) {
            return about_end;
        }
        let stop = if about_end.ends_with(['.', '!', '?']) {
            ""
        } else {
            "."
        };
        cut_message(&format!("{about_end}{stop} Before: {before}")).into_owned()
    }

    /// Returns the sentence about the end.
    fn about_end(&self) -> String {
        let fixed = match self {
            Self::NotDetected => "No rule detects the operation any more.",
            Self::SelectorLeft => {
                "The labels of the subject no longer match the label selector of the rule set."
            }
            Self::Outcome(_, text) | Self::Recovered(text) if !text.is_empty() => text,
            Self::Outcome(State::Failed, ..) => FAILED_WITHOUT_CAUSE,
            Self::Outcome(State::Superseded, ..) => {
                "The subject reports that the operation was superseded."
            }
            Self::Outcome(..) => "Succeeded.",
            Self::Recovered(_) => "The subject no longer reports this problem.",
            Self::Superseded(by) => return format!("Superseded by {by}."),
            Self::Replaced => "Another run of the operation took over.",
            Self::SubjectDeleted { .. } => "The subject was deleted.",
            Self::RuleRemoved => {
                "The rule was removed, or its rule set no longer watches the subject."
            }
            Self::TargetRemoved => "The subject's resource is no longer served.",
        };
        fixed.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(state: State, text: &str) -> End {
        End::Outcome(state, text.into())
    }

    #[test]
    fn the_last_message_keeps_what_the_operation_said_in_flight() {
        for (end, before, expected) in [
            (
                outcome(State::Succeeded, ""),
                "From 1 to 2",
                "Succeeded. Before: From 1 to 2",
            ),
            (
                outcome(State::Succeeded, "Runs 2"),
                "From 1 to 2",
                "Runs 2. Before: From 1 to 2",
            ),
            (
                outcome(State::Failed, "No space left."),
                "3 of 10 volumes",
                "No space left. Before: 3 of 10 volumes",
            ),
            (
                End::Superseded("Stopping".into()),
                "Boots",
                "Superseded by Stopping. Before: Boots",
            ),
            (
                End::NotDetected,
                "a to b",
                "No rule detects the operation any more. Before: a to b",
            ),
        ] {
            assert_eq!(end.message(before), expected);
        }
    }

    #[test]
    fn the_last_message_says_nothing_twice() {
        let failed = outcome(State::Failed, "No space left: retried 3 times");
        for before in ["", "No space left", "No space left: retried 3 times"] {
            assert_eq!(failed.message(before), "No space left: retried 3 times");
        }
        assert_eq!(outcome(State::Succeeded, "").message(""), "Succeeded.");
    }

    #[test]
    fn the_last_message_has_a_maximum_length() {
        let long = "é".repeat(1024);
        let message = End::Replaced.message(&long);
        assert!(message.chars().count() == 1024 && message.ends_with("é…"));
    }
}
