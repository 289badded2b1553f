//! Collects the operations, the records of completed operations, and the operations that are stored
//! as custom resources.

use super::{BundleCollection, BundleList, CUSTOM_RESOURCES, RECORDS_PART, failure_of};
use crate::api_client::ListCompleteness;
use crate::filter::Filters;
use crate::listed_operation::ListedOperation;
use crate::operation_source::{OperationSource, Served, escape};
use crate::support_bundle::index::{OperationsPart, PartResult};
use crate::support_bundle::limits::{OPERATIONS, RECORDS};
use crate::support_bundle::redact::ObjectPolicy;
use ifo_api::completeness::Incomplete;
use ifo_api::{GROUP, LIVE_GROUP, VERSION, live, record};
use serde_json::Value;

impl BundleCollection {
    /// Reads the operations in `namespace`. If `namespace` is None, reads the operations in all
    /// namespaces that the user may read.
    pub(super) async fn collect_operations(&mut self, namespace: Option<&String>) {
        let filters = Filters::all_in(namespace);
        let found = OperationSource::find(self.client.client.clone(), filters, true);
        let failure = match self.client.within(found).await {
            Ok(Ok((source, listed))) => {
                self.add_operations(&source, namespace, objects_of(&listed));
                return;
            }
            Ok(Err(problem)) => failure_of(&problem),
            Err(failure) => failure,
        };
        self.operations.result = failure.result;
        self.record_failure("operations", &failure);
    }

    fn add_operations(
        &mut self,
        source: &OperationSource,
        namespace: Option<&String>,
        list: BundleList,
    ) {
        let listed = match namespace {
            Some(namespace) => Some(vec![namespace.clone()]),
            None => source.namespaces.clone(),
        };
        self.listed_namespaces.clone_from(&listed);
        let completeness = source.completeness();
        let warning = match &completeness {
            ListCompleteness::Incomplete(incomplete) => Some(self.warning(incomplete)),
            ListCompleteness::Complete | ListCompleteness::NotStated => None,
        };
        self.operations = OperationsPart {
            result: if list.is_truncated {
                PartResult::Truncated
            } else {
                PartResult::Read
            },
            count: list.items.len(),
            namespaces: listed.map(|all| all.iter().map(|it| self.redactor.name(it)).collect()),
            is_complete: completeness == ListCompleteness::Complete && !list.is_truncated,
            warning,
        };
        let group = source.served.group();
        let kind = (&*format!("{group}/{VERSION}"), live::KIND);
        let path = format!("operations/{}.{group}.json", live::PLURAL);
        let what = match source.served {
            Served::Live => "operations",
            Served::Crs => CUSTOM_RESOURCES,
        };
        self.add_list(what, &path, kind, list, ObjectPolicy::Operation);
    }

    /// Returns the text of a warning about an incomplete list. Pseudonyms replace the names of rule
    /// sets if names are hidden.
    fn warning(&self, incomplete: &Incomplete) -> String {
        let mut incomplete = incomplete.clone();
        if let Incomplete::NotWorking(sets) = &mut incomplete {
            for named in &mut sets.named {
                named.name = self.redactor.name(&named.name);
            }
        }
        incomplete.to_string()
    }

    /// Reads the records of completed operations in `namespace`. If `namespace` is None, reads the
    /// records in the namespaces whose operations were listed.
    pub(super) async fn collect_records(&mut self, namespace: Option<&String>) {
        let path = format!("/apis/{LIVE_GROUP}/{VERSION}");
        let within = match (namespace, &self.listed_namespaces) {
            (Some(namespace), _) => vec![Some(namespace.clone())],
            (None, Some(namespaces)) => namespaces.iter().cloned().map(Some).collect(),
            (None, None) => vec![None],
        };
        let mut records = BundleList {
            items: Vec::new(),
            is_truncated: false,
        };
        for namespace in within {
            let room = RECORDS.saturating_sub(records.items.len());
            if room == 0 {
                records.is_truncated = true;
                break;
            }
            let within =
                namespace.map_or_else(String::new, |it| format!("/namespaces/{}", escape(&it)));
            let uri = format!("{path}{within}/{}", record::PLURAL);
            match self.list_at_most(&uri, room).await {
                Ok(list) => {
                    records.items.extend(list.items);
                    records.is_truncated |= list.is_truncated;
                }
                Err(failure) => return self.record_failure(RECORDS_PART, &failure),
            }
        }
        let kind = (&*format!("{LIVE_GROUP}/{VERSION}"), record::KIND);
        let path = format!("operations/{}.{LIVE_GROUP}.json", record::PLURAL);
        self.add_list(RECORDS_PART, &path, kind, records, ObjectPolicy::Operation);
    }

    /// Reads the operations that are stored as custom resources. In persistence mode, custom
    /// resources exist in addition to the operations that `ifo-apiserver` serves.
    ///
    /// If the cluster does not have the live API, the method `operations` has already read the
    /// custom resources. In this case, this method does nothing.
    pub(super) async fn collect_custom_resources(&mut self) {
        if self.parts.iter().any(|it| it.what == CUSTOM_RESOURCES) {
            return;
        }
        let uri = format!("/apis/{GROUP}/{VERSION}/{}", live::PLURAL);
        match self.list(&uri).await {
            Ok(list) => {
                let kind = (&*format!("{GROUP}/{VERSION}"), live::KIND);
                let path = format!("operations/{}.{GROUP}.json", live::PLURAL);
                self.add_list(CUSTOM_RESOURCES, &path, kind, list, ObjectPolicy::Operation);
            }
            Err(failure) => self.record_failure(CUSTOM_RESOURCES, &failure),
        }
    }
}

/// Returns the objects of the first [`OPERATIONS`] operations. An object that serde cannot decode,
/// for example because its values are nested too deeply, is left out. The list then counts as
/// truncated.
fn objects_of(listed: &[ListedOperation]) -> BundleList {
    let raw = listed.iter().filter_map(|it| it.raw.as_ref());
    let decoded = raw
        .take(OPERATIONS)
        .map(|it| serde_json::from_str(it.get()));
    let items: Vec<Value> = decoded.filter_map(Result::ok).collect();
    BundleList {
        is_truncated: items.len() < listed.len(),
        items,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_that_cannot_be_decoded_is_left_out() {
        let listed = |nesting: usize| {
            let (begin, end) = ("[".repeat(nesting), "]".repeat(nesting));
            let json = format!(r#"{{"metadata": {{"name": "a"}}, "other": {begin}{end}}}"#);
            ListedOperation::read(&json, true).expect("other fields are ignored")
        };
        let list = objects_of(&[listed(1), listed(1000), listed(2)]);
        assert_eq!((list.items.len(), list.is_truncated), (2, true));
        let list = objects_of(&[listed(1), listed(2)]);
        assert_eq!((list.items.len(), list.is_truncated), (2, false));
    }
}
