//! Running without a cluster: a scenario or a folder in place of one, and everything
//! else as it is.

use super::detection::PipelineInput;
use super::listener::bind;
use super::replica::LeaderTerm;
use super::{Access, App, Signals, Started, rule_set_source};
use crate::auth::{AdministratorsOnly, TokenHolder, client_certificate_verifier};
use crate::certs::{self, Authority, ServingCertificate};
use crate::config::{Common, Demo};
use crate::demo::kubeconfig::{self, Credential};
use crate::demo::{self, Scenario, Shelf};
use crate::index;
use crate::observe::{Feed as _, Folder, Raw};
use crate::rules::RuleSetEvent;
use crate::serve::{self, discovery::CoreGroup, resource};
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

/// Seed of the built-in scenario: the same names each time, so that what is written
/// down about it can be found again.
const SEED: u64 = 1;

pub(super) async fn run(common: Common, config: Demo, mut signals: Signals) -> anyhow::Result<()> {
    let path = std::path::absolute(&config.kubeconfig_out)
        .unwrap_or_else(|_| config.kubeconfig_out.clone());
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
    // Not before the start is complete: a signal during the start leaves no file behind.
    // The file is removed when this function returns, however it does.
    let _file = kubeconfig::write(&path, &cluster.server, &cluster.ca, &cluster.credential)?;
    println!("{}", demo::commands(&path));
    app.until_stopped(listening, signals).await
}

/// What the kubeconfig says about the demo.
struct DemoAccess {
    server: String,
    ca: String,
    credential: Credential,
}

/// Everything until requests are served.
async fn start(common: Common, config: Demo) -> anyhow::Result<(Started, DemoAccess)> {
    let mut app = App::start(&common, false)?;
    let (listener, address) = bind(Some(Ipv4Addr::LOCALHOST.into()), config.secure_port)?;

    let authority = Authority::create()?;
    let certified = authority.issue(&["localhost".to_owned()], &[address.ip()])?;
    let serving = ServingCertificate::new(&certified.chain, &certified.key, app.metrics.clone())?;
    let tls = certs::server_config(Arc::new(serving), client_certificate_verifier());

    let token = Uuid::new_v4().simple().to_string();
    let access = Access {
        authenticate: Arc::new(TokenHolder::of(&token)),
        authorize: Arc::new(AdministratorsOnly),
    };
    let (writer, rule_sets) = index::index(super::RING);
    let shelf = Shelf::new(writer);
    let more = Some(resource::operation_rule_sets(rule_sets));
    let scenario = config.objects.is_none().then(|| Scenario::new(SEED, 1.0));
    let authenticate = access.authenticate.clone();
    let core = match scenario {
        Some(_) => CoreGroup::Namespaces,
        None => CoreGroup::Empty,
    };
    let mut router = serve::router(app.server(access, more, core));
    if let Some(scenario) = &scenario {
        let namespace = &common.cluster_operations_namespace;
        router = demo::namespaces::serve(router, scenario.world(), namespace, authenticate);
    }
    let listening = serve::listen::serve(
        listener,
        Arc::new(tls),
        router,
        app.connections.clone(),
        app.shutdown.clone(),
    );

    let mut origin = Some(origin(&mut app, &config, scenario, shelf).await?);
    // There is one term, which lasts until the end.
    let begin = move |_: &mut LeaderTerm| {
        origin
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
        credential: Credential::Token(token),
    };
    Ok((started, cluster))
}

/// A scenario or a folder; shipped rule sets or a folder of them.
async fn origin(
    app: &mut App,
    config: &Demo,
    scenario: Option<Scenario>,
    shelf: Shelf,
) -> anyhow::Result<PipelineInput> {
    let rule_sets = match &config.rules {
        // The scenario plays what some of them are about; a folder may hold anything.
        None => shipped(|target| {
            config.objects.is_some() || demo::kinds::ALL.iter().any(|kind| kind.is(target))
        }),
        Some(folder) => from_folder(app, folder).await?,
    };
    let taken = shelf.clone();
    let rule_sets = rule_sets.map(move |event| taken.take(event)).boxed();
    let status = Arc::new(shelf);
    Ok(match (scenario, &config.objects) {
        (Some(scenario), _) => {
            let world = Arc::new(scenario.world());
            app.keep("scenario", scenario.run());
            PipelineInput {
                // A demo starts anew.
                restored: std::future::ready(()).boxed(),
                feed: world.clone(),
                resolve: world,
                rule_sets,
                status,
                settled: watch::Sender::new(None),
            }
        }
        (None, folder) => {
            let folder = folder
                .as_deref()
                .context("there is no scenario and no folder")?;
            let folder = Arc::new(open(app, folder).await?);
            PipelineInput {
                // A demo starts anew.
                restored: std::future::ready(()).boxed(),
                feed: folder.clone(),
                resolve: folder,
                rule_sets,
                status,
                settled: watch::Sender::new(None),
            }
        }
    })
}

async fn open(app: &App, folder: &Path) -> anyhow::Result<Folder> {
    Folder::open(folder, app.metrics.clone())
        .await
        .with_context(|| format!("cannot read the folder {}", folder.display()))
}

fn shipped(wanted: impl Fn(&Gvr) -> bool) -> BoxStream<'static, RuleSetEvent> {
    let applied = demo::rules::shipped()
        .into_iter()
        .filter(|rule_set| wanted(&rule_set.spec.target.gvr()))
        .map(|rule_set| RuleSetEvent::Applied(Box::new(rule_set)));
    let events = std::iter::once(RuleSetEvent::Reset)
        .chain(applied)
        .chain(std::iter::once(RuleSetEvent::Synced))
        .collect::<Vec<_>>();
    // Rule sets never end: a stream that did would end the controller.
    stream::iter(events)
        .chain(std::future::pending::<RuleSetEvent>().into_stream())
        .boxed()
}

/// The rule sets of a folder, followed as its files change.
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
                    // What it said before stays in force, as with any file of a folder.
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
    // The folder watches its files for as long as it is there.
    Ok(events
        .map(move |event| {
            let _ = &opened;
            event
        })
        .boxed())
}

/// The name of an object, whatever else it holds.
fn name(json: &[u8]) -> Option<String> {
    serde_json::from_slice::<kube::core::PartialObjectMeta>(json)
        .ok()
        .and_then(|object| object.metadata.name)
}
