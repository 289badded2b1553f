//! An aggregated API server with one resource, `notes`. Its only note, `clock`, counts the seconds
//! since the start of the server.
//!
//! The server listens on the loopback address. The environment variable `PORT` has the port. At the
//! start, the server prints the certificate of its own CA, which belongs into the field `caBundle`
//! of its `APIService`. The README has the `APIService`.

use aggregated_apiserver::auth::{
    AuthenticationConfig, ClusterAuthenticator, ClusterAuthorizer, client_certificate_verifier,
};
use aggregated_apiserver::certs::{self, Authority, ServingCertificate, TlsSettings};
use aggregated_apiserver::serve::{
    self, Column, Connections, Resource, ResourceInfo, SelectableField, ServerParameters,
};
use aggregated_apiserver::store::{self, Bounds, Key, VersionAssignment, Write};
use aggregated_apiserver::{Typed, clock, metrics::Metrics};
use arc_swap::ArcSwap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{error::Error, net::Ipv4Addr, sync::Arc, time::Duration};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

#[derive(kube::CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Note", namespaced)]
#[kube(derive = "PartialEq")]
struct NoteSpec {
    /// What the note says.
    text: String,
}

type Notes = Typed<Note>;

static COLUMNS: &[Column<Notes>] = &[
    Column::text("Name", |it: &Note, _| it.metadata.name.as_deref().into()),
    Column::text("Text", |it: &Note, _| Some(&*it.spec.text).into()),
];

fn resource(reader: store::Reader<Notes>) -> Resource<Notes> {
    let info = ResourceInfo::namespaced(("example.com", "v1"), "notes", "Note");
    Resource {
        columns: COLUMNS,
        fields: vec![(
            "spec.text",
            SelectableField::Text(|it: &Note| Some(&it.spec.text)),
        )],
        ..Resource::new(info, Note::json_schema, reader)
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = kube::Client::try_default().await?;
    let metrics = Arc::<Metrics>::default();
    let trust = AuthenticationConfig::load(&client, Duration::from_secs(30)).await?;
    let trust = Arc::new(ArcSwap::from_pointee(trust));
    let reload = AuthenticationConfig::follow(client.clone(), trust.clone());
    tokio::spawn(reload);
    let authenticate = ClusterAuthenticator::new(client.clone(), trust, None, &metrics);
    let authorize = ClusterAuthorizer::new(client, &metrics);
    let server = ServerParameters::new("notes", Arc::new(authenticate), Arc::new(authorize));
    server.readiness.set_synced();

    let age = Duration::from_mins(5);
    let (mut writer, reader) = store::open(Bounds {
        bytes: 1 << 20,
        age,
    });
    let (uid, started) = (uuid::Uuid::new_v4().to_string(), Time(clock::now()));
    tokio::spawn(async move {
        for second in 0_u64.. {
            let text = format!("{second} s");
            let mut object = Note::new("clock", NoteSpec { text });
            object.metadata.namespace = Some("default".to_owned());
            object.metadata.uid = Some(uid.clone());
            object.metadata.creation_timestamp = Some(started.clone());
            let key = Key::new("default", "clock");
            let _ = writer.commit([Write::Put { key, object }], VersionAssignment::Mint);
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    });

    let authority = Authority::create()?;
    let issued = authority.issue(&["notes.default.svc".to_owned()])?;
    print!("{}", authority.bundle());
    let serving = ServingCertificate::new(&issued.chain, &issued.key, metrics)?;
    let clients = client_certificate_verifier();
    let tls = certs::server_config(Arc::new(serving), clients, &TlsSettings::default());
    let port = std::env::var("PORT")?.parse()?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
    let router = serve::router(server, vec![resource(reader)]);
    let (connections, shutdown) = (Connections::new(256), CancellationToken::new());
    serve::listen::serve(listener, Arc::new(tls), router, connections, shutdown).await;
    Ok(())
}
