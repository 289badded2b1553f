//! Checks that the custom resources equal the operations in persistence mode.

use crate::cluster::Replicas;
use crate::harness::{Kind, OPERATION, eventually, so, text};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Operations as custom resources.
pub const RECORD: Kind = Kind {
    api_version: "ifo.kubevirt.io/v1alpha1",
    kind: "InFlightOperation",
    plural: "inflightoperations",
};

/// UID, creation timestamp and phase of operations.
type Operations = BTreeSet<[String; 3]>;

/// Waits until the custom resources equal the operations. A late write of a killed leader is found
/// after 65 s.
pub async fn agree(replicas: &Replicas<'_>) {
    eventually("custom resources are the operations", async || {
        let live = list(
            replicas,
            OPERATION,
            ["/metadata/uid", "/metadata/creationTimestamp"],
        );
        let live = live.await?;
        let records = list(replicas, RECORD, ["/status/liveUID", "/status/started"]);
        let records = records.await?;
        let missing: Vec<_> = live.difference(&records).collect();
        let extra: Vec<_> = records.difference(&live).collect();
        so(
            missing.is_empty() && extra.is_empty(),
            format!("missing: {missing:?}, too many: {extra:?}"),
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
    so(answer.code == 200, &answer)?;
    let items = answer.body["items"].as_array().cloned().unwrap_or_default();
    let fields = |it: &Value| [uid, start, "/status/phase"].map(|field| text(it, field).to_owned());
    Ok(items.iter().map(fields).collect())
}

/// Fails if the audit log has a custom resource that was created or deleted twice.
pub fn were_written_once(replicas: &Replicas<'_>) {
    let log = &replicas.control_plane.state.audit_log;
    let log = std::fs::read_to_string(log).expect("the control plane keeps an audit log");
    let mut writes: BTreeMap<(String, String), usize> = BTreeMap::new();
    for line in log.lines() {
        let event: Value = serde_json::from_str(line).unwrap_or_default();
        let of = |field: &str| text(&event, field).to_owned();
        let good = event["responseStatus"]["code"].as_u64() < Some(300);
        let (verb, name) = (of("/verb"), of("/objectRef/name"));
        let ours = of("/objectRef/apiGroup") == "ifo.kubevirt.io"
            && of("/objectRef/resource") == RECORD.plural
            && of("/user/username") == "system:serviceaccount:ifo-system:ifo-apiserver";
        // Release 0.1.0 creates with server-side apply.
        let created = verb == "patch" && event["responseStatus"]["code"] == 201;
        let verb = if created { "create".to_owned() } else { verb };
        if ours && good && matches!(&*verb, "create" | "delete") {
            *writes.entry((verb, name)).or_default() += 1;
        }
    }
    assert!(writes.len() > 10, "{writes:?}");
    let twice: Vec<_> = writes.iter().filter(|(_, count)| **count > 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
}
