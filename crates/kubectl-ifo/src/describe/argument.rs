//! Finds the operations that an argument of `describe` names. If no operation of this name is
//! served any more, finds the record of the operation that has ended.

use crate::discovered_kinds::Kinds;
use crate::history::records;
use crate::operation::{InFlightOperation, OperationFacts as _, operation_name_in};
use crate::operation_source::OperationSource;
use crate::output::complain;
use crate::problem::Problem;
use crate::resource_argument::ResourceArgument;
use std::cmp::Reverse;

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

    fn names(&self, operation: &InFlightOperation) -> bool {
        match self {
            Self::Operation(name) => operation.metadata.name == *name,
            Self::Subject(resource) => {
                let item = operation.spec.item.as_deref();
                let item_fits = resource.item.is_none() || resource.item.as_deref() == item;
                item_fits && resource.matches(&operation.spec.subject)
            }
        }
    }

    /// Returns the operations that the argument names, completed operations last. If the server no
    /// longer serves such an operation, returns the record of the operation that has ended. For a
    /// subject, this is the newest record. `operations` are
    /// the operations that the server serves.
    pub(super) async fn find(
        &self,
        source: &OperationSource,
        operations: &[InFlightOperation],
    ) -> Result<Vec<InFlightOperation>, Problem> {
        let named = operations.iter().filter(|it| self.names(it)).cloned();
        let mut found: Vec<InFlightOperation> = named.collect();
        found.sort_by_key(|it| {
            (
                !it.is_active(),
                it.spec.subject.namespace.clone(),
                it.started(),
            )
        });
        if !found.is_empty() {
            return Ok(found);
        }
        let selector = match self {
            Self::Operation(name) => format!("metadata.name={name}"),
            Self::Subject(resource) => format!("spec.subject.name={}", resource.name()),
        };
        let (mut records, why) = match records(source, &selector).await {
            Ok(records) => (records, String::new()),
            // A server of an older release, and some files, have no records.
            Err(Problem::NotFound(_)) => (Vec::new(), String::new()),
            Err(problem) => (Vec::new(), format!("; records cannot be read: {problem}")),
        };
        records.retain(|it| self.names(it));
        if records.is_empty() {
            return Err(self.not_found(source, operations, &why).await);
        }
        records.sort_by_key(|it| Reverse(it.completed()));
        records.truncate(1);
        complain(
            "note",
            "no such operation is in flight; showing the newest record; see: kubectl ifo history",
        );
        Ok(records)
    }

    async fn not_found(
        &self,
        source: &OperationSource,
        operations: &[InFlightOperation],
        why: &str,
    ) -> Problem {
        let what = match self {
            Self::Operation(name) => format!("operation {name:?}"),
            Self::Subject(resource) => match resource.check_kind(source, operations).await {
                Ok(()) => format!("operation on {resource}"),
                Err(problem) => return problem,
            },
        };
        let see = "see what there is: kubectl ifo list -A";
        Problem::NotFound(format!("there is no {what}{why}; {see}"))
    }
}
