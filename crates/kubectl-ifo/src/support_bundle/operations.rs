//! Collects the operations, the records of completed operations, and the operations that are stored
//! as custom resources.

use super::collect::{BundleCollection, BundleList, CUSTOM_RESOURCES, ListPart};
use crate::bundle_index::{OperationsPart, PartResult};
use crate::completeness::ListCompleteness;
use crate::filter::Filters;
use crate::listed_operation::ListedOperation;
use crate::operation_source::{OperationSource, Served, escape};
use crate::problem::Problem;
use ifo_api::{GROUP, LIVE_GROUP, VERSION, live, record};
use serde_json::Value;

/// Largest number of operations, and of records of completed operations. Further ones are left out.
const OPERATIONS: usize = 20_000;

impl BundleCollection {
    /// Reads the operations and their records in `namespace`. If `namespace` is None, reads them in
    /// all namespaces that the user may read.
    pub(super) async fn collect_operations(&mut self, namespace: Option<&String>) {
        let filters = Filters::all_in(namespace);
        let found = OperationSource::find(self.client.clone(), filters, true);
        let mut namespaces = namespace.map(|it| vec![it.clone()]);
        match self.within(found).await {
            Ok((source, listed)) => {
                namespaces = namespaces.or_else(|| source.namespaces.clone());
                self.add_operations(&source, namespaces.clone(), objects_of(&listed));
            }
            Err(problem) => {
                self.index.operations.result = PartResult::of(&problem);
                self.record_problem("operations", &problem);
            }
        }
        let part = ListPart {
            what: "records of completed operations",
            path: &format!("operations/{}.{LIVE_GROUP}.json", record::PLURAL),
            api_version: &format!("{LIVE_GROUP}/{VERSION}"),
            kind: record::KIND,
        };
        match self.read_records(namespaces).await {
            Ok(records) => self.add_list(part, records),
            Err(problem) => self.record_problem(part.what, &problem),
        }
    }

    fn add_operations(
        &mut self,
        source: &OperationSource,
        namespaces: Option<Vec<String>>,
        list: BundleList,
    ) {
        let completeness = source.completeness();
        self.index.operations = OperationsPart {
            result: PartResult::of_read(list.is_truncated),
            count: list.items.len(),
            namespaces,
            is_complete: completeness == ListCompleteness::Complete && !list.is_truncated,
            warning: completeness.incomplete().map(|it| it.to_string()),
        };
        let what = match source.served {
            Served::Live => "operations",
            Served::Crs => CUSTOM_RESOURCES,
        };
        self.add_operation_list(what, source.served.group(), list);
    }

    fn add_operation_list(&mut self, what: &str, group: &str, list: BundleList) {
        let part = ListPart {
            what,
            path: &format!("operations/{}.{group}.json", live::PLURAL),
            api_version: &format!("{group}/{VERSION}"),
            kind: live::KIND,
        };
        self.add_list(part, list);
    }

    /// Reads the records in these namespaces, or in all namespaces if `namespaces` is None.
    async fn read_records(&self, namespaces: Option<Vec<String>>) -> Result<BundleList, Problem> {
        let within = match namespaces {
            Some(namespaces) => namespaces
                .iter()
                .map(|it| format!("/namespaces/{}", escape(it)))
                .collect(),
            None => vec![String::new()],
        };
        let mut records = BundleList {
            items: Vec::new(),
            is_truncated: false,
        };
        for within in within {
            let room = OPERATIONS.saturating_sub(records.items.len());
            if room == 0 {
                records.is_truncated = true;
                break;
            }
            let uri = format!("/apis/{LIVE_GROUP}/{VERSION}{within}/{}", record::PLURAL);
            let list = self.list_at_most(&uri, record::PLURAL, room).await?;
            records.items.extend(list.items);
            records.is_truncated |= list.is_truncated;
        }
        Ok(records)
    }

    /// Reads the operations that are stored as custom resources. In persistence mode, custom
    /// resources exist in addition to the operations that `ifo-apiserver` serves.
    ///
    /// If the cluster does not have the live API, [`Self::collect_operations`] has already read the
    /// custom resources. In this case, this method does nothing.
    pub(super) async fn collect_custom_resources(&mut self) {
        if self
            .index
            .parts
            .iter()
            .any(|it| it.what == CUSTOM_RESOURCES)
        {
            return;
        }
        let uri = format!("/apis/{GROUP}/{VERSION}/{}", live::PLURAL);
        match self.list(&uri, live::PLURAL).await {
            Ok(list) => self.add_operation_list(CUSTOM_RESOURCES, GROUP, list),
            Err(problem) => self.record_problem(CUSTOM_RESOURCES, &problem),
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
