//! Runs the server in demo mode, without a cluster. The objects come from scenes (recordings of
//! objects in a cluster) or from a folder of manifests. Operations are detected and served as in a
//! cluster.

use super::cluster::rule_sets;
use super::leader_term::{LeaderTerm, PipelineInput};
use super::listener::bind;
use super::{Access, App, Components, Signals};
use crate::config::{Common, Demo};
use crate::demo::users::{DemoUser, DemoUsers};
use crate::demo::{
    self, ObjectStore, access_reviews, folder, kinds, kubeconfig, object_server, scene,
    shipped_rules,
};
use aggregated_apiserver::auth::client_certificate_verifier;
use aggregated_apiserver::certs::{self, Authority, ServingCertificate, TlsSettings};
use aggregated_apiserver::serve::ResourceInfo;
use futures::FutureExt;
use ifo_api::Resolution;
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
use uuid::Uuid;

/// The user who may read everything.
const ADMINISTRATOR: &str = "ifo-demo";
/// The user who may read only one namespace.
const VIEWER: &str = "ifo-demo-team-a";
const VIEWER_NAMESPACE: &str = "team-a";

pub(super) async fn run(common: Common, config: Demo, mut signals: Signals) -> anyhow::Result<()> {
    let path = std::path::absolute(&config.kubeconfig_out)
        .unwrap_or_else(|_| config.kubeconfig_out.clone());
    let objects = config.objects.clone();
    let starting = start(common, config);
    let Some((app, kubeconfig)) = signals.unless_stopped(starting).await? else {
        return Ok(());
    };
    // The demo writes the kubeconfig only after the start. So if a signal ends the start, no file
    // is left. When this function returns, it drops `_file`, which removes the file.
    if path.exists() {
        tracing::warn!(
            file = %path.display(),
            "the file exists and is replaced; if it belongs to another demo, restart one of them with \
             --kubeconfig-out"
        );
    }
    let _file = kubeconfig::write(&path, kubeconfig)?;
    let viewer = (VIEWER, VIEWER_NAMESPACE);
    // `println` would panic if the reader of standard output has ended.
    let commands = demo::commands(&path, viewer, objects.as_deref());
    let _ = writeln!(std::io::stdout(), "{commands}");
    app.until_stopped(signals).await
}

/// Binds the listener and starts all tasks. Also returns the content of the kubeconfig.
async fn start(common: Common, config: Demo) -> anyhow::Result<(App, String)> {
    let (mut app, index_writer) = App::start(&common, false)?;
    let (listener, address) = bind(Some(Ipv4Addr::LOCALHOST.into()), config.secure_port).await?;

    let authority = Authority::create()?;
    let issued = authority.issue(&["localhost".to_owned(), address.ip().to_string()])?;
    let serving = ServingCertificate::new(&issued.chain, &issued.key, app.shared.metrics.api())?;
    let tls = certs::server_config(
        Arc::new(serving),
        client_certificate_verifier(),
        &TlsSettings::default(),
    );

    let users = [(ADMINISTRATOR, None), (VIEWER, Some(VIEWER_NAMESPACE))];
    let users = users.map(|(name, namespace)| DemoUser {
        name,
        namespace,
        token: Uuid::new_v4().simple().to_string(),
    });
    let server = format!("https://{address}");
    let kubeconfig = kubeconfig::content(&server, &authority.bundle(), &users);
    let users = Arc::new(DemoUsers(users.into()));
    let access = Access {
        authenticate: users.clone(),
        authorize: users.clone(),
        authorize_subjects: None,
    };
    let (objects, kinds) = open_objects(&mut app, &common, &config)?;
    let stored_rule_sets = open_rule_sets(&mut app, &config, &objects)?;
    let short_names = kinds::short_names(&kinds);
    app.short_names_of_kinds.store(Arc::new(short_names));
    let served = object_server::resources(&kinds, &objects, &stored_rule_sets);
    let routes = object_server::routes(objects.clone());
    let router = app.router(access, (served, routes), false);
    let router = access_reviews::add_to(router, users);
    app.listen(listener, tls, router);
    let begin_term = move |_: &Components, _: &mut LeaderTerm| PipelineInput {
        // The demo does not restore operations of an earlier process.
        restored: std::future::ready(()).boxed(),
        feed: Arc::new(objects.clone()),
        resolve: Arc::new(objects.clone()),
        rule_sets: rule_sets::events(&stored_rule_sets),
        status: Arc::new(stored_rule_sets.clone()),
    };
    // The demo has no other replicas, so it is the leader until the process ends.
    app.lead(index_writer, Box::new(begin_term));
    Ok((app, kubeconfig))
}

/// Opens the folder of the flag `--objects`. Without this flag, starts the task that plays the
/// scenes. Returns two values:
///
/// - The objects that the rules evaluate.
/// - The kinds of the objects that the demo serves. Of the objects in a folder, the demo serves
///   only the Namespaces.
fn open_objects(
    app: &mut App,
    common: &Common,
    config: &Demo,
) -> anyhow::Result<(ObjectStore, Vec<ResourceInfo>)> {
    let own = &*common.cluster_operations_namespace;
    if let Some(folder) = &config.objects {
        let objects = open(app, folder, &["default", own])?;
        return Ok((objects, kinds::KINDS_WITH_FOLDER.to_vec()));
    }
    let (objects, play) = scene::open(own);
    app.tasks.start("scenes", play);
    let kinds = objects.served_kinds();
    Ok((objects, kinds))
}

/// Opens the folder of the flag `--rules`. Without this flag, returns the shipped rule sets.
fn open_rule_sets(
    app: &mut App,
    config: &Demo,
    objects: &ObjectStore,
) -> anyhow::Result<ObjectStore> {
    match &config.rules {
        // A folder (`--objects`) can contain objects of any kind, so all shipped rule sets are
        // used.
        None => Ok(shipped_rules::store(|target| {
            config.objects.is_some() || matches!(objects.kind_of(target), Resolution::Served { .. })
        })),
        Some(folder) => {
            let stored = open(app, folder, &[])?;
            let (version, kind) = (kinds::RULE_SETS.api_version(), kinds::RULE_SETS.kind);
            if stored.in_namespace(&version, kind, "").is_empty() {
                tracing::warn!("no {kind} in {}", folder.display());
            }
            Ok(stored)
        }
    }
}

/// Reads a folder, and starts the task that follows its changes.
fn open(app: &mut App, folder: &Path, namespaces: &[&str]) -> anyhow::Result<ObjectStore> {
    let (opened, following) = folder::open(folder, namespaces)?;
    app.tasks.start("folder", following);
    Ok(opened)
}
