//! Runs the server for a Kubernetes cluster. The server itself runs inside or outside of the
//! cluster. This module connects to the kube-apiserver and takes part in the leader election.

mod cluster_scope;
mod leading;
mod listener_tls;
mod registration;
pub(super) mod rule_sets;
mod status_writer;

use self::leading::LeaderSetup;
use self::registration::API_SERVICE;
use super::leader_term::keep_readiness;
use super::listener::bind;
use super::server_pipeline::BeginTerm;
use super::{Access, App};
use crate::config::{Common, Serve, Visibility};
use crate::index::Writer;
use crate::replicate::link::{AUDIENCE, TERM_HEADER};
use crate::replicate::{Connect, Election, ElectionInputs, LeaderAccess, Leases, Mirror};
use crate::resources::SharedShortNames;
use aggregated_apiserver::auth::{
    AuthenticationConfig, Authorize, ClusterAuthenticator, ClusterAuthorizer, Peers,
};
use anyhow::Context as _;
use arc_swap::ArcSwap;
use futures::FutureExt as _;
use ifo_client::error_text::chain;
use ifo_client::short_names::ShortNames;
use ifo_observe::{Connection, connect};
use kube::Client;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The Lease with which the replicas elect their leader.
const LEASE_NAME: &str = "ifo-apiserver";

/// Time limit for reading the CAs with which the server authenticates clients. If the server cannot
/// read the CAs within this time, the start fails.
const START_TIMEOUT: Duration = Duration::from_mins(1);

/// Binds the listener and starts all tasks.
pub(super) async fn start(common: Common, serve: Serve) -> anyhow::Result<App> {
    let connection = connect(serve.kubeconfig.as_deref(), common.api_timeout).await?;
    let client = connection.client.clone();
    let (mut app, writer) = App::start(&common, true)?;
    let (listener, address) = bind(serve.bind_address, serve.secure_port).await?;

    let access = access(&mut app, &client, serve.visibility).await?;
    let (tls, ca_bundle) = listener_tls::server_config(&mut app, &client, &serve).await?;
    let short_names = keep_short_names(client.clone(), app.short_names_of_kinds.clone());
    app.tasks.start("short names", short_names);
    let router = app.router(access, Default::default(), serve.gate_webhook);
    app.listen(listener, tls, router);
    if let Some(file) = &serve.port_file {
        write_port(file, address.port())?;
    }
    tracing::info!(%address, version = %common.version, "serving");

    let leading = LeaderSetup {
        serve: serve.clone(),
        connection: connection.clone(),
        ca_bundle,
    };
    let begin_term: BeginTerm = Box::new(move |shared, term| leading.begin(shared, term));
    if serve.leader_elect {
        app.elect(&serve, &connection, address.port(), writer, begin_term);
    } else {
        app.lead(writer, begin_term);
    }
    Ok(app)
}

/// Interval at which the short names of kinds are read from discovery. Until the next read, tables
/// show the full name of a new kind.
const SHORT_NAMES_INTERVAL: Duration = Duration::from_mins(1);

/// Keeps the short names of kinds up to date. Never ends. If discovery cannot be read, the short
/// names of the last read stay.
async fn keep_short_names(client: Client, short_names: SharedShortNames) {
    loop {
        match ShortNames::discover(&client).await {
            Ok(discovered) => short_names.store(Arc::new(discovered)),
            Err(error) => tracing::debug!(
                error = chain(&error),
                "the short names of kinds cannot be read"
            ),
        }
        tokio::time::sleep(SHORT_NAMES_INTERVAL).await;
    }
}

impl App {
    /// Makes this replica a candidate in the leader election.
    fn elect(
        &mut self,
        serve: &Serve,
        connection: &Connection,
        port: u16,
        writer: Writer,
        begin_term: BeginTerm,
    ) {
        let status = &self.shared.replica_status;
        let pod_address = serve.pod_ip.map(|ip| SocketAddr::new(ip, port).to_string());
        let own_address = serve.advertise_address.clone().or(pod_address);
        let client = connection.without_retries();
        let election = Election::new(ElectionInputs {
            leases: Leases::new(client, &serve.namespace, LEASE_NAME),
            timing: serve.timing,
            pod: serve.pod_uid.clone(),
            address: own_address.unwrap_or_default(),
            status: status.clone(),
            metrics: self.shared.metrics.clone(),
            random: fastrand::Rng::new(),
        });
        self.tasks.start("election", election.run());
        let token_file = serve.peer_token_file.as_ref();
        let access = LeaderAccess {
            client: connection.client.clone(),
            api_service: API_SERVICE,
            server_name: format!("{}.{}.svc", serve.service_name, serve.namespace),
            token_file: token_file.map(|file| file.display().to_string()),
        };
        let connect: Connect = Box::new(move |address| access.clone().connect(address).boxed());
        let mirror = Mirror::new(connect, status.clone());
        let keep_readiness = keep_readiness(self.shared.clone(), self.connections.clone());
        self.tasks.start("readiness", keep_readiness);
        self.start_replica_task(writer, Some(mirror), begin_term);
    }
}

/// Creates the authenticator and the authorizer, which send `TokenReview` and `SubjectAccessReview`
/// requests to the kube-apiserver.
async fn access(app: &mut App, client: &Client, visibility: Visibility) -> anyhow::Result<Access> {
    let trust = AuthenticationConfig::load(client, START_TIMEOUT)
        .await
        .context("cannot read the CAs that authenticate clients")?;
    let trust = Arc::new(ArcSwap::from_pointee(trust));
    let following = AuthenticationConfig::follow(client.clone(), trust.clone());
    app.tasks.start("trust", following);
    Ok(Access {
        authenticate: Arc::new(ClusterAuthenticator::new(
            client.clone(),
            trust,
            Some(Peers {
                header: TERM_HEADER,
                audience: AUDIENCE,
            }),
            &app.shared.metrics.api(),
        )),
        authorize: Arc::new(ClusterAuthorizer::new(
            client.clone(),
            &app.shared.metrics.api(),
        )),
        authorize_subjects: (visibility == Visibility::Subject).then(|| {
            let metrics = app.shared.metrics.api();
            let authorize = ClusterAuthorizer::without_cache(client.clone(), &metrics);
            Arc::new(authorize) as Arc<dyn Authorize>
        }),
    })
}

fn write_port(file: &Path, port: u16) -> anyhow::Result<()> {
    // Another process may wait for the file. The rename ensures that the other process never reads
    // an incomplete port.
    let temporary = file.with_extension("tmp");
    std::fs::write(&temporary, format!("{port}\n"))
        .and_then(|()| std::fs::rename(&temporary, file))
        .with_context(|| format!("cannot write the port to {}", file.display()))
}
