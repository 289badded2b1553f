//! The custom resources of persistence mode, as a source.

use super::list::List;
use super::{Failure, Page, Source};
use crate::api::persisted;
use crate::persist;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube::Client;
use std::time::Duration;

/// Where they are.
const PATH: &str = "/apis/ifo.kubevirt.io/v1alpha1/inflightoperations";

/// The custom resources.
pub struct Records(List);

impl Records {
    /// How long they, and the namespaces they are about, are waited for: as long as what
    /// the server cannot start without. While the kube-apiserver is away, there are no
    /// rules to detect by either.
    pub const WITHIN: Duration = Duration::from_mins(1);

    /// Those that `client` reads.
    pub fn new(client: Client) -> Self {
        Self(List::new(client, PATH))
    }
}

impl std::fmt::Debug for Records {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Records").finish_non_exhaustive()
    }
}

impl Source for Records {
    fn name(&self) -> &'static str {
        "custom resources"
    }

    fn within(&self) -> Duration {
        Self::WITHIN
    }

    fn page<'a>(&'a self, next: Option<&'a str>) -> BoxFuture<'a, Result<Page, Failure>> {
        async move {
            let listed = self.0.page::<persisted::InFlightOperation>(next).await?;
            Ok(Page {
                operations: listed.items.iter().filter_map(persist::from_cr).collect(),
                // Their versions are etcd's.
                version: None,
                next: listed.next,
            })
        }
        .boxed()
    }
}
