//! Checks the custom resources of operations. In persistence mode, the leader (the replica that
//! detects operations) writes each operation as a custom resource. The custom resources must equal
//! the operations. The leader must create and delete each custom resource at most once.

use crate::cluster::Replicas;
use crate::harness::{ACCOUNT, Kind, OPERATION, eventually, items, ok_if, text};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The kind of the custom resource that the leader writes for an operation.
pub const CUSTOM_RESOURCE: Kind = Kind {
    api_version: "ifo.kubevirt.io/v1alpha1",
    kind: "InFlightOperation",
    plural: "inflightoperations",
};

/// The UID, the creation timestamp and the phase of each operation.
type Operations = BTreeSet<[String; 3]>;

/// Waits until the custom resources equal the operations. This can take more than a minute: if a
/// write of a killed leader arrives late, the new leader corrects the custom resource after 65 s.
pub async fn wait_until_equal(replicas: &Replicas<'_>) {
    eventually("the custom resources equal the operations", async || {
        let live = ["/metadata/uid", "/metadata/creationTimestamp"];
        let live = list(replicas, OPERATION, live).await?;
        let records = ["/status/liveUID", "/status/started"];
        let records = list(replicas, CUSTOM_RESOURCE, records).await?;
        let missing: Vec<_> = live.difference(&records).collect();
        let extra: Vec<_> = records.difference(&live).collect();
        ok_if(
            missing.is_empty() && extra.is_empty(),
            format!("missing: {missing:?}, unexpected: {extra:?}"),
        )
    })
    .await;
}

async fn list(
    replicas: &Replicas<'_>,
    kind: Kind,
    [uid, start]: [&str; 2],
) -> Result<Operations, String> {
    let answer = replicas.admin.try_get(&kind.path(None)).await?;
    ok_if(answer.code == 200, &answer)?;
    let fields = |it: &Value| [uid, start, "/status/phase"].map(|field| text(it, field).to_owned());
    Ok(items(&answer.body).iter().map(fields).collect())
}

/// Fails if the audit log shows that the server created or deleted a custom resource more than
/// once.
pub fn assert_written_once(replicas: &Replicas<'_>) {
    let mut writes: BTreeMap<(String, String), usize> = BTreeMap::new();
    for event in replicas.cluster.audit_log(0) {
        let field = |pointer: &str| text(&event, pointer).to_owned();
        let succeeded = event["responseStatus"]["code"].as_u64() < Some(300);
        let (verb, name) = (field("/verb"), field("/objectRef/name"));
        let ours = field("/objectRef/apiGroup") == "ifo.kubevirt.io"
            && field("/objectRef/resource") == CUSTOM_RESOURCE.plural
            && field("/user/username") == ACCOUNT;
        if ours && succeeded && matches!(&*verb, "create" | "delete") {
            *writes.entry((verb, name)).or_default() += 1;
        }
    }
    assert!(writes.len() > 10, "{writes:?}");
    let twice: Vec<_> = writes.iter().filter(|(_, count)| **count > 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
}
