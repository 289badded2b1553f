//! Tests of renewed serving certificates. One test mounts certificates as cert-manager and OpenShift do,
//! and the other test uses the server's own CA.
//!
//! The serving certificate and its CA are renewed while clients watch and list through the
//! kube-apiserver. No watch may end, and no request may fail. cert-manager, OpenShift and the
//! kubelet do not run. Instead of them, the tests issue the certificates, and write the files of
//! the mounted Secret.

use super::{Overlay, only_object};
use crate::harness::{
    Caller, Events, Kind, OPERATION, ServerProcess, apart, crd, eventually, mounted_secret, ok_if,
    text,
};
use crate::installation::Cluster;
use openssl::asn1::Asn1Time;
use openssl::bn::{BigNum, MsbOption};
use openssl::ec::{EcGroup, EcKey};
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::ssl::{SslConnector, SslMethod, SslVerifyMode};
use openssl::x509::extension::{BasicConstraints, SubjectAlternativeName};
use openssl::x509::{X509, X509Builder, X509NameBuilder};
use serde_json::json;
use std::net::TcpStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Number of watches that are open during the renewals.
const WATCHES: usize = 30;

/// Pause between two lists of operations during the renewals.
const PAUSE: Duration = Duration::from_millis(20);

/// The kinds of cert-manager that `deploy/components/cert-manager` uses.
const KINDS: [Kind; 2] = [
    Kind {
        api_version: "cert-manager.io/v1",
        kind: "Certificate",
        plural: "certificates",
    },
    Kind {
        api_version: "cert-manager.io/v1",
        kind: "Issuer",
        plural: "issuers",
    },
];

/// A certificate with its key.
pub struct KeyPair {
    certificate: X509,
    key: PKey<Private>,
}

pub fn new_key() -> PKey<Private> {
    let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).expect("OpenSSL has P-256");
    let key = EcKey::generate(&group).and_then(PKey::from_ec_key);
    key.expect("OpenSSL creates keys")
}

/// Returns a builder of a certificate for this key. The certificate is valid for a day.
fn builder(common_name: &str, key: &PKey<Private>) -> X509Builder {
    let mut name = X509NameBuilder::new().unwrap();
    name.append_entry_by_nid(Nid::COMMONNAME, common_name)
        .unwrap();
    let mut serial = BigNum::new().unwrap();
    serial.rand(127, MsbOption::MAYBE_ZERO, false).unwrap();
    let mut builder = X509::builder().unwrap();
    builder.set_version(2).unwrap();
    builder
        .set_serial_number(&serial.to_asn1_integer().unwrap())
        .unwrap();
    builder.set_subject_name(&name.build()).unwrap();
    builder.set_pubkey(key).unwrap();
    builder
        .set_not_before(&Asn1Time::days_from_now(0).unwrap())
        .unwrap();
    builder
        .set_not_after(&Asn1Time::days_from_now(1).unwrap())
        .unwrap();
    builder
}

/// Creates a CA with a self-signed certificate for this key.
pub fn ca(common_name: &str, key: &PKey<Private>) -> KeyPair {
    let mut builder = builder(common_name, key);
    let mut issuer = X509NameBuilder::new().unwrap();
    issuer
        .append_entry_by_nid(Nid::COMMONNAME, common_name)
        .unwrap();
    builder.set_issuer_name(&issuer.build()).unwrap();
    let is_ca = BasicConstraints::new().critical().ca().build().unwrap();
    builder.append_extension(is_ca).unwrap();
    builder.sign(key, MessageDigest::sha256()).unwrap();
    KeyPair {
        certificate: builder.build(),
        key: key.clone(),
    }
}

/// Issues a serving certificate for these DNS names, with a new key.
pub fn leaf(ca: &KeyPair, names: &[&str]) -> KeyPair {
    let key = new_key();
    let mut builder = builder("ifo-apiserver", &key);
    builder
        .set_issuer_name(ca.certificate.subject_name())
        .unwrap();
    let mut alternatives = SubjectAlternativeName::new();
    for name in names {
        alternatives.dns(name);
    }
    let context = builder.x509v3_context(Some(&ca.certificate), None);
    let alternatives = alternatives.build(&context).unwrap();
    builder.append_extension(alternatives).unwrap();
    builder.sign(&ca.key, MessageDigest::sha256()).unwrap();
    KeyPair {
        certificate: builder.build(),
        key,
    }
}

/// Replaces the files of a mounted Secret in one step, as the kubelet does. The files are symbolic
/// links into `..data`, which is itself a symbolic link to a folder. This function writes a new
/// folder, and replaces the link `..data`.
pub fn mount(folder: &Path, pair: &KeyPair) {
    use std::os::unix::fs::symlink;
    let version = format!("..{}", uuid::Uuid::new_v4());
    let content = folder.join(&version);
    std::fs::create_dir_all(&content).unwrap();
    let key = pair.key.private_key_to_pem_pkcs8().unwrap();
    std::fs::write(content.join("tls.crt"), pair.certificate.to_pem().unwrap()).unwrap();
    std::fs::write(content.join("tls.key"), key).unwrap();
    let next = folder.join("..data_tmp");
    symlink(&version, &next).unwrap();
    std::fs::rename(next, folder.join("..data")).unwrap();
    for file in ["tls.crt", "tls.key"] {
        // The first call of `mount` creates the links. In later calls of `mount`, `symlink` fails,
        // because the links exist. This error is ignored.
        let _ = symlink(Path::new("..data").join(file), folder.join(file));
    }
}

/// Returns the certificate that the server presents.
pub fn presented(server: &ServerProcess) -> X509 {
    let mut connector = SslConnector::builder(SslMethod::tls_client()).unwrap();
    connector.set_verify(SslVerifyMode::NONE);
    let stream = TcpStream::connect(("127.0.0.1", server.port())).expect("the server must listen");
    let stream = connector.build().connect("localhost", stream);
    let stream = stream.expect("the TLS handshake must succeed");
    let certificate = stream.ssl().peer_certificate();
    certificate.expect("a TLS server presents a certificate")
}

/// Writes the CAs into the `caBundle` of the APIService, as cert-manager and OpenShift do.
pub async fn inject(cluster: &Cluster<'_>, cas: &[&KeyPair]) {
    use base64::Engine as _;
    let pem = |ca: &&KeyPair| ca.certificate.to_pem().unwrap();
    let bundle: Vec<u8> = cas.iter().flat_map(pem).collect();
    let bundle = base64::engine::general_purpose::STANDARD.encode(bundle);
    let path = "/apis/apiregistration.k8s.io/v1/apiservices/v1alpha1.live.ifo.kubevirt.io";
    let patch = json!({"spec": {"caBundle": bundle}});
    cluster.admin.merge(path, &patch).await.ok();
}

async fn wait_until_presented(server: &ServerProcess, expected: &KeyPair) {
    eventually("the server presents its new certificate", async || {
        let found = presented(server).to_der().unwrap();
        let expected = expected.certificate.to_der().unwrap();
        ok_if(found == expected, "the server presents another certificate")
    })
    .await;
}

/// Lists operations repeatedly until `stop` is true. Fails if a list fails. Returns the number of
/// lists.
async fn list_until(caller: &Caller, stop: &AtomicBool) -> usize {
    let mut lists = 0;
    while !stop.load(Ordering::Relaxed) {
        let answer = caller.get(&OPERATION.path(None)).await;
        assert_eq!(answer.code, 200, "after {lists} lists: {answer:?}");
        lists += 1;
        tokio::time::sleep(PAUSE).await;
    }
    lists
}

/// Runs `renewals` while clients list and watch through the kube-apiserver. Fails if a list fails.
/// Also fails if a watch delivers no events after the renewals.
async fn assert_undisturbed(cluster: &Cluster<'_>, renewals: impl Future<Output = ()>) {
    let path = format!("{}?watch=1", OPERATION.path(None));
    let mut watches = Vec::new();
    for _ in 0..WATCHES {
        let events = Events::of(&cluster.admin, &path).await;
        watches.push(events.expect("an administrator must be allowed to watch"));
    }
    let stop = AtomicBool::new(false);
    let renewals = async {
        renewals.await;
        stop.store(true, Ordering::Relaxed);
    };
    let ((), lists) = tokio::join!(renewals, list_until(&cluster.admin, &stop));
    assert!(lists > 0);

    cluster.kubectl_on_folder("apply", "rules/generic").await;
    for watch in &mut watches {
        watch
            .until("an event about an operation", |events| {
                let mut events = events.iter();
                events.find(|it| it["type"] == "ADDED").map(|_| ())
            })
            .await;
    }
}

#[test]
fn renewals_of_a_mounted_certificate_drop_no_watch_and_refuse_no_request() {
    apart("cert-manager", async |control_plane| {
        let cluster = Cluster::of(control_plane).await;
        cluster.kubectl_on_folder("apply", "deploy/crd").await;
        for kind in &KINDS {
            let crds = crate::harness::CRD.path(None);
            let definition = crd(kind, "Namespaced");
            cluster.admin.post(&crds, &definition).await.ok();
        }
        let overlay = Overlay::new("deploy", &["cert-manager"], None);
        eventually("the kinds of cert-manager are served", async || {
            let args = ["apply", "-k", overlay.path()];
            cluster.kubectl(&args).await.map(|_| ())
        })
        .await;
        let rendered = overlay.render(&control_plane.addresses.kubectl).await;
        let certificate = only_object(&rendered, "Certificate", "ifo-apiserver-serving");
        let names = super::strings(&certificate["spec"]["dnsNames"]);
        let authority = only_object(&rendered, "Certificate", "ifo-apiserver-cert-manager-ca");
        assert_eq!(authority["spec"]["privateKey"]["rotationPolicy"], "Never");
        let common_name = text(authority, "/spec/commonName");

        let ca_key = new_key();
        let first_ca = ca(common_name, &ca_key);
        let folder = mounted_secret(&control_plane.addresses.dir, "ifo-apiserver-serving");
        mount(&folder, &leaf(&first_ca, &names));
        let server = cluster.server().await;
        let registration = Overlay::new("apiservice", &["cert-manager"], None);
        // This APIService has no `caBundle` yet. So the kube-apiserver trusts the certificate of
        // the server only after `inject`.
        cluster
            .apply_registration(registration.path(), &server)
            .await;
        inject(&cluster, &[&first_ca]).await;
        cluster.wait_until_served().await;

        let renewals = async {
            let second = leaf(&first_ca, &names);
            mount(&folder, &second);
            wait_until_presented(&server, &second).await;
            // The APIService gets a new CA, while the server has a certificate of the old CA.
            let second_ca = ca(common_name, &ca_key);
            inject(&cluster, &[&second_ca]).await;
            // The APIService gets the old CA again, and the server gets a certificate of the new
            // CA. The kube-apiserver must accept both certificates with both CAs, because the CAs
            // have the same key.
            inject(&cluster, &[&first_ca]).await;
            let third = leaf(&second_ca, &names);
            mount(&folder, &third);
            wait_until_presented(&server, &third).await;
            inject(&cluster, &[&second_ca]).await;

            // A new service CA of OpenShift has another key, so it does not verify certificates of the
            // old CA. Until all certificates are replaced, OpenShift writes both CAs into the
            // `caBundle`.
            let third_ca = ca("openshift-service-serving-signer@2", &new_key());
            inject(&cluster, &[&third_ca, &second_ca]).await;
            let fourth = leaf(&third_ca, &names);
            mount(&folder, &fourth);
            wait_until_presented(&server, &fourth).await;
            inject(&cluster, &[&third_ca]).await;
        };
        assert_undisturbed(&cluster, renewals).await;
    });
}

#[test]
fn a_new_own_ca_drops_no_watch_and_refuses_no_request() {
    apart("own-ca", async |control_plane| {
        let cluster = Cluster::of(control_plane).await;
        cluster.kubectl_on_folder("apply", "deploy/crd").await;
        cluster.kubectl_on_folder("apply", "deploy").await;
        let server = cluster.server().await;
        cluster.register(&server).await;
        let bundle = async || {
            let found = cluster.registration().await.unwrap_or_default();
            text(&found, "/spec/caBundle").to_owned()
        };
        let first_certificate = presented(&server).to_der().unwrap();
        let first_bundle = bundle().await;

        // This command deletes the CA of the server, and the server creates a new CA.
        // `docs/certificates.md` describes the command.
        let patch = r#"[{"op": "remove", "path": "/data"}]"#;
        let secret = [
            "patch",
            "secret",
            "ifo-apiserver-serving-ca",
            "-n",
            "ifo-system",
        ];
        let patch = [&secret[..], &["--type=json", "-p", patch]].concat();
        let renewals = async {
            cluster
                .kubectl(&patch)
                .await
                .expect("the Secret can be changed");
            eventually(
                "the server presents a certificate of its new CA",
                async || {
                    let found = presented(&server).to_der().unwrap();
                    ok_if(found != first_certificate, "the first certificate")
                },
            )
            .await;
            assert_ne!(bundle().await, first_bundle);
        };
        assert_undisturbed(&cluster, renewals).await;
    });
}
