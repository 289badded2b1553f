//! Test of renewed serving certificates, which are mounted as cert-manager and OpenShift do, and a check of
//! the server's own CA.
//!
//! The serving certificate and its CA are renewed while clients watch and list through the
//! kube-apiserver. No watch may end, and no request may fail. cert-manager, OpenShift and the
//! kubelet do not run. Instead of them, the tests issue the certificates, and write the files of
//! the mounted Secret.

use super::{Overlay, only_object};
use crate::harness::{
    API_SERVICE, Cluster, Events, Kind, OPERATION, ServerProcess, apart, eventually,
    mounted_secret, ok_if, text,
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Number of watches that are open during the renewals.
const WATCHES: usize = 30;

/// Pause between two lists of operations during the renewals.
const PAUSE: Duration = Duration::from_millis(20);

/// The kinds of cert-manager that `deploy/components/cert-manager` uses.
const KINDS: [Kind; 2] = [
    Kind::new("cert-manager.io/v1", "Certificate", "certificates"),
    Kind::new("cert-manager.io/v1", "Issuer", "issuers"),
];

/// A CA with its key.
pub struct Ca<'a> {
    certificate: String,
    issuer: Issuer<'static, &'a KeyPair>,
}

/// A serving certificate with its key, as PEM.
pub struct Leaf {
    certificate: rcgen::Certificate,
    key: KeyPair,
}

pub fn new_key() -> KeyPair {
    KeyPair::generate().expect("keys can be created")
}

fn params(common_name: &str, names: &[&str]) -> CertificateParams {
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    let mut params = CertificateParams::new(names).expect("the names are DNS names");
    params
        .distinguished_name
        .push(DnType::CommonName, common_name);
    params
}

/// Creates a CA with a self-signed certificate for this key.
pub fn ca<'a>(common_name: &str, key: &'a KeyPair) -> Ca<'a> {
    let mut params = params(common_name, &[]);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let certificate = params
        .self_signed(key)
        .expect("the CA signs its certificate");
    Ca {
        certificate: certificate.pem(),
        issuer: Issuer::new(params, key),
    }
}

/// Issues a serving certificate for these DNS names, with a new key.
pub fn leaf(ca: &Ca<'_>, names: &[&str]) -> Leaf {
    let key = new_key();
    let certificate = params("ifo-apiserver", names).signed_by(&key, &ca.issuer);
    let certificate = certificate.expect("the CA signs certificates");
    Leaf { certificate, key }
}

/// Replaces the files of a mounted Secret in one step, as the kubelet does. The files are symbolic
/// links into `..data`, which is itself a symbolic link to a folder. This function writes a new
/// folder, and replaces the link `..data`.
pub fn mount(folder: &Path, leaf: &Leaf) {
    use std::os::unix::fs::symlink;
    let version = format!("..{}", uuid::Uuid::new_v4());
    let content = folder.join(&version);
    std::fs::create_dir_all(&content).unwrap();
    std::fs::write(content.join("tls.crt"), leaf.certificate.pem()).unwrap();
    std::fs::write(content.join("tls.key"), leaf.key.serialize_pem()).unwrap();
    let next = folder.join("..data_tmp");
    symlink(&version, &next).unwrap();
    std::fs::rename(next, folder.join("..data")).unwrap();
    for file in ["tls.crt", "tls.key"] {
        // The first call of `mount` creates the links. In later calls of `mount`, `symlink` fails,
        // because the links exist. This error is ignored.
        let _ = symlink(Path::new("..data").join(file), folder.join(file));
    }
}

/// Writes the CAs into the `caBundle` of the APIService, as cert-manager and OpenShift do.
pub async fn inject(cluster: &Cluster, cas: &[&Ca<'_>]) {
    let bundle: String = cas.iter().map(|ca| ca.certificate.as_str()).collect();
    let patch = json!({"spec": {"caBundle": BASE64_STANDARD.encode(bundle)}});
    cluster.admin.merge(API_SERVICE, &patch).await.ok();
}

async fn until_presented(server: &ServerProcess, expected: &Leaf) {
    eventually("the server presents its new certificate", async || {
        let is_new = server.certificate().await == **expected.certificate.der();
        ok_if(is_new, "the server presents another certificate")
    })
    .await;
}

/// Runs `renewals` while clients list and watch through the kube-apiserver. Fails if a list fails.
/// Also fails if a watch delivers no events after the renewals.
async fn assert_undisturbed(cluster: &Cluster, renewals: impl Future<Output = ()>) {
    let list = OPERATION.path(None);
    let mut watches = Vec::new();
    for _ in 0..WATCHES {
        let events = Events::of(&cluster.admin, &format!("{list}?watch=1")).await;
        watches.push(events.expect("an administrator must be allowed to watch"));
    }
    let stop = AtomicBool::new(false);
    let renewals = async {
        renewals.await;
        stop.store(true, Ordering::Relaxed);
    };
    let lists = async {
        let mut lists = 0;
        while !stop.load(Ordering::Relaxed) {
            let answer = cluster.admin.get(&list).await;
            assert_eq!(answer.code, 200, "after {lists} lists: {answer:?}");
            lists += 1;
            tokio::time::sleep(PAUSE).await;
        }
        lists
    };
    let ((), lists) = tokio::join!(renewals, lists);
    assert!(lists > 0);

    cluster.apply_folders(&["rules/generic"]).await;
    for watch in &mut watches {
        let is_added =
            |events: &[Value]| events.iter().any(|it| it["type"] == "ADDED").then_some(());
        watch.until("an event about an operation", is_added).await;
    }
}

#[test]
fn renewals_of_a_mounted_certificate_drop_no_watch_and_refuse_no_request() {
    apart("cert-manager", async |cluster| {
        cluster.apply_folders(&["deploy/crd"]).await;
        cluster.define(&KINDS).await;
        let overlay = Overlay::new("deploy", &["cert-manager"], None);
        cluster.apply_folders(&[overlay.path()]).await;
        let rendered = cluster.kustomize(overlay.path()).await;
        let certificate = only_object(&rendered, "Certificate", "ifo-apiserver-serving");
        let names = certificate["spec"]["dnsNames"]
            .as_array()
            .into_iter()
            .flatten();
        let names: Vec<&str> = names.filter_map(Value::as_str).collect();
        // The Certificate names an Issuer. The Issuer names the Secret with its CA. A second
        // Certificate has the same name as this Secret, and describes the CA.
        let issuer = text(certificate, "/spec/issuerRef/name");
        let issuer = only_object(&rendered, "Issuer", issuer);
        let authority = text(issuer, "/spec/ca/secretName");
        let authority = only_object(&rendered, "Certificate", authority);
        assert_eq!(authority["spec"]["isCA"], true);
        assert_eq!(authority["spec"]["privateKey"]["rotationPolicy"], "Never");
        let common_name = text(authority, "/spec/commonName");

        let (ca_key, other_key) = (new_key(), new_key());
        let first_ca = ca(common_name, &ca_key);
        let dir = cluster.control_plane.addresses.dir.join("server");
        let folder = mounted_secret(&dir, "ifo-apiserver-serving");
        mount(&folder, &leaf(&first_ca, &names));
        let server = cluster.server().await;
        let registration = Overlay::new("apiservice", &["cert-manager"], None);
        // This APIService has no `caBundle` yet. So the kube-apiserver trusts the certificate of
        // the server only after `inject`.
        cluster
            .apply_registration(registration.path(), &server)
            .await;
        inject(cluster, &[&first_ca]).await;
        cluster.until_served().await;

        let renew = async |ca: &Ca<'_>| {
            let renewed = leaf(ca, &names);
            mount(&folder, &renewed);
            until_presented(&server, &renewed).await;
        };
        let renewals = async {
            renew(&first_ca).await;
            // The APIService gets a new CA, while the server has a certificate of the old CA.
            let second_ca = ca(common_name, &ca_key);
            inject(cluster, &[&second_ca]).await;
            // The APIService gets the old CA again, and the server gets a certificate of the new
            // CA. The kube-apiserver must accept both certificates with both CAs, because the CAs
            // have the same key.
            inject(cluster, &[&first_ca]).await;
            renew(&second_ca).await;
            inject(cluster, &[&second_ca]).await;

            // A new service CA of OpenShift has another key, so it does not verify certificates of the
            // old CA. Until all certificates are replaced, OpenShift writes both CAs into the
            // `caBundle`.
            let third_ca = ca("openshift-service-serving-signer@2", &other_key);
            inject(cluster, &[&third_ca, &second_ca]).await;
            renew(&third_ca).await;
            inject(cluster, &[&third_ca]).await;
        };
        assert_undisturbed(cluster, renewals).await;
    });
}

/// Lets the server create a new CA, as `docs/certificates.md` describes it.
pub async fn renew_own_ca(cluster: &Cluster, server: &ServerProcess) {
    let bundle = async || {
        let found = cluster.registration().await.unwrap_or_default();
        text(&found, "/spec/caBundle").to_owned()
    };
    let (first_certificate, first_bundle) = (server.certificate().await, bundle().await);
    let secret = "secret ifo-apiserver-serving-ca -n ifo-system";
    let patch = json!([{"op": "remove", "path": "/data"}]);
    let line = format!("patch {secret} --type=json -p {patch}");
    let renewals = async {
        cluster.kubectl(&line).await;
        eventually("the server presents a new certificate", async || {
            let is_new = server.certificate().await != first_certificate;
            ok_if(is_new, "the first certificate")
        })
        .await;
        assert_ne!(bundle().await, first_bundle);
    };
    assert_undisturbed(cluster, renewals).await;
}
