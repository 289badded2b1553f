//! Whether the list of operations is complete, in the words that the server sends and the
//! plugin reads: the text of the `Warning` header on lists (RFC 7234, section 5.5).

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Rule sets that the text names; further ones are counted. kubectl prints the text in one
/// line, and a header has to stay below what proxies accept.
const MAX_NAMED: usize = 10;

const NONE_INSTALLED: &str = "no rule set is installed, so no operation can be detected";
const NOT_CURRENT: &str = "this server has not been up to date for more than 15 s, operations may \
                           be missing or over";
const NOT_READ: &str = "the rule sets have not been read yet, operations may be missing";

/// The header of a list or watch of operations that no rule set makes incomplete. Without it
/// and without a warning, nothing is known: an older server sends neither.
pub const COMPLETE_HEADER: &str = "ifo-complete";

/// Which rule sets may miss operations at present.
pub trait Completeness: Send + Sync + 'static {
    /// The rule sets that may miss operations which would be listed in `namespace`; empty
    /// for all namespaces.
    fn gaps(&self, namespace: &str) -> Gaps;
}

/// The answer of [`Completeness::gaps`].
#[derive(Clone, Debug, Default)]
pub struct Gaps {
    /// Whether the rule sets of the cluster are known.
    pub read: bool,
    /// How many rule sets there are.
    pub total: usize,
    /// Those that may miss operations, by name.
    pub rule_sets: Vec<Gap>,
}

/// The same answer for every namespace.
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
    /// Why, as in [`Named::reason`].
    pub reason: String,
    /// The component of the operations; empty if it is not known.
    pub component: Arc<str>,
    /// Kind of the subjects, if it is known.
    pub kind: Option<Arc<str>>,
    /// The operations that may be missing; empty if they are not known.
    pub operations: Vec<Arc<str>>,
}

/// Why operations may be missing from a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Incomplete {
    /// There is no rule set in the cluster.
    NoRuleSets,
    /// The server does not know the rule sets of the cluster yet.
    NotRead,
    /// No server detects operations, or the one that answers does not reach it.
    NotCurrent,
    /// Some rule sets do not work.
    NotWorking(NotWorking),
}

/// The rule sets that do not work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotWorking {
    /// How many do not work.
    pub count: usize,
    /// How many there are, those that do not work included.
    pub total: usize,
    /// Their names, each with the reason. Empty for users who may not list rule sets. In a
    /// text that was parsed, there may be fewer names than [`NotWorking::count`].
    pub named: Vec<Named>,
}

/// A rule set that does not work.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Named {
    /// Its name.
    pub name: String,
    /// Why it does not work, in a few words without a comma or a parenthesis.
    pub reason: String,
}

impl NotWorking {
    /// `2 of 61 rule sets are not working`.
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

    /// `: tekton-rules (does not compile), …`, or nothing if no name is known.
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

/// The text of the header.
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

/// The text of a header that this server did not write.
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
    fn text_reads_back_as_what_it_says() {
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
        // Of many, ten are named and all are counted.
        let text = not_working(12, 61, 12).to_string();
        assert!(text.ends_with("set-9 (does not compile), 2 more"), "{text}");
        let Ok(Incomplete::NotWorking(read)) = text.parse() else {
            panic!("{text}");
        };
        assert_eq!((read.count, read.total, read.named.len()), (12, 61, 10));
    }

    #[test]
    fn other_warnings_are_told_apart() {
        for text in [
            "",
            "v1beta1 is deprecated",
            "x of y rule sets are not working",
        ] {
            assert!(text.parse::<Incomplete>().is_err(), "{text}");
        }
    }
}
