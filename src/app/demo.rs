//! The demo mode: recorded scenes or a folder of manifests replace the cluster. All other parts are
//! the same as in a cluster.

use super::detection::PipelineInput;
use super::listener::bind;
use super::replica::LeaderTerm;
use super::{Access, App, Signals, Started, rule_set_source};
use crate::auth::{DemoUser, DemoUsers, client_certificate_verifier};
use crate::certs::{self, Authority, ServingCertificate, TlsSettings};
use crate::config::{Common, Demo};
use crate::demo::kubeconfig::{self, KubeconfigUser};
use crate::demo::{self, ObjectServer, RuleSetStore, Scenes, kinds, shipped_rules};
use crate::index;
use crate::observe::{Feed, Folder, Raw, Resolve};
use crate::rules::RuleSetEvent;
use crate::serve::{self, resource};
use anyhow::Context as _;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt};
use ifo_api::Gvr;
use ifo_api::ruleset::OperationRuleSet;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
use tokio::sync::watch;
use uuid::Uuid;

/// The users of the demo. In the kubeconfig, the context of a user has the same name.
const ADMINISTRATOR: DemoUser = DemoUser {
    name: "ifo-demo",
    namespace: None,
};
const VIEWER_NAMESPACE: &str = "team-a";
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
    if kubeconfig::is_in_use(&path) {
        tracing::warn!(
            "another demo that is running has written {}: kubectl uses this demo from now on",
            path.display()
        );
    }
    // The file is written after the start, so a signal during the start leaves no file behind.
    // The file is removed when this function returns for any reason.
    let _file = kubeconfig::write(&path, &cluster.server, &cluster.ca, &cluster.users)?;
    let viewer = (VIEWER.name, VIEWER_NAMESPACE);
    println!("{}", demo::commands(&path, viewer, objects.as_deref()));
    app.until_stopped(listening, signals).await
}

/// The facts about the demo that the kubeconfig contains.
struct DemoAccess {
    server: String,
    ca: String,
    users: [KubeconfigUser; 2],
}

/// The start, until requests are served.
async fn start(common: Common, config: Demo) -> anyhow::Result<(Started, DemoAccess)> {
    let mut app = App::start(&common, false)?;
    let (listener, address) = bind(Some(Ipv4Addr::LOCALHOST.into()), config.secure_port)?;

    let authority = Authority::create()?;
    let certified = authority.issue(&["localhost".to_owned()], &[address.ip()])?;
    let serving = ServingCertificate::new(&certified.chain, &certified.key, app.metrics.clone())?;
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
    };
    let (writer, rule_sets) = index::index(super::RING_BOUNDS);
    let stored = RuleSetStore::new(writer);
    let more = Some(resource::operation_rule_sets(rule_sets));
    let source = Subjects::open(&app, &common, &config).await?;
    let mut router = serve::router(app.server(access, more, Some(source.kinds())));
    if let Subjects::Scenes(scenes) = &source {
        let objects = ObjectServer {
            store: scenes.objects(),
            authenticate: users.clone(),
            authorize: users,
        };
        router = objects.in_front_of(router);
    }
    let listening = serve::listen::serve(
        listener,
        Arc::new(tls),
        router,
        app.connections.clone(),
        app.shutdown.clone(),
    );

    let rule_sets = rule_sets_of(&app, &config).await?;
    let mut input = Some(source.detect(&mut app, rule_sets, stored));
    // The demo has one term, which lasts until the process ends.
    let begin = move |_: &mut LeaderTerm| {
        input
            .take()
            .expect("a server without an election leads once")
    };
    app.lead(&common, Box::new(begin));
    let started = Started {
        app,
        listening: listening.boxed(),
    };
    let cluster = DemoAccess {
        server: format!("https://{address}"),
        ca: authority.bundle()?,
        users: tokens.map(|(token, user)| KubeconfigUser {
            context: user.name,
            namespace: user.namespace,
            token,
        }),
    };
    Ok((started, cluster))
}

/// The source of the objects.
enum Subjects {
    Scenes(Scenes),
    Folder(Folder),
}

impl Subjects {
    async fn open(app: &App, common: &Common, config: &Demo) -> anyhow::Result<Self> {
        Ok(match &config.objects {
            None => Self::Scenes(Scenes::open(&common.cluster_operations_namespace)?),
            Some(folder) => Self::Folder(open(app, folder).await?),
        })
    }

    /// The resources whose objects can be read.
    fn kinds(&self) -> &'static [serve::AdvertisedResource] {
        match self {
            Self::Scenes(_) => kinds::KINDS,
            Self::Folder(_) => &[],
        }
    }

    /// The input of the pipeline.
    fn detect(
        self,
        app: &mut App,
        rule_sets: BoxStream<'static, RuleSetEvent>,
        stored: RuleSetStore,
    ) -> PipelineInput {
        match self {
            Self::Scenes(scenes) => {
                let objects = scenes.objects();
                app.keep("scenes", scenes.play());
                pipeline_input(objects, rule_sets, stored)
            }
            Self::Folder(folder) => pipeline_input(folder, rule_sets, stored),
        }
    }
}

fn pipeline_input<S: Feed + Resolve>(
    source: S,
    rule_sets: BoxStream<'static, RuleSetEvent>,
    stored: RuleSetStore,
) -> PipelineInput {
    let source = Arc::new(source);
    let status = Arc::new(stored.clone());
    PipelineInput {
        // The demo has no state of an earlier run.
        restored: std::future::ready(()).boxed(),
        feed: source.clone(),
        resolve: source,
        rule_sets: rule_sets.map(move |event| stored.take(event)).boxed(),
        status,
        settled: watch::Sender::new(None),
    }
}

/// The shipped rule sets, or those of a folder.
async fn rule_sets_of(
    app: &App,
    config: &Demo,
) -> anyhow::Result<BoxStream<'static, RuleSetEvent>> {
    match &config.rules {
        // A folder can have objects of any kind. The scenes have a fixed list of kinds.
        None => Ok(shipped(|target| {
            config.objects.is_some() || kinds::of_resource(target).is_some()
        })),
        Some(folder) => from_folder(app, folder).await,
    }
}

async fn open(app: &App, folder: &Path) -> anyhow::Result<Folder> {
    Folder::open(folder, app.metrics.clone())
        .await
        .with_context(|| format!("cannot read the folder {}", folder.display()))
}

fn shipped(wanted: impl Fn(&Gvr) -> bool) -> BoxStream<'static, RuleSetEvent> {
    let applied = shipped_rules::shipped()
        .into_iter()
        .filter(|rule_set| wanted(&rule_set.spec.target.gvr()))
        .map(|rule_set| RuleSetEvent::Applied(Box::new(rule_set)));
    let events = std::iter::once(RuleSetEvent::Reset)
        .chain(applied)
        .chain(std::iter::once(RuleSetEvent::Synced))
        .collect::<Vec<_>>();
    // The stream of rule sets must never end, because its end would stop the controller.
    stream::iter(events)
        .chain(std::future::pending::<RuleSetEvent>().into_stream())
        .boxed()
}

/// Reads the rule sets of a folder and follows changes of its files.
async fn from_folder(app: &App, folder: &Path) -> anyhow::Result<BoxStream<'static, RuleSetEvent>> {
    let opened = open(app, folder).await?;
    let events = opened.follow(rule_set_source()).filter_map(|raw| {
        let event = match raw {
            Raw::Reset => Some(RuleSetEvent::Reset),
            Raw::Synced => Some(RuleSetEvent::Synced),
            Raw::Lost(lost) => {
                tracing::warn!(%lost, "the folder of rule sets");
                None
            }
            Raw::Applied(json) => match serde_json::from_slice::<OperationRuleSet>(&json) {
                Ok(rule_set) => Some(RuleSetEvent::Applied(Box::new(rule_set))),
                Err(error) => {
                    // The last valid content of the file stays in force, as for any file of a
                    // folder.
                    let name = name(&json).unwrap_or_default();
                    tracing::warn!(name, %error, "a rule set could not be decoded");
                    None
                }
            },
            Raw::TooLarge { length, .. } => {
                tracing::warn!(length, "a rule set is too large");
                None
            }
            Raw::Deleted(json) => name(&json).map(RuleSetEvent::Deleted),
        };
        std::future::ready(event)
    });
    // The folder watches its files until it is dropped.
    Ok(events
        .map(move |event| {
            let _ = &opened;
            event
        })
        .boxed())
}

/// The name of an object. The rest of the object is not read.
fn name(json: &[u8]) -> Option<String> {
    serde_json::from_slice::<kube::core::PartialObjectMeta>(json)
        .ok()
        .and_then(|object| object.metadata.name)
}
