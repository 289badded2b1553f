//! Runs the server in demo mode, without a cluster. The objects come from scenes (recordings of
//! objects in a cluster) or from a folder of manifests. Operations are detected and served as in a
//! cluster.

use super::cluster::rule_sets;
use super::leader_term::{LeaderTerm, PipelineInput};
use super::listener::bind;
use super::{Access, App, Signals, Started, rule_set_source};
use crate::config::{Common, Demo};
use crate::demo::kubeconfig::{self, KubeconfigUser};
use crate::demo::users::{DemoUser, DemoUsers};
use crate::demo::{
    self, ObjectStore, RuleSetStore, Scenes, access_reviews, folder, kinds, object_server,
    shipped_rules,
};
use crate::index;
use crate::resources;
use crate::rules::RuleSetEvent;
use aggregated_apiserver::auth::client_certificate_verifier;
use aggregated_apiserver::certs::{self, Authority, ServingCertificate, TlsSettings};
use aggregated_apiserver::serve::{self, ResourceInfo, ServerParameters};
use anyhow::Context as _;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt};
use ifo_api::Gvr;
use ifo_observe::{Feed, Raw};
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
use tokio::sync::watch;
use uuid::Uuid;

/// The user who may read everything. In the kubeconfig, each demo user has a context of the same
/// name.
const ADMINISTRATOR: DemoUser = DemoUser {
    name: "ifo-demo",
    namespace: None,
};
const VIEWER_NAMESPACE: &str = "team-a";
/// The user who may read only one namespace.
const VIEWER: DemoUser = DemoUser {
    name: "ifo-demo-team-a",
    namespace: Some(VIEWER_NAMESPACE),
};

pub(super) async fn run(common: Common, config: Demo, mut signals: Signals) -> anyhow::Result<()> {
    let path = std::path::absolute(&config.kubeconfig_out)
        .unwrap_or_else(|_| config.kubeconfig_out.clone());
    let objects = config.objects.clone();
    let starting = start(common, config);
    let Some((Started { app, listening }, cluster)) = signals.unless_stopped(starting).await?
    else {
        return Ok(());
    };
    // The demo writes the kubeconfig only after the start. So if a signal ends the start, no file
    // is left. When this function returns, the drop of `_file` removes the file.
    let _file = kubeconfig::write(&path, &cluster.server, &cluster.ca, &cluster.users)?;
    let viewer = (VIEWER.name, VIEWER_NAMESPACE);
    println!("{}", demo::commands(&path, viewer, objects.as_deref()));
    app.until_stopped(listening, signals).await
}

/// The values that are written to the kubeconfig.
struct DemoAccess {
    server: String,
    ca: String,
    users: [KubeconfigUser; 2],
}

/// Binds the listener and starts all tasks. The listener accepts connections only when the returned
/// future `listening` is polled.
async fn start(common: Common, config: Demo) -> anyhow::Result<(Started, DemoAccess)> {
    let mut app = App::start(&common, false)?;
    let (listener, address) = bind(Some(Ipv4Addr::LOCALHOST.into()), config.secure_port).await?;

    let authority = Authority::create()?;
    let issued = authority.issue(&["localhost".to_owned()], &[address.ip()])?;
    let serving = ServingCertificate::new(&issued.chain, &issued.key, app.metrics.api())?;
    let tls = certs::server_config(
        Arc::new(serving),
        client_certificate_verifier(),
        &TlsSettings::default(),
    );

    let tokens = [ADMINISTRATOR, VIEWER].map(|user| (Uuid::new_v4().simple().to_string(), user));
    let users = tokens.iter().map(|(token, user)| (token.as_str(), *user));
    let users = Arc::new(DemoUsers::new(users));
    let access = Access {
        authenticate: users.clone(),
        authorize: users.clone(),
        authorize_subjects: None,
    };
    let (writer, rule_sets) = index::index(super::RING_BOUNDS);
    let stored = RuleSetStore::new(writer);
    let more = Some(resources::operation_rule_sets(rule_sets));
    let (objects, kinds) = open_objects(&mut app, &common, &config).await?;
    let short_names = kinds::short_names(kinds);
    app.short_names_of_kinds.store(Arc::new(short_names));
    let router = app.router(access, more, Some(kinds), false);
    let server = ServerParameters {
        metrics: app.metrics.api(),
        shutdown: app.shutdown.clone(),
        limits: common.limits(),
        ..ServerParameters::new("ifo", users.clone(), users.clone())
    };
    let router = object_server::in_front_of(router, &objects, kinds, server);
    let router = access_reviews::add_to(router, users);
    let listening = serve::listen::serve(
        listener,
        Arc::new(tls),
        router,
        app.connections.clone(),
        app.shutdown.clone(),
    );

    let rule_sets = rule_sets_of(&mut app, &config).await?;
    let status = Arc::new(stored.clone());
    let mut input = Some(PipelineInput {
        // The demo does not restore operations of an earlier process.
        restored: std::future::ready(()).boxed(),
        feed: Arc::new(objects.clone()),
        resolve: Arc::new(objects),
        rule_sets: rule_sets
            .map(move |event| stored.store_event(event))
            .boxed(),
        status,
        unsynced_rule_sets: watch::Sender::new(None),
    });
    // The demo has no other replicas. It is the leader until the process ends, in one leadership
    // term.
    let begin_term = move |_: &mut LeaderTerm| {
        input
            .take()
            .expect("a server without an election begins one leadership term")
    };
    app.lead(Box::new(begin_term));
    let started = Started {
        app,
        listening: listening.boxed(),
    };
    let cluster = DemoAccess {
        server: format!("https://{address}"),
        ca: authority.bundle(),
        users: tokens.map(|(token, user)| KubeconfigUser {
            context: user.name,
            namespace: user.namespace,
            token,
        }),
    };
    Ok((started, cluster))
}

/// Opens the folder of the flag `--objects`. Without this flag, starts the task that plays the scenes.
/// Returns the objects that the rules evaluate, and the kinds of the objects that the demo serves. Of the
/// objects in a folder, the demo serves only the Namespaces.
async fn open_objects(
    app: &mut App,
    common: &Common,
    config: &Demo,
) -> anyhow::Result<(ObjectStore, &'static [ResourceInfo])> {
    let own = &*common.cluster_operations_namespace;
    if let Some(folder) = &config.objects {
        let objects = open(app, folder, &["default", own]).await?;
        return Ok((objects, kinds::NAMESPACES));
    }
    let scenes = Scenes::open(own)?;
    let objects = scenes.objects();
    app.tasks.start("scenes", scenes.play());
    Ok((objects, kinds::KINDS))
}

/// Returns the rule sets in the folder of the flag `--rules`. Without this flag, returns shipped
/// rule sets.
async fn rule_sets_of(
    app: &mut App,
    config: &Demo,
) -> anyhow::Result<BoxStream<'static, RuleSetEvent>> {
    match &config.rules {
        // For scenes, this function returns only the rule sets for the kinds in the scenes. A
        // folder (`--objects`) can contain objects of any kind, so all shipped rule sets are used.
        None => Ok(shipped(|target| {
            config.objects.is_some() || kinds::of_resource(target).is_some()
        })),
        Some(folder) => from_folder(app, folder).await,
    }
}

/// Reads a folder, and starts the task that follows its changes.
async fn open(app: &mut App, folder: &Path, namespaces: &[&str]) -> anyhow::Result<ObjectStore> {
    let (opened, following) = folder::open(folder, namespaces)
        .await
        .with_context(|| format!("cannot read the folder {}", folder.display()))?;
    app.tasks.start("folder", following);
    Ok(opened)
}

fn shipped(wanted: impl Fn(&Gvr) -> bool) -> BoxStream<'static, RuleSetEvent> {
    let applied = shipped_rules::shipped()
        .into_iter()
        .filter(|rule_set| wanted(&rule_set.spec.target.gvr()))
        .map(|rule_set| RuleSetEvent::Applied {
            rule_set: Box::new(rule_set),
            unknown_fields: Vec::new(),
        });
    let events = std::iter::once(RuleSetEvent::Reset)
        .chain(applied)
        .chain(std::iter::once(RuleSetEvent::Synced))
        .collect::<Vec<_>>();
    // The stream of rule sets must never end, because its end would stop the controller.
    stream::iter(events)
        .chain(std::future::pending::<RuleSetEvent>().into_stream())
        .boxed()
}

/// Reads the rule sets in a folder and follows changes of the files.
async fn from_folder(
    app: &mut App,
    folder: &Path,
) -> anyhow::Result<BoxStream<'static, RuleSetEvent>> {
    let opened = open(app, folder, &[]).await?;
    let events = opened.follow(rule_set_source(), None).filter_map(|raw| {
        let event = match raw {
            Raw::Reset => Some(RuleSetEvent::Reset),
            Raw::Synced => Some(RuleSetEvent::Synced),
            Raw::Applied(json) => {
                let decoded = serde_json::from_slice(&json).and_then(rule_sets::decode);
                // After an error, the server keeps the rules of the last valid version of the file.
                let log = |error: &_| {
                    let name = name(&json).unwrap_or_default();
                    tracing::warn!(name, %error, "a rule set could not be decoded");
                };
                decoded.inspect_err(log).ok()
            }
            Raw::Deleted(json) => name(&json).map(RuleSetEvent::Deleted),
            // A folder never sends this event. Its errors are in the log.
            Raw::Lost(_) => None,
        };
        std::future::ready(event)
    });
    Ok(events.boxed())
}

/// Returns the name of an object without decoding the rest of the object. Returns `None` if the
/// metadata cannot be decoded or has no name.
fn name(json: &[u8]) -> Option<String> {
    serde_json::from_slice::<kube::core::PartialObjectMeta>(json)
        .ok()
        .and_then(|object| object.metadata.name)
}
