//! Finds the operations that an argument of `describe` names. If no operation of this name is served
//! any more, finds the record of the operation that has ended.

use crate::discovered_kinds::Kinds;
use crate::history::selected_records;
use crate::listed_operation::{ListedOperation, operation_name_in};
use crate::operation_source::OperationSource;
use crate::output::complain;
use crate::problem::Problem;
use crate::resource_argument::ResourceArgument;
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// An argument of `describe`.
pub(super) enum DescribeArgument<'a> {
    /// The name of an operation.
    Operation(&'a str),
    /// The subject of operations: `KIND/NAME`.
    Subject(ResourceArgument),
}

impl<'a> DescribeArgument<'a> {
    pub(super) async fn parse(text: &'a str, kinds: &Kinds) -> Result<Self, Problem> {
        if let Some(name) = operation_name_in(text) {
            return Ok(Self::Operation(name));
        }
        let mut resource: ResourceArgument = text.parse().map_err(Problem::Usage)?;
        resource.resolve(kinds).await;
        Ok(Self::Subject(resource))
    }

    fn names(&self, operation: &ListedOperation) -> bool {
        match self {
            Self::Operation(name) => operation.name == *name,
            Self::Subject(resource) => {
                let item_fits = resource.item.is_none() || resource.item == operation.item;
                item_fits && resource.matches_subject(&operation.subject)
            }
        }
    }

    /// Returns the indexes of the operations that the argument names, completed operations last.
    pub(super) fn find(&self, operations: &[ListedOperation]) -> Vec<usize> {
        let named = operations
            .iter()
            .enumerate()
            .filter(|(_, it)| self.names(it));
        let mut found: Vec<usize> = named.map(|(number, _)| number).collect();
        found.sort_by_key(|number| {
            let it = &operations[*number];
            (!it.active, it.subject.namespace.clone(), it.started)
        });
        found
    }

    /// Returns the record of the operation that the argument names. If the argument names a subject,
    /// returns the newest record of each subject of this kind and name. If there is no record,
    /// returns an error. `operations` are the operations that the server still serves.
    pub(super) async fn records(
        &self,
        source: &OperationSource,
        operations: &[ListedOperation],
    ) -> Result<Vec<ListedOperation>, Problem> {
        let selector = match self {
            Self::Operation(name) => format!("metadata.name={}", escaped(name)),
            Self::Subject(resource) => format!("spec.subject.name={}", escaped(resource.name())),
        };
        let (mut records, why) = match selected_records(source, &selector).await {
            Ok(records) => (records, String::new()),
            // A server of an older release, and some files, have no records.
            Err(Problem::NoRecords { .. }) => (Vec::new(), String::new()),
            Err(problem) => (Vec::new(), format!("; records cannot be read: {problem}")),
        };
        records.retain(|it| self.names(it));
        if records.is_empty() {
            return Err(self.not_found(source, operations, &why).await);
        }
        let all = records.len();
        let note = match self {
            Self::Operation(_) => "the operation has ended; showing its record".to_owned(),
            Self::Subject(resource) => {
                keep_newest_of_each_subject(&mut records);
                let earlier = match all - records.len() {
                    0 => String::new(),
                    count => {
                        format!("; number of earlier records: {count}, see: kubectl ifo history")
                    }
                };
                format!(
                    "no operation on {resource} is in flight; showing the newest record{earlier}"
                )
            }
        };
        complain("note", note);
        Ok(records)
    }

    async fn not_found(
        &self,
        source: &OperationSource,
        operations: &[ListedOperation],
        why: &str,
    ) -> Problem {
        Problem::NotFound(match self {
            Self::Operation(name) => format!(
                "there is no operation {name:?}{why}; see: kubectl ifo list -A -O name, or name a \
                 resource as Kind/name"
            ),
            Self::Subject(resource) => {
                let unknown = resource.unknown_kind_message(source, operations).await;
                let unknown = unknown.map(|it| format!(" ({it})")).unwrap_or_default();
                format!(
                    "there is no operation on {resource}{unknown}{why}; see what there is: kubectl \
                     ifo list -A"
                )
            }
        })
    }
}

/// Escapes the value of a field selector.
fn escaped(value: &str) -> String {
    let mut escaped = String::new();
    for c in value.chars() {
        if matches!(c, '\\' | ',' | '=') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

/// Objects in several namespaces can have the same kind and name. Keeps the newest record of each
/// object.
fn keep_newest_of_each_subject(records: &mut Vec<ListedOperation>) {
    records.sort_by_key(|it| Reverse(it.completed));
    let mut seen = BTreeSet::new();
    records.retain(|it| {
        let subject = it.subject.clone();
        seen.insert((subject.namespace, subject.api_version, subject.kind))
    });
}
