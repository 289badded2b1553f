//! Test of an administrator's own certificate files, with the steps in `docs/certificates.md`. The
//! script `certs/create-certificate` creates the CA and the certificates.

use super::certificate_renewal::presented;
use crate::harness::{apart, eventually, mounted_secret, ok_if};
use crate::installation::Cluster;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::json;
use std::path::Path;
use std::process::Command;

/// Runs the script, which writes a certificate of the CA in `folder` to `folder`. If there is no CA,
/// the script creates one.
fn create_certificate(folder: &Path) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/certs/create-certificate");
    let output = Command::new(script)
        .arg(folder)
        .arg("ifo-apiserver.ifo-system.svc")
        .output()
        .expect("the script can be started");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
}

#[test]
fn own_certificate_files_are_served_and_renewed_without_a_restart() {
    apart("own-files", async |control_plane| {
        let cluster = Cluster::of(control_plane).await;
        cluster.kubectl_on_folder("apply", "deploy/crd").await;
        cluster.kubectl_on_folder("apply", "deploy").await;
        // This patch mounts the Secret `ifo-apiserver-serving`, and sets both flags.
        let patch = concat!(
            "--patch-file=",
            env!("CARGO_MANIFEST_DIR"),
            "/deploy/components/openshift-service-ca/deployment.yaml"
        );
        let deployment = ["patch", "deployment", "ifo-apiserver", "-n", "ifo-system"];
        let mounting = [&deployment[..], &["--type=json", patch]].concat();
        let mounted = cluster.kubectl(&mounting).await;
        mounted.unwrap_or_else(|error| panic!("{error}"));
        let folder = mounted_secret(&control_plane.addresses.dir, "ifo-apiserver-serving");
        create_certificate(&folder);

        let server = cluster.server().await;
        cluster.apply_registration("apiservice", &server).await;
        let ca = std::fs::read(folder.join("ca.crt")).expect("the script has written the CA");
        let bundle = json!({"spec": {"caBundle": BASE64_STANDARD.encode(ca)}});
        let path = "/apis/apiregistration.k8s.io/v1/apiservices/v1alpha1.live.ifo.kubevirt.io";
        cluster.admin.merge(path, &bundle).await.ok();
        cluster.wait_until_served().await;

        let first = presented(&server).to_der().expect("a certificate");
        create_certificate(&folder);
        eventually("the server presents the new certificate", async || {
            let found = presented(&server).to_der().expect("a certificate");
            ok_if(found != first, "the first certificate")
        })
        .await;
        cluster.wait_until_served().await;
    });
}
