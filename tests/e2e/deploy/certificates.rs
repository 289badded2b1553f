//! Renewals of certificates from cert-manager, under open watches through the aggregator. The test
//! does the work of cert-manager and of the kubelet.

use super::{Overlay, the};
use crate::harness::{
    Caller, Events, Kind, OPERATION, Server, apart, crd, eventually, mounted_secret, so, text,
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

const WATCHES: usize = 100;

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
struct KeyPair {
    certificate: X509,
    key: PKey<Private>,
}

fn new_key() -> PKey<Private> {
    let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).expect("OpenSSL has P-256");
    let key = EcKey::generate(&group).and_then(PKey::from_ec_key);
    key.expect("a key can be created")
}

/// Starts a certificate for this key, valid for a day.
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

/// Issues the CA of `deploy/components/cert-manager`. A renewal has the same key.
fn ca(common_name: &str, key: &PKey<Private>) -> KeyPair {
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

/// Issues a serving certificate for these names, with a new key.
fn leaf(ca: &KeyPair, names: &[&str]) -> KeyPair {
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

/// Replaces the files of a mounted Secret in one step, as the kubelet does: the files are links to a
/// folder, and the link to the folder is replaced.
fn mount(folder: &Path, pair: &KeyPair) {
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
        // The links stay the same after the first time.
        let _ = symlink(Path::new("..data").join(file), folder.join(file));
    }
}

/// Returns the certificate that the server presents.
fn presented(server: &Server) -> X509 {
    let mut connector = SslConnector::builder(SslMethod::tls_client()).unwrap();
    connector.set_verify(SslVerifyMode::NONE);
    let stream = TcpStream::connect(("127.0.0.1", server.port())).expect("the server listens");
    let stream = connector.build().connect("localhost", stream);
    let stream = stream.expect("a handshake succeeds");
    let certificate = stream.ssl().peer_certificate();
    certificate.expect("a server presents a certificate")
}

/// Writes the CA into the registration, as cert-manager does.
async fn inject(cluster: &Cluster<'_>, ca: &KeyPair) {
    use base64::Engine as _;
    let bundle = base64::engine::general_purpose::STANDARD.encode(ca.certificate.to_pem().unwrap());
    let path = "/apis/apiregistration.k8s.io/v1/apiservices/v1alpha1.live.ifo.kubevirt.io";
    let patch = json!({"spec": {"caBundle": bundle}});
    cluster.admin.merge(path, &patch).await.ok();
}

async fn presents(server: &Server, expected: &KeyPair) {
    eventually("the server presents its new certificate", async || {
        let found = presented(server).to_der().unwrap();
        let expected = expected.certificate.to_der().unwrap();
        so(found == expected, "another certificate")
    })
    .await;
}

/// Lists operations until `stop` is set. Each list is a new connection of the caller.
async fn list_until(caller: &Caller, stop: &AtomicBool) -> usize {
    let mut lists = 0;
    while !stop.load(Ordering::Relaxed) {
        let answer = caller.get(&OPERATION.path(None)).await;
        assert_eq!(answer.code, 200, "after {lists} lists: {answer:?}");
        lists += 1;
    }
    lists
}

#[test]
fn renewals_by_cert_manager_drop_no_watch_and_refuse_no_request() {
    apart("cert-manager", async |control_plane| {
        let cluster = Cluster::of(control_plane).await;
        cluster.with_folder("apply", "deploy/crd").await;
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
        let rendered = overlay.render(&control_plane.state.kubectl).await;
        let certificate = the(&rendered, "Certificate", "ifo-apiserver-serving");
        let names = super::strings(&certificate["spec"]["dnsNames"]);
        let authority = the(&rendered, "Certificate", "ifo-apiserver-cert-manager-ca");
        assert_eq!(authority["spec"]["privateKey"]["rotationPolicy"], "Never");
        let common_name = text(authority, "/spec/commonName");

        let ca_key = new_key();
        let first_ca = ca(common_name, &ca_key);
        let folder = mounted_secret(&control_plane.state.dir, "ifo-apiserver-serving");
        mount(&folder, &leaf(&first_ca, &names));
        let server = cluster.server().await;
        let registration = Overlay::new("apiservice", &["cert-manager"], None);
        // Without caBundle, the kube-apiserver refuses the certificate of the server.
        cluster
            .apply_registration(registration.path(), &server)
            .await;
        inject(&cluster, &first_ca).await;
        cluster.until_served().await;

        let path = format!("{}?watch=1", OPERATION.path(None));
        let mut watches = Vec::new();
        for _ in 0..WATCHES {
            watches.push(Events::of(&cluster.admin, &path).await.expect("a watch"));
        }
        let stop = AtomicBool::new(false);
        let renewals = async {
            // A new serving certificate of the same CA.
            let second = leaf(&first_ca, &names);
            mount(&folder, &second);
            presents(&server, &second).await;
            // A new CA, before the serving certificate is renewed.
            let second_ca = ca(common_name, &ca_key);
            inject(&cluster, &second_ca).await;
            // A serving certificate of the new CA, while the kube-apiserver still has the old CA.
            inject(&cluster, &first_ca).await;
            let third = leaf(&second_ca, &names);
            mount(&folder, &third);
            presents(&server, &third).await;
            inject(&cluster, &second_ca).await;
            stop.store(true, Ordering::Relaxed);
        };
        let ((), lists) = tokio::join!(renewals, list_until(&cluster.admin, &stop));
        assert!(lists > 0);

        // Each watch still delivers events.
        cluster.with_folder("apply", "rules/generic").await;
        for watch in &mut watches {
            watch
                .until("the Deployment is an operation", |events| {
                    let mut events = events.iter();
                    events.find(|it| it["type"] == "ADDED").map(|_| ())
                })
                .await;
        }
    });
}
