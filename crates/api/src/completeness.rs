//! Tells if a list of operations is complete. The server sends this as the text of the `Warning`
//! header (RFC 7234, section 5.5), and the plugin parses it.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Largest number of rule sets that the text names. Further ones are only counted. kubectl prints
/// the text on one line, and proxies limit the size of headers.
const MAX_NAMED: usize = 10;

const NONE_INSTALLED: &str = "no rule set is installed, so no operation can be detected";
const NOT_CURRENT: &str = "this server has not been up to date for more than 15 s, operations may \
                           be missing or over";
const NOT_READ: &str = "the rule sets have not been read yet, operations may be missing";

/// The header of a complete list or watch of operations. If an answer has neither this header nor a
/// warning, its completeness is unknown, because an older server sends neither.
pub const COMPLETE_HEADER: &str = "ifo-complete";

/// Returns the rule sets that may miss operations at present.
pub trait Completeness: Send + Sync + 'static {
    /// Returns the rule sets that may miss operations in `namespace`. It is empty for all
    /// namespaces.
    fn gaps(&self, namespace: &str) -> Gaps;
}

/// The answer of [`Completeness::gaps`].
#[derive(Clone, Debug, Default)]
pub struct Gaps {
    /// True if the rule sets of the cluster are known.
    pub read: bool,
    /// Number of rule sets.
    pub total: usize,
    /// The rule sets that may miss operations, by name.
    pub rule_sets: Vec<Gap>,
}

/// A constant answer for every namespace.
impl Completeness for Gaps {
    fn gaps(&self, _namespace: &str) -> Gaps {
        self.clone()
    }
}

/// A rule set that may miss operations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Its name.
    pub rule_set: Arc<str>,
    /// The reason, as in [`Named::reason`].
    pub reason: String,
    /// The component of the operations; empty if it is not known.
    pub component: Arc<str>,
    /// Kind of the subjects, if it is known.
    pub kind: Option<Arc<str>>,
    /// The operations that may be missing; empty if they are not known.
    pub operations: Vec<Arc<str>>,
}

/// The reason for which operations may be missing from a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Incomplete {
    /// The cluster has no rule set.
    NoRuleSets,
    /// The server does not know the rule sets of the cluster yet.
    NotRead,
    /// No server detects operations, or the answering server does not reach the server that does.
    NotCurrent,
    /// Some rule sets do not work.
    NotWorking(NotWorking),
}

/// The rule sets that do not work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotWorking {
    /// Number of rule sets that do not work.
    pub count: usize,
    /// Number of all rule sets.
    pub total: usize,
    /// Their names, each with the reason. Empty for users who may not list rule sets. A parsed text
    /// can have fewer names than [`NotWorking::count`].
    pub named: Vec<Named>,
}

/// A rule set that does not work.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Named {
    /// Its name.
    pub name: String,
    /// The reason in a few words, without a comma or a parenthesis.
    pub reason: String,
}

impl NotWorking {
    /// Formats `2 of 61 rule sets are not working`.
    pub fn summary(&self) -> String {
        let (sets, are) = match (self.total, self.count) {
            (1, _) => ("set", "is"),
            (_, 1) => ("sets", "is"),
            _ => ("sets", "are"),
        };
        format!(
            "{} of {} rule {sets} {are} not working",
            self.count, self.total
        )
    }

    /// Formats `: tekton-rules (does not compile), …`. Empty if no name is known.
    pub fn names(&self) -> String {
        if self.named.is_empty() {
            return String::new();
        }
        let shown = self.named.iter().take(MAX_NAMED);
        let mut all: Vec<String> = shown
            .map(|it| format!("{} ({})", it.name, it.reason))
            .collect();
        match self.count.saturating_sub(all.len()) {
            0 => {}
            more => all.push(format!("{more} more")),
        }
        format!(": {}", all.join(", "))
    }
}

/// Formats the text of the header.
impl fmt::Display for Incomplete {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRuleSets => f.write_str(NONE_INSTALLED),
            Self::NotRead => f.write_str(NOT_READ),
            Self::NotCurrent => f.write_str(NOT_CURRENT),
            Self::NotWorking(sets) => {
                let (summary, names) = (sets.summary(), sets.names());
                write!(f, "{summary}, operations may be missing{names}")
            }
        }
    }
}

/// The text of a header that another server wrote.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("this is no text about rule sets")]
pub struct AnotherText;

impl FromStr for Incomplete {
    type Err = AnotherText;

    fn from_str(text: &str) -> Result<Self, AnotherText> {
        match text {
            NONE_INSTALLED => return Ok(Self::NoRuleSets),
            NOT_READ => return Ok(Self::NotRead),
            NOT_CURRENT => return Ok(Self::NotCurrent),
            _ => {}
        }
        let (summary, names) = text
            .split_once(" not working, operations may be missing")
            .ok_or(AnotherText)?;
        let mut words = summary.split(' ');
        let mut number = || words.find_map(|word| word.parse().ok()).ok_or(AnotherText);
        let (count, total) = (number()?, number()?);
        let named = names
            .trim_start_matches(": ")
            .split(", ")
            .filter_map(|one| {
                let (name, reason) = one.strip_suffix(')')?.split_once(" (")?;
                Some(Named {
                    name: name.to_owned(),
                    reason: reason.to_owned(),
                })
            })
            .collect();
        Ok(Self::NotWorking(NotWorking {
            count,
            total,
            named,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn not_working(count: usize, total: usize, names: usize) -> Incomplete {
        let named = (0..names).map(|number| Named {
            name: format!("set-{number}"),
            reason: "does not compile".to_owned(),
        });
        Incomplete::NotWorking(NotWorking {
            count,
            total,
            named: named.collect(),
        })
    }

    #[test]
    fn text_is_one_plain_sentence() {
        for (incomplete, text) in [
            (
                not_working(2, 61, 2),
                "2 of 61 rule sets are not working, operations may be missing: \
                 set-0 (does not compile), set-1 (does not compile)",
            ),
            (
                not_working(1, 61, 0),
                "1 of 61 rule sets is not working, operations may be missing",
            ),
            (
                not_working(1, 1, 0),
                "1 of 1 rule set is not working, operations may be missing",
            ),
        ] {
            assert_eq!(incomplete.to_string(), text);
        }
    }

    #[test]
    fn warning_text_is_parsed_back_to_its_value() {
        for incomplete in [
            Incomplete::NoRuleSets,
            Incomplete::NotRead,
            Incomplete::NotCurrent,
            not_working(2, 61, 2),
            not_working(2, 61, 0),
            not_working(10, 10, 10),
        ] {
            let text = incomplete.to_string();
            assert_eq!(text.parse::<Incomplete>().unwrap(), incomplete, "{text}");
        }
        // At most ten are named, and all are counted.
        let text = not_working(12, 61, 12).to_string();
        assert!(text.ends_with("set-9 (does not compile), 2 more"), "{text}");
        let Ok(Incomplete::NotWorking(read)) = text.parse() else {
            panic!("{text}");
        };
        assert_eq!((read.count, read.total, read.named.len()), (12, 61, 10));
    }

    #[test]
    fn other_warnings_are_not_parsed() {
        for text in [
            "",
            "v1beta1 is deprecated",
            "x of y rule sets are not working",
        ] {
            assert!(text.parse::<Incomplete>().is_err(), "{text}");
        }
    }
}
