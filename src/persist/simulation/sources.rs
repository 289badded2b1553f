//! Who knows what was there before a restart: the custom resources, and another server.
//! As `Records` and `Replica` do, what is in flight comes first, and both phases are of one
//! state.

use super::cluster::Client;
use crate::index::{At, Reader, Rv, Scope};
use crate::persist;
use crate::restore::{self, Failure, Page, Records};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use ifo_api::live::{self, Phase};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Operations in a page of another server.
const PAGE: usize = 5;

/// What a server was told at its start, and whether another server did.
pub type Heard = Arc<Mutex<Vec<(live::InFlightOperation, bool)>>>;

fn hear(heard: &Heard, page: &Page, is_shown: bool) {
    let told = page.operations.iter().map(|it| (it.clone(), is_shown));
    heard
        .lock()
        .expect("nothing panics that holds it")
        .extend(told);
}

/// The custom resources.
pub struct FromCluster {
    pub client: Client,
    pub heard: Heard,
}

impl restore::Source for FromCluster {
    fn name(&self) -> &'static str {
        "custom resources"
    }

    fn within(&self) -> Duration {
        Records::WITHIN
    }

    fn page<'a>(&'a self, next: Option<&'a str>) -> BoxFuture<'a, Result<Page, Failure>> {
        let (phase, token) = match next.and_then(|next| next.split_once('/')) {
            Some(("Completed", token)) => (Phase::Completed, Some(token.to_owned())),
            Some((_, token)) => (Phase::Active, Some(token.to_owned())),
            None => (Phase::Active, None),
        };
        async move {
            let call = self.client.call(move |cluster| {
                let of_phase = |cr: &ifo_api::persisted::InFlightOperation| {
                    cr.status.as_ref().is_some_and(|it| it.phase == phase)
                };
                let version = cluster.version_of(token.as_deref());
                Ok((version, cluster.page(token.as_deref(), of_phase)))
            });
            let passing = |failure: persist::Failure| Failure::Passing(failure.to_string());
            let (version, page) = call.await.map_err(passing)?;
            let name = if phase == Phase::Active {
                "Active"
            } else {
                "Completed"
            };
            let next = match page.next {
                Some(token) => Some(format!("{name}/{token}")),
                None if phase == Phase::Active => Some(format!("Completed/{version}/")),
                None => None,
            };
            let page = Page {
                operations: page.items.iter().filter_map(persist::from_cr).collect(),
                version: None,
                next,
            };
            hear(&self.heard, &page, false);
            Ok(page)
        }
        .boxed()
    }
}

/// Another server.
pub struct FromServer {
    pub reader: Reader,
    pub lives: Arc<AtomicBool>,
    pub rng: Mutex<fastrand::Rng>,
    pub heard: Heard,
}

impl FromServer {
    fn list(&self, next: Option<&str>) -> Option<Page> {
        let (at, skip) = match next.and_then(|next| next.split_once('/')) {
            Some((version, skip)) => (At::Exact(Rv(version.parse().ok()?)), skip.parse().ok()?),
            None => (At::Latest, 0),
        };
        let (rv, entries) = self.reader.list(&Scope::All, at).ok()?;
        let mut operations: Vec<live::InFlightOperation> = entries
            .iter()
            .filter_map(|entry| serde_json::from_slice(entry.open().json()).ok())
            .collect();
        operations.sort_by_key(|it| it.status.phase == Phase::Completed);
        let more = operations.len() > skip + PAGE;
        Some(Page {
            operations: operations.into_iter().skip(skip).take(PAGE).collect(),
            version: Some(rv),
            next: more.then(|| format!("{rv}/{}", skip + PAGE)),
        })
    }
}

impl restore::Source for FromServer {
    fn name(&self) -> &'static str {
        "another replica"
    }

    fn within(&self) -> Duration {
        Duration::from_secs(2)
    }

    fn page<'a>(&'a self, next: Option<&'a str>) -> BoxFuture<'a, Result<Page, Failure>> {
        async move {
            let wait = {
                let mut rng = self.rng.lock().expect("nothing panics that holds it");
                match rng.u8(..30) {
                    0 => rng.u64(500..2_500),
                    _ => rng.u64(1..60),
                }
            };
            tokio::time::sleep(Duration::from_millis(wait / 2)).await;
            let page = self.list(next);
            tokio::time::sleep(Duration::from_millis(wait / 2)).await;
            if !self.lives.load(Ordering::Relaxed) {
                return Err(Failure::Lasting("it is gone".to_owned()));
            }
            let page = page.ok_or_else(|| Failure::Lasting("that is gone".to_owned()))?;
            hear(&self.heard, &page, true);
            Ok(page)
        }
        .boxed()
    }
}
