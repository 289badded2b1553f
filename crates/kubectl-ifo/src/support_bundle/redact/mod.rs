//! Redacts the objects, logs and metrics of a support bundle: hides private names and messages.
//!
//! The redactor keeps times. It keeps another text only if a list in this module allows the text or
//! its field. So the texts of a new field are hidden until a developer allows the field.
//!
//! | text | in the bundle |
//! | --- | --- |
//! | a name | a pseudonym. Equal names have equal pseudonyms within one bundle |
//! | a UID | a pseudonym with the form of a UID |
//! | a message or an expression | `<redacted, N characters>` |
//! | a time | unchanged |
//! | an allowed field that has an allowed form | unchanged |
//! | a public name, such as that of a shipped rule set | unchanged |

mod fields;
mod lines;
mod public;

pub(super) use fields::ObjectPolicy;

use public::PublicNames;
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;
use uuid::Uuid;

/// Number of bytes of the hash in a pseudonym. Among 50,000 names, the probability that any two
/// names have the same pseudonym is 5 in a million.
const PSEUDONYM_BYTES: usize = 6;

/// Prefix of the names of service accounts, in front of `NAMESPACE:NAME`.
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// Hides names and messages, or keeps them if the user wants the texts.
#[derive(Debug)]
pub(super) struct Redactor {
    /// A random key. A pseudonym is a hash of the key and the name. The bundle does not contain the
    /// key, so a reader cannot compute the pseudonyms of guessed names. None if all texts are kept.
    key: Option<[u8; 32]>,
    public: PublicNames,
}

impl Redactor {
    /// Creates a redactor with a new random key. If `includes_text` is true, all texts are kept.
    pub(super) fn new(includes_text: bool) -> Self {
        let key = || {
            let mut key = [0; 32];
            key[..16].copy_from_slice(Uuid::new_v4().as_bytes());
            key[16..].copy_from_slice(Uuid::new_v4().as_bytes());
            key
        };
        Self {
            key: (!includes_text).then(key),
            public: PublicNames::default(),
        }
    }

    /// Returns true if names and messages are hidden.
    pub(super) fn is_active(&self) -> bool {
        self.key.is_some()
    }

    fn hash(&self, text: &str) -> Option<[u8; 32]> {
        let key = self.key?;
        Some(
            Sha256::new()
                .chain_update(key)
                .chain_update(text)
                .finalize()
                .into(),
        )
    }

    /// Returns the pseudonym of a name. Empty names and public names are unchanged.
    pub(super) fn name(&self, name: &str) -> String {
        if name.is_empty() || self.public.has_name(name) {
            return name.to_owned();
        }
        if let Some((namespace, account)) = name
            .strip_prefix(SERVICE_ACCOUNT)
            .and_then(|it| it.split_once(':'))
        {
            return format!(
                "{SERVICE_ACCOUNT}{}:{}",
                self.name(namespace),
                self.name(account)
            );
        }
        let Some(hash) = self.hash(name) else {
            return name.to_owned();
        };
        let mut pseudonym = "name-".to_owned();
        for byte in &hash[..PSEUDONYM_BYTES] {
            write!(pseudonym, "{byte:02x}").expect("writing to a String cannot fail");
        }
        pseudonym
    }

    /// Returns the pseudonym of a UID.
    fn uid(&self, uid: &str) -> String {
        match self.hash(uid) {
            Some(hash) => {
                let bytes = hash
                    .first_chunk::<16>()
                    .expect("a SHA-256 hash has 32 bytes");
                uuid::Builder::from_random_bytes(*bytes)
                    .into_uuid()
                    .to_string()
            }
            None => uid.to_owned(),
        }
    }

    /// Hides a message. Only its length is kept.
    pub(super) fn text(&self, text: &str) -> String {
        if text.is_empty() || !self.is_active() {
            return text.to_owned();
        }
        format!("<redacted, {} characters>", text.chars().count())
    }
}

/// Returns true if a text has the form of a word in an API: a reason, a state, a kind, a group or a
/// plural. A text in another form can be private, even if its field usually contains words of an
/// API.
fn is_token(text: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_./:+%*".contains(c);
    text.len() <= 253 && text.chars().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_names_have_equal_pseudonyms_only_within_a_bundle() {
        let (one, other) = (Redactor::new(false), Redactor::new(false));
        assert_eq!(one.name("payroll"), one.name("payroll"));
        assert_ne!(one.name("payroll"), one.name("payroll-2"));
        assert_ne!(one.name("payroll"), other.name("payroll"));
        assert!(ifo_api::labels::is_subdomain(&one.name("Payroll 日本")));
        assert_eq!(one.uid("x"), one.uid("x"));
        assert_ne!(one.uid("x"), other.uid("x"));
    }

    #[test]
    fn public_names_are_kept() {
        let redactor = Redactor::new(false);
        for name in ["", "kube-system", "ifo-system", "ifo-apiserver", "pods"] {
            let is_public = name != "pods";
            assert_eq!(redactor.name(name) == name, is_public, "{name}");
        }
        let account = redactor.name("system:serviceaccount:ifo-system:ifo-apiserver");
        assert_eq!(account, "system:serviceaccount:ifo-system:ifo-apiserver");
        let account = redactor.name("system:serviceaccount:payroll:robot");
        assert_eq!(
            account,
            format!(
                "system:serviceaccount:{}:{}",
                redactor.name("payroll"),
                redactor.name("robot")
            )
        );
    }

    #[test]
    fn with_text_everything_is_kept() {
        let redactor = Redactor::new(true);
        assert_eq!(redactor.name("payroll"), "payroll");
        assert_eq!(redactor.uid("x"), "x");
        assert_eq!(redactor.text("a message"), "a message");
        assert_eq!(
            Redactor::new(false).text("é message"),
            "<redacted, 9 characters>"
        );
    }
}
