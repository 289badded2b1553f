//! Parses a command-line argument `Kind/name`, and decides whether an object has this kind and
//! name. As in kubectl, the user can also type a plural or a short name, in upper or lower case. A
//! group can follow, such as in `virtualmachines.kubevirt.io/web`.

use crate::cluster::discovered_kinds::ChosenKind;
use crate::cluster::problem::Problem;
use crate::filters::filter::Filters;
use crate::filters::filter_check;
use crate::operations::operation::InFlightOperation;
use crate::operations::operation_source::OperationSource;
use ifo_api::live::SubjectReference;
use std::str::FromStr;

/// A kind and a name from a command-line argument. Objects in several namespaces can have this kind
/// and name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResourceArgument {
    /// The argument as the user typed it.
    pub(crate) text: String,
    pub(crate) kind: ChosenKind,
    /// The name of the object.
    pub(crate) name: String,
    /// The item in `Kind/name/item`: the part of the object that an operation is about, such as a
    /// disk.
    pub(crate) item: Option<String>,
}

impl FromStr for ResourceArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{text:?} does not have the form Kind/name, such as VirtualMachine/web");
        let (kind, name) = text.split_once('/').ok_or_else(wrong)?;
        let (name, item) = match name.split_once('/') {
            Some((name, item)) => (name, Some(item.to_owned())),
            None => (name, None),
        };
        let kind: ChosenKind = kind.parse().map_err(|_| wrong())?;
        if name.is_empty() {
            return Err(wrong());
        }
        Ok(Self {
            text: text.to_owned(),
            kind,
            name: name.to_owned(),
            item,
        })
    }
}

impl ResourceArgument {
    /// Returns true if the object has this kind and name.
    pub(crate) fn matches(&self, object: &SubjectReference) -> bool {
        let kind = &self.kind;
        *self.name == *object.name && kind.matches_object(&object.kind, &object.api_version)
    }

    /// Returns an error if the kind does not exist. Returns no error if this cannot be checked.
    pub(crate) async fn check_kind(
        &self,
        source: &OperationSource,
        listed: &[InFlightOperation],
    ) -> Result<(), Problem> {
        let filters = Filters {
            kind: vec![self.kind.clone()],
            ..Filters::default()
        };
        filter_check::check(&filters, source, listed).await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_resource_arguments_are_rejected() {
        for text in ["web", "/web", "VirtualMachine/", "", "/"] {
            assert!(text.parse::<ResourceArgument>().is_err(), "{text}");
        }
    }
}
