//! Tests that Helm upgrades an installation of release 0.1.0, and that this upgrade can be undone.
//! The steps are those of docs/upgrade.md. Release 0.1.0 has no chart: it was installed with
//! kustomize.
//!
//! In a cluster, the Deployment starts and stops the server. Here, the test does this.

use super::RULES_CHART;
use super::install_upgrade_remove::Installation;
use crate::harness::{PodProgram, apart, eventually, ok_if, previous_release, text};
use serde_json::Value;
use std::path::Path;

/// The name of a sample Deployment. Its rollout is the operation that the test follows.
const SHOP: &str = "shop";

#[test]
fn helm_3_upgrades_release_0_1_0_and_its_removal_leads_back() {
    upgrade_and_downgrade("helm3-upgrade", 3);
}

#[test]
fn helm_4_upgrades_release_0_1_0_and_its_removal_leads_back() {
    upgrade_and_downgrade("helm4-upgrade", 4);
}

fn upgrade_and_downgrade(name: &str, major: u8) {
    let Some(previous) = previous_release(name) else {
        return;
    };
    apart(name, async |control_plane| {
        let Some(mut it) = Installation::new(major, control_plane).await else {
            return;
        };
        it.cluster.namespace = "ifo-system";
        let program = PodProgram {
            path: previous.join("ifo-apiserver"),
            ..PodProgram::default()
        };
        let source = previous.join("source");
        for folder in ["deploy/crd", "deploy", "rules/generic"] {
            it.cluster
                .kubectl_on_folder("apply", &path(&source, folder))
                .await;
        }
        create_deployment(&it).await;
        let mut old = it.cluster.unrouted_program(program.clone()).await;
        it.cluster.route_to(&old).await;
        it.cluster
            .register_with(&path(&source, "apiservice"), &old)
            .await;
        let operation = rollout(&it).await;

        let (chart, take) = (it.chart_to(&old), take_ownership(&it));
        it.helm(&[&["install", "ifo", &chart], take].concat()).await;
        it.helm(&[&["install", "rules", RULES_CHART], take].concat())
            .await;
        assert!(old.terminate().await.success());
        let mut new = it.cluster.unrouted_server().await;
        it.cluster.route_to(&new).await;
        it.cluster.write_registered_port(&new).await;
        it.cluster.wait_until_served().await;
        // The old server stopped before the new server started. So the new server has not copied the
        // operation. It computes another name and another UID from the same start.
        let detected_again = rollout(&it).await;
        assert_ne!(detected_again, operation);
        assert_eq!(rule_set_is_ready(&it).await, "Watching");
        // The APIService of the previous release is not part of the chart. The new server sets its
        // owner, so that the removal deletes it.
        eventually("the APIService has an owner", async || {
            let found = it.cluster.registration().await.unwrap_or_default();
            let owners = &found["metadata"]["ownerReferences"];
            ok_if(owners.is_array(), owners)
        })
        .await;

        let (stopped, _) = tokio::join!(new.terminate(), it.helm(&["uninstall", "ifo"]));
        assert!(stopped.success());
        it.helm(&["uninstall", "rules"]).await;
        for folder in ["deploy/crd", "deploy", "rules/generic"] {
            it.cluster
                .kubectl_on_folder("apply", &path(&source, folder))
                .await;
        }
        let mut old = it.cluster.unrouted_program(program).await;
        it.cluster.route_to(&old).await;
        it.cluster
            .register_with(&path(&source, "apiservice"), &old)
            .await;
        assert_eq!(rollout(&it).await, operation);

        for folder in ["apiservice", "deploy", "rules/generic"] {
            it.cluster
                .kubectl_on_folder("delete", &path(&source, folder))
                .await;
        }
        assert!(old.terminate().await.success());
        it.nothing_is_left("after the downgrade and the removal")
            .await;
    });
}

/// Returns the absolute path of a folder of the previous release.
fn path(source: &Path, folder: &str) -> String {
    source.join(folder).display().to_string()
}

/// Returns the flags with which Helm changes objects that another client has created.
fn take_ownership(it: &Installation<'_>) -> &'static [&'static str] {
    // Helm 4 uses server-side apply, but the field manager of `kubectl apply` owns the fields.
    // Without `--force-conflicts`, Helm fails because of conflicts.
    match it.helm.major {
        3 => &["--take-ownership"],
        _ => &["--take-ownership", "--force-conflicts"],
    }
}

/// Creates the sample Deployment, and waits until its controller has written the final status. Both
/// the server of 0.1.0 and the new server compute the start of the rollout from the last change of
/// the Deployment. The name and the UID of the operation depend on this start. So the Deployment
/// must not change after the first server has started.
async fn create_deployment(it: &Installation<'_>) {
    let create = ["create", "deployment", SHOP, "--image=missing"];
    it.cluster
        .kubectl(&create)
        .await
        .expect("the Deployment must be created");
    let args = ["get", "deployment", SHOP, "-o", "json"];
    eventually("the status of the Deployment is complete", async || {
        let found = it.cluster.kubectl(&args).await?;
        let found: Value = serde_json::from_str(&found).map_err(|error| error.to_string())?;
        ok_if(found["status"]["unavailableReplicas"] == 1, &found)?;
        ok_if(found["status"]["updatedReplicas"] == 1, &found)
    })
    .await;
}

/// Waits until the rollout of the Deployment is listed as an operation, and returns the operation's
/// name and UID.
async fn rollout(it: &Installation<'_>) -> [String; 2] {
    eventually("the rollout is an operation", async || {
        let list = it.cluster.kubectl(&["get", "ifos", "-o", "json"]).await?;
        let list: Value = serde_json::from_str(&list).map_err(|error| error.to_string())?;
        let mut all = list["items"].as_array().into_iter().flatten();
        let found = all.find(|it| it["spec"]["subject"]["name"] == SHOP);
        let found = found.ok_or_else(|| list.to_string())?;
        Ok(["/metadata/name", "/metadata/uid"].map(|field| text(found, field).to_owned()))
    })
    .await
}

/// Waits until the condition `Ready` of the rule set `deployment-rules` is True, and returns the
/// reason of the condition.
async fn rule_set_is_ready(it: &Installation<'_>) -> String {
    let args = ["get", "ors", "deployment-rules", "-o", "json"];
    eventually("the rule set works", async || {
        let found = it.cluster.kubectl(&args).await?;
        let found: Value = serde_json::from_str(&found).map_err(|error| error.to_string())?;
        let mut all = found["status"]["conditions"]
            .as_array()
            .into_iter()
            .flatten();
        let ready = all
            .find(|it| it["type"] == "Ready")
            .cloned()
            .unwrap_or_default();
        ok_if(ready["status"] == "True", &found)?;
        Ok(text(&ready, "/reason").to_owned())
    })
    .await
}
