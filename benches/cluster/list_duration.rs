//! Compares the duration of two lists with the same content: operations from `ifo-apiserver`, and
//! custom resources from the kube-apiserver's cache.

use crate::api_client::{Api, LIVE_API_PATH, definition, for_each};
use crate::server::MeasuredServer;
use anyhow::Context as _;
use http::Request;
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const GROUP: &str = "bench.ifo.kubevirt.io";
const COPIES: &str = "/apis/bench.ifo.kubevirt.io/v1alpha1/namespaces/default/copies";
const JSON: &str = "application/json";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
/// Number of lists from each of the two servers in each format. The benchmark reads from the two
/// servers in turn. Only the fastest list of each server counts.
const TIMES: usize = 8;

/// Creates a custom resource for each operation. Compares the duration of a list of the operations
/// with the duration of a list of these custom resources, and prints the result.
pub async fn compare(api: &Api, server: &MeasuredServer) -> anyhow::Result<()> {
    let direct = server.direct(api).await?;
    let operations = format!("{LIVE_API_PATH}/inflightoperations");
    create_copies(api, &operations).await?;
    for (name, accept) in [("JSON", JSON), ("Table", TABLE)] {
        let (mut ours, mut theirs) = ((Duration::MAX, 0), (Duration::MAX, 0));
        let before = server.processor_time()?;
        for _ in 0..TIMES {
            ours = ours.min(time_list(&direct, &operations, accept).await?);
            let cached = format!("{COPIES}?resourceVersion=0");
            theirs = theirs.min(time_list(api, &cached, accept).await?);
        }
        let processor = server.processor_time_since(before)? / u32::try_from(TIMES)?;
        println!(
            "list as {name}: operations: {:.1?} for {} bytes ({processor:.1?} of processor time); \
             custom resources from the kube-apiserver's cache: {:.1?} for {} bytes; \
             operations are {:.1} times as fast",
            ours.0,
            ours.1,
            theirs.0,
            theirs.1,
            theirs.0.as_secs_f64() / ours.0.as_secs_f64(),
        );
    }
    Ok(())
}

/// Creates a custom resource with the content of each operation. The CRD of these custom resources
/// has the same table columns as operations.
async fn create_copies(api: &Api, operations: &str) -> anyhow::Result<()> {
    let mut copies = definition(GROUP, "v1alpha1", "Copy", "copies");
    let columns = [
        ("Kind", ".spec.subject.kind", "string"),
        ("Subject", ".spec.subject.name", "string"),
        ("Operation", ".spec.operation", "string"),
        ("Phase", ".status.phase", "string"),
        ("State", ".status.state", "string"),
        ("Progress", ".status.progress", "integer"),
        ("Age", ".metadata.creationTimestamp", "date"),
        ("Message", ".status.message", "string"),
        ("Component", ".spec.component", "string"),
        ("RuleSet", ".spec.ruleSet", "string"),
        ("Reason", ".status.reason", "string"),
        ("Started", ".metadata.creationTimestamp", "string"),
        ("Completed", ".status.completed", "string"),
    ];
    copies["spec"]["versions"][0]["additionalPrinterColumns"] = columns
        .iter()
        .map(|(name, path, kind)| json!({"name": name, "jsonPath": path, "type": kind}))
        .collect();
    api.define(&format!("copies.{GROUP}"), &copies.to_string())
        .await?;
    api.wait_until_served(COPIES).await?;
    let list: Value = serde_json::from_slice(&api.get(operations).await?)?;
    let operations = list["items"].as_array().context("a list has items")?;
    println!("{} operations", operations.len());
    for_each(operations.len(), |n| async move {
        let mut copy = operations[n].clone();
        copy["apiVersion"] = json!(format!("{GROUP}/v1alpha1"));
        copy["kind"] = json!("Copy");
        let metadata = &operations[n]["metadata"];
        // The names are the same in every run of the benchmark. So the custom resources of an
        // earlier run are used again.
        copy["metadata"] = json!({"name": format!("copy-{n}"), "labels": metadata["labels"],
            "ownerReferences": metadata["ownerReferences"]});
        api.create(COPIES, &copy).await
    })
    .await
}

/// Reads a list. Returns the time until the last byte has arrived, and the length of the list in
/// bytes.
async fn time_list(api: &Api, path: &str, accept: &str) -> anyhow::Result<(Duration, usize)> {
    let request = Request::get(path)
        .header("accept", accept)
        .body(Body::empty())?;
    let start = Instant::now();
    let response = api.client.send(request).await?;
    anyhow::ensure!(
        response.status().is_success(),
        "{path}: {}",
        response.status()
    );
    let mut body = response.into_body();
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        bytes += frame?.data_ref().map_or(0, bytes::Bytes::len);
    }
    Ok((start.elapsed(), bytes))
}
