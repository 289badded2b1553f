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
use crate::replicate::{self, Connect, Election, ElectionInputs, LeaderAccess, Leases, Mirror};
use crate::resources::SharedShortNames;
use aggregated_apiserver::auth::{
    AuthenticationConfig, Authorize, ClusterAuthenticator, ClusterAuthorizer, Peers,
};
use anyhow::Context as _;
use arc_swap::ArcSwap;
use futures::FutureExt as _;
use ifo_client::short_names::ShortNames;
use ifo_observe::{Connection, connect};
use kube::Client;
use kube::config::AuthInfo;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The Lease with which the replicas elect their leader.
const LEASE_NAME: &str = "ifo-apiserver";

/// Time limit for reading the CAs with which the server authenticates clients. If the CAs cannot be
/// read within this time, the start fails.
const START_TIMEOUT: Duration = Duration::from_mins(1);

/// Binds the listener and starts all tasks.
pub(super) async fn start(common: Common, serve: Serve) -> anyhow::Result<App> {
    let connection = connect(serve.kubeconfig.as_deref(), common.api_timeout).await?;
    let peer_credentials = peer_credentials(&serve, &connection)?;
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
    match peer_credentials {
        Some(credentials) => {
            let peers = (&connection, credentials);
            app.elect(&serve, peers, address.port(), writer, begin_term);
        }
        None => app.lead(writer, begin_term),
    }
    Ok(app)
}

/// Returns the credentials with which this replica authenticates to other replicas. None for a
/// server without an election. Without such credentials, a replica with an election does not start,
/// because it could not copy the operations of the leader.
fn peer_credentials(serve: &Serve, connection: &Connection) -> anyhow::Result<Option<AuthInfo>> {
    let Some(config) = connection.config.as_ref().filter(|_| serve.leader_elect) else {
        return Ok(None);
    };
    let credentials = replicate::peer_credentials(serve.peer_token_file.clone(), config);
    Ok(Some(credentials.context(
        "--leader-elect needs --peer-token-file, because this replica copies the operations of \
         the leader: set the flag to a file with a token for the audience ifo-apiserver, or use a \
         kubeconfig with a client certificate",
    )?))
}

/// Interval at which the short names of kinds are read from discovery. Until then, tables show a new
/// kind in full.
const SHORT_NAMES_INTERVAL: Duration = Duration::from_mins(1);

/// Keeps the short names of kinds up to date. Never ends. While discovery cannot be read, the last
/// short names stay.
async fn keep_short_names(client: Client, short_names: SharedShortNames) {
    loop {
        match ShortNames::discover(&client).await {
            Ok(discovered) => short_names.store(Arc::new(discovered)),
            Err(error) => tracing::debug!(%error, "the short names of kinds cannot be read"),
        }
        tokio::time::sleep(SHORT_NAMES_INTERVAL).await;
    }
}

impl App {
    /// Makes this replica a candidate in the leader election.
    fn elect(
        &mut self,
        serve: &Serve,
        (connection, credentials): (&Connection, AuthInfo),
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
        let access = LeaderAccess {
            client: connection.client.clone(),
            api_service: API_SERVICE,
            server_name: format!("{}.{}.svc", serve.service_name, serve.namespace),
            credentials,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Mode};
    use ifo_client::error_text::chain;

    /// Starts a server with `flags` and with a kubeconfig whose user has these credentials. Returns
    /// the error of the start. Port 1 of the kube-apiserver is closed, so each start fails.
    async fn error_of_start(user: &str, flags: &[&str]) -> String {
        let dir = tempfile::tempdir().unwrap();
        let kubeconfig = dir.path().join("kubeconfig");
        let text = format!(
            "{{apiVersion: v1, kind: Config, current-context: a, \
             clusters: [{{name: a, cluster: {{server: 'http://127.0.0.1:1'}}}}], \
             users: [{{name: a, user: {user}}}], \
             contexts: [{{name: a, context: {{cluster: a, user: a}}}}]}}"
        );
        std::fs::write(&kubeconfig, text).unwrap();
        let kubeconfig = kubeconfig.display().to_string();
        let own = [
            "ifo-apiserver",
            "--secure-port=0",
            "--kubeconfig",
            &kubeconfig,
        ];
        let args = own.iter().chain(flags).map(|arg| (*arg).to_owned());
        let config = Config::from(args, |_| None).unwrap();
        let Mode::Serve(serve) = config.mode else {
            panic!("the flags start a server");
        };
        match tokio::time::timeout(Duration::from_secs(5), start(config.common, *serve)).await {
            Ok(Err(error)) => chain(&*error),
            Ok(Ok(_)) => "started".to_owned(),
            Err(_) => "waiting for the kube-apiserver".to_owned(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_replica_without_credentials_for_the_leader_does_not_start() {
        let elect = ["--leader-elect", "--advertise-address=127.0.0.1:8443"];
        let with_token = [&elect[..], &["--peer-token-file=token"]].concat();
        let message = "--leader-elect needs --peer-token-file";
        for (user, flags, is_refused) in [
            ("{token: a}", &elect[..], true),
            ("{token: a}", &with_token, false),
            ("{token: a}", &[], false),
        ] {
            let error = error_of_start(user, flags).await;
            assert_eq!(error.starts_with(message), is_refused, "{flags:?}: {error}");
        }
    }
}
