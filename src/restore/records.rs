//! The custom resources of persistence mode, as a source.

use super::list::List;
use super::{Failure, Page, Source};
use crate::persist;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use ifo_api::persisted;
use kube::Client;
use std::time::Duration;

/// Where they are.
const PATH: &str = "/apis/ifo.kubevirt.io/v1alpha1/inflightoperations";

/// Bytes of one that are read: as many as etcd takes, 1.5 MiB, and what the server adds
/// when it is read. Others may have put annotations on it, up to 256 KiB, labels, and what
/// they manage. None of that is kept, and what is kept has bounds of its own.
const MAX_OBJECT: usize = 2 << 20;

/// The custom resources.
pub struct Records(List);

impl Records {
    /// How long they, and the namespaces they are about, are waited for: as long as what
    /// the server cannot start without. While the kube-apiserver is away, there are no
    /// rules to detect by either.
    pub const WITHIN: Duration = Duration::from_mins(1);

    /// Those that `client` reads.
    pub fn new(client: Client) -> Self {
        Self(List::new(client, PATH, MAX_OBJECT))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::restore::tests::{operation, serving};
    use serde_json::json;

    /// The custom resource of an operation on a machine of this name.
    fn record(name: &str) -> serde_json::Value {
        let mut live = operation(name);
        live.metadata.uid = Some(format!("0123456789-{name}"));
        serde_json::to_value(persist::to_cr(&live)).unwrap()
    }

    #[tokio::test]
    async fn what_others_put_on_a_custom_resource_does_not_keep_it_from_being_restored() {
        let mut noted = record("a");
        // As many bytes as Kubernetes allows.
        noted["metadata"]["annotations"]["somebody's"] = "x".repeat(250 << 10).into();
        let mut large = record("b");
        large["metadata"]["annotations"]["somebody's"] = "x".repeat(MAX_OBJECT).into();
        let items = json!({"metadata": {}, "items": [noted, large]});
        let records = Records::new(serving(move |_| (200, items.clone())));
        let page = records.page(None).await.unwrap();
        assert_eq!(page.operations.len(), 1);
        let restored = &page.operations[0];
        assert_eq!(restored.metadata.annotations, None);
        assert_eq!(restored.spec.subject.name, "a");
    }
}
