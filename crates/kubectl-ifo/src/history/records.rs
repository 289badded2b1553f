//! Reads completed operations. The server keeps a record of each completed operation. In
//! persistence mode, there are also custom resources of completed operations.

use crate::operation::InFlightOperation;
use crate::operation_source::{OperationSource, Served, decode, escape};
use crate::output::complain;
use crate::problem::Problem;
use ifo_api::{LIVE_GROUP, Text, VERSION, live, record};
use std::collections::HashSet;

/// Reads all completed operations in the namespaces of `source`. Prints notes about parts that could
/// not be read.
pub(super) async fn completed_operations(
    source: &OperationSource,
) -> Result<Vec<InFlightOperation>, Problem> {
    let records = records(source, "").await;
    let path = format!("/apis/{}/{VERSION}/{}", Served::Crs.group(), live::PLURAL);
    let read = |item: &str| decode(item).map(Some);
    let custom = match source.server.all(&path, "", read).await {
        Ok(custom) => custom,
        Err(problem) if source.served == Served::Crs => return Err(problem),
        // Persistence mode is off, or the user may read only records.
        Err(Problem::NotFound(_) | Problem::Forbidden { .. }) => Vec::new(),
        Err(problem) => {
            let note = "custom resources may reach further back, but they cannot be read";
            complain("note", format!("{note}: {problem}"));
            Vec::new()
        }
    };
    let mut all = match records {
        Err(problem @ Problem::NotFound(_)) if !custom.is_empty() => {
            let resource = Served::Crs.resource();
            let note = format!("{problem}; showing the objects of {resource}");
            complain("note", note);
            Vec::new()
        }
        records => records?,
    };
    // A custom resource has the UID of the operation that it stores.
    let uids: HashSet<Text> = all.iter().map(|it| it.metadata.uid.clone()).collect();
    let is_new = |uid: &Text| uid.is_empty() || !uids.contains(uid);
    let ended = custom
        .into_iter()
        .filter(|it| it.status.completed.is_some());
    all.extend(ended.filter(|it| is_new(&it.metadata.uid)));
    Ok(all)
}

/// Reads the records that a field selector selects. Empty if the operations come from custom
/// resources.
pub(crate) async fn records(
    source: &OperationSource,
    field_selector: &str,
) -> Result<Vec<InFlightOperation>, Problem> {
    let resource = format!("{}.{LIVE_GROUP}", record::PLURAL);
    let mut records = Vec::new();
    let namespaces = source.requested_namespaces().into_iter();
    for namespace in namespaces.filter(|_| source.served == Served::Live) {
        let within = namespace.map_or_else(String::new, |it| format!("/namespaces/{}", escape(it)));
        let path = format!("/apis/{LIVE_GROUP}/{VERSION}{within}/{}", record::PLURAL);
        let read = |item: &str| decode(item).map(Some);
        let listed = source.server.all(&path, field_selector, read).await;
        records.extend(listed.map_err(|problem| match problem {
            Problem::NotFound(_) => Problem::NotFound(format!(
                "{} does not serve {resource}; for completed operations that the server retains, see: kubectl ifo -A",
                source.server.address
            )),
            problem => problem,
        })?);
    }
    Ok(records)
}
