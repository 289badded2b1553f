//! Computes the name and the UID of an operation. Both depend only on the subject, the operation
//! and its start, so that each leader computes the same values.

use super::Operation;
use crate::detect::Subject;
use crate::track::superseded_operations::OperationName;
use ifo_api::{Key, Text, labels};
use uuid::Uuid;

/// Maximum length of an object's name, in bytes (`validation.DNS1123SubdomainMaxLength` in
/// apimachinery).
const MAX_NAME: usize = 253;

/// Number of hexadecimal digits of the hash in the name of an operation. The author of a rule set
/// can choose the component and the item, so the author can try out many hashes. With 16 digits (64
/// bits), it takes too long to find the hash of another operation.
const NAME_DIGITS: usize = 16;

/// UUID namespace for the UIDs of operations, which are UUIDs of version 5. This value must never
/// change, so that an operation has the same UID on every replica and after every restart.
const UID_NAMESPACE: Uuid = Uuid::from_u128(0x6f1d_3b8e_52c4_5f0a_9c61_2a7e_84d0_b35f);

impl Operation {
    /// Returns the key (namespace and name) and the UID of an operation. `identity` is the identity
    /// of the subject. `seconds` is the start time, in seconds since 1970. An operation on a
    /// cluster-scoped subject gets the namespace `cluster_namespace`.
    ///
    /// The component is a part of the hash. So if rule sets of two components detect the same
    /// operation on one subject, the two operations have different names.
    pub(super) fn key_and_uid(
        identity: &str,
        subject: &Subject,
        cluster_namespace: &Text,
        what: &OperationName,
        seconds: i64,
    ) -> (Key, Uuid) {
        let component = &what.component;
        let operation = &what.operation;
        let id = match &what.item {
            Some(item) => format!("{identity}/{component}/{operation}/{item}/{seconds}"),
            None => format!("{identity}/{component}/{operation}/{seconds}"),
        };
        let subject = &subject.reference;
        let namespace = subject.namespace.as_ref().unwrap_or(cluster_namespace);
        let hash = labels::hash(id.as_bytes(), NAME_DIGITS);
        let name = object_name(&subject.name, operation, &hash);
        let key = Key {
            namespace: namespace.clone(),
            name: name.into(),
        };
        (key, Uuid::new_v5(&UID_NAMESPACE, id.as_bytes()))
    }
}

/// Returns `<subject>-<operation>-<hash>` as a valid DNS subdomain, such as
/// `my-vm-migrating-3f9c2a1b5e6d7f80`. Replaces each invalid character with `-`, and truncates a
/// long subject.
fn object_name(subject: &str, operation: &str, hash: &str) -> String {
    let clean = |text: &str| {
        let is_other = |c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '.');
        text.to_ascii_lowercase().replace(is_other, "-")
    };
    // The operation is a label value, so it has at most 63 bytes and may contain dots. In a name, a
    // dot needs a letter or a digit on both sides. So the dots of the operation are replaced.
    let operation = clean(operation).replace('.', "-");
    let rest = operation.len() + hash.len() + 2;
    let mut subject: String = clean(subject).chars().take(MAX_NAME - rest).collect();
    // The name must begin and end with a letter or a digit. The same applies to each part of the
    // name between dots.
    subject = subject.trim_matches(|c| c == '-' || c == '.').to_owned();
    if !labels::is_subdomain(&subject) {
        subject = subject.replace('.', "-");
    }
    if subject.is_empty() {
        return format!("{operation}-{hash}")
            .trim_start_matches('-')
            .to_owned();
    }
    format!("{subject}-{operation}-{hash}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operation_names_are_valid_for_every_subject_name() {
        let long = "x".repeat(300);
        let dotted = format!("{}.b", "a".repeat(252));
        for subject in [
            "my-vm",
            "system:node:a",
            "A_B",
            "a.b.c",
            "-",
            "..",
            "a..b",
            "é",
            &long,
            &dotted,
        ] {
            for operation in ["Migrating", "A.B", "a_b", &"Y".repeat(63)] {
                let name = object_name(subject, operation, "3f9c2a1b5e6d7f80");
                assert!(labels::is_subdomain(&name), "{name}");
                assert!(name.ends_with("-3f9c2a1b5e6d7f80"), "{name}");
            }
        }
        assert_eq!(
            object_name("my-vm", "Migrating", "3f9c2a1b5e6d7f80"),
            "my-vm-migrating-3f9c2a1b5e6d7f80"
        );
    }
}
