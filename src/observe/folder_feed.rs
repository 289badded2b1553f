//! The feed (the stream of objects and their changes) of a folder of manifests. The server in demo
//! mode reads objects (`demo --objects DIR`) and rule sets (`demo --rules DIR`) from this feed.
//!
//! The feed reports a new or changed object as [`Raw::Applied`]. If an object is removed from all
//! files, the feed reports [`Raw::Deleted`].

use super::{
    Feed, Raw, Resolve,
    folder_scan::{Content, Scanner},
    inline,
};
use crate::telemetry::Metrics;
use bytes::Bytes;
use futures::{
    FutureExt as _, SinkExt as _, StreamExt as _,
    channel::mpsc,
    future::{self, BoxFuture},
    stream::{self, BoxStream},
};
use ifo_api::{Gvr, Resolution, Source};
use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::{sync::watch, time::sleep};
use tracing::{info, warn};

/// Time between two scans of the folder. A scan of unchanged files costs one `stat` for each file. The
/// notifications of the operating system are not used, because network file systems and some container
/// mounts send none.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// A folder of manifests. Clones are cheap.
#[derive(Clone, Debug)]
pub struct Folder {
    inner: Arc<FolderState>,
}

#[derive(Debug)]
struct FolderState {
    dir: PathBuf,
    content: watch::Receiver<Arc<Content>>,
    metrics: Arc<Metrics>,
}

impl Folder {
    /// Reads the manifests (`.yaml`, `.yml`, `.json`) in `dir` and in the folders below it. Also
    /// returns a future that follows their changes and never ends. The caller must run this future
    /// as a task. If the task ends, the feeds no longer notice changes.
    ///
    /// If a file cannot be decoded, the scan logs the error and keeps the previous objects of the
    /// file.
    ///
    /// # Errors
    ///
    /// The folder cannot be read, has too many files, or its files are too large in total.
    pub async fn open(
        dir: &Path,
        metrics: Arc<Metrics>,
    ) -> io::Result<(Self, impl Future<Output = ()> + Send + 'static)> {
        let (scanner, first) = scan(Scanner::new(dir)).await;
        let content = first.map_err(io::Error::other)?.unwrap_or_default();
        let (publish, content) = watch::channel(Arc::new(content));
        let folder = Self {
            inner: Arc::new(FolderState {
                dir: dir.to_owned(),
                content,
                metrics,
            }),
        };
        let following = follow_changes(scanner, publish);
        Ok((folder, following))
    }

    /// Returns the names of the namespaces that contain objects, and of the Namespace objects. The
    /// value is the JSON of the Namespace object, or `None` if the folder does not contain it.
    pub fn namespaces(&self) -> BTreeMap<String, Option<Bytes>> {
        self.inner.content.borrow().namespaces()
    }
}

/// Scans the folder on a thread for blocking work. Returns the scanner for the next scan, and the
/// result of [`Scanner::scan`].
async fn scan(mut scanner: Scanner) -> (Scanner, Result<Option<Content>, String>) {
    tokio::task::spawn_blocking(move || {
        let result = scanner.scan();
        (scanner, result)
    })
    .await
    .expect("scanning a folder does not panic and is not cancelled")
}

async fn follow_changes(mut scanner: Scanner, publish: watch::Sender<Arc<Content>>) {
    let mut failed = false;
    loop {
        sleep(POLL_INTERVAL).await;
        let (back, result) = scan(scanner).await;
        scanner = back;
        let has_failed = result.is_err();
        match result {
            Ok(Some(content)) => {
                publish.send_replace(Arc::new(content));
            }
            // If several scans in a row fail, only the first failure is logged.
            Err(why) if !failed => warn!("{why}; the objects of the folder are unchanged"),
            Ok(None) | Err(_) => {}
        }
        failed = has_failed;
    }
}

impl Feed for Folder {
    fn follow(&self, source: Source) -> BoxStream<'static, Raw> {
        let inner = Arc::clone(&self.inner);
        inline(|out| send_changes(inner, source, out))
    }
}

/// Sends all objects of `source` in the folder, and then their changes. Never ends.
async fn send_changes(inner: Arc<FolderState>, source: Source, mut out: mpsc::Sender<Raw>) {
    let target = source.target.to_string();
    let mut content = inner.content.clone();
    let mut sent = BTreeMap::new();
    inner.metrics.feed_relist(&target);
    // The errors of `send` are ignored. `send` fails only if the consumer of the feed has stopped,
    // and this future is then dropped, too.
    let _ = out.send(Raw::Reset).await;
    let mut synced = false;
    loop {
        let now = content
            .borrow_and_update()
            .objects(&source.target, source.namespace.as_deref());
        for (_, json) in sent.iter().filter(|(key, _)| !now.contains_key(key)) {
            let _ = out.send(Raw::Deleted(Bytes::clone(json))).await;
        }
        for (_, json) in now.iter().filter(|(key, json)| sent.get(key) != Some(json)) {
            let _ = out.send(Raw::Applied(json.clone())).await;
        }
        if !std::mem::replace(&mut synced, true) {
            info!(%source, "up to date");
            inner.metrics.feed_state(&target, "watching");
            let _ = out.send(Raw::Synced).await;
        }
        sent = now;
        if content.changed().await.is_err() {
            future::pending::<()>().await;
        }
    }
}

impl Resolve for Folder {
    fn resolve<'a>(&'a self, gvr: &'a Gvr) -> BoxFuture<'a, Resolution> {
        let content = Arc::clone(&self.inner.content.borrow());
        let resolution = match content.kind(gvr) {
            Some((kind, namespaced)) => Resolution::Served {
                kind: kind.to_owned(),
                namespaced,
            },
            None => Resolution::NotServed {
                message: format!(
                    "{} contains neither an object nor a CRD of {gvr}",
                    self.inner.dir.display()
                ),
                // The folder does not show if a cluster would serve the API group. `false` means
                // that the API is probably not installed. `true` would mean that the name of the
                // resource is probably misspelt.
                group_served: false,
                similar_group: None,
            },
        };
        future::ready(resolution).boxed()
    }

    fn resolution_changes(&self) -> BoxStream<'static, ()> {
        // The kinds in the folder may be the same. A look-up costs no request.
        let content = self.inner.content.clone();
        stream::unfold(content, |mut content| async move {
            if content.changed().await.is_err() {
                future::pending::<()>().await;
            }
            Some(((), content))
        })
        .boxed()
    }
}

#[cfg(test)]
#[path = "folder_feed_tests.rs"]
mod tests;
