//! The custom resources of persistence mode, page by page. Each object is decoded on its
//! own, so that a broken one does not affect the others. Those in flight come first, so
//! that they are restored however much history there is.

use super::retry::{ListFailure, Retry};
use crate::{persist, tracking};
use http::StatusCode;
use ifo_api::persisted;
use ifo_cel::JsonFault;
use ifo_client::list::{ListError, ListItems, ListPager, ListRequest, ListStart};
use ifo_engine::track::{InitialState, MAX_RESTORED};
use kube::Client;
use serde_json::value::RawValue;

/// Where they are.
const PATH: &str = "/apis/ifo.kubevirt.io/v1alpha1/inflightoperations";

/// Objects on a page: at some 3 KB each, one and a half megabytes.
const LIMIT: usize = 500;

/// Objects on a page after one was too large: as many as fit into [`MAX_PAGE`] even if each
/// is as large as etcd accepts, 1.5 MiB.
const SMALL_LIMIT: usize = 10;

/// Bytes of a page that are read.
const MAX_PAGE: usize = 16 << 20;

/// Bytes of an object that are read: as many as etcd accepts, 1.5 MiB, and what the
/// kube-apiserver adds when it is read. Users may have added annotations, up to 256 KiB,
/// labels and managed fields. None of that is kept, and the fields that are kept have
/// bounds of their own.
const MAX_OBJECT: usize = 2 << 20;

/// Lists that are read one after the other. An operation that ends between the two is in
/// both, and its end counts.
const BY_PHASE: &[&str] = &["status.phase=Active", "status.phase=Completed"];

/// The only list of a kube-apiserver that cannot select phases (before Kubernetes 1.31).
const ALL: &[&str] = &[""];

/// Adds all custom resources to `state`.
pub(super) async fn read(client: Client, state: &mut InitialState) -> Result<(), ListFailure> {
    let pager = ListPager::new(client, PATH, Some(LIMIT))
        .accepting("application/json")
        .bounded(MAX_PAGE, SMALL_LIMIT);
    let mut retry = Retry::default();
    let (mut selectors, mut next) = (BY_PHASE, None::<String>);
    while let [field_selector, rest @ ..] = selectors {
        let request = ListRequest {
            field_selector,
            start: ListStart::after(next.as_deref()),
            ..ListRequest::default()
        };
        let page = pager.page(request).await;
        if let Err(ListError::Refused(answer)) = &page
            && answer.status() == StatusCode::BAD_REQUEST
            && selectors == BY_PHASE
            && next.is_none()
        {
            tracing::info!("the kube-apiserver cannot select phases of custom resources");
            selectors = ALL;
            continue;
        }
        let page = page.map_err(|error| failure(&error));
        match page.and_then(|page| add(&page.body, state)) {
            Ok(token) => {
                retry.answered();
                let is_last = token.is_none() || token == next;
                next = token.filter(|_| !is_last);
                if is_last {
                    selectors = rest;
                }
            }
            Err(failure) => {
                if matches!(failure, ListFailure::Expired(_)) {
                    next = None;
                }
                retry.wait(failure).await?;
            }
        }
    }
    Ok(())
}

/// What an error of the pager means.
fn failure(error: &ListError) -> ListFailure {
    match error {
        ListError::Request { source, .. } => ListFailure::Permanent(source.to_string()),
        ListError::Refused(answer) => ListFailure::of_status(answer.status()),
        ListError::TooLarge {
            is_reduced: false, ..
        } => ListFailure::Permanent(error.to_string()),
        ListError::Transport(_) | ListError::TooLarge { .. } => {
            ListFailure::Temporary(error.to_string())
        }
    }
}

/// Adds the objects of a page to `state`, and returns the continue token.
fn add(body: &[u8], state: &mut InitialState) -> Result<Option<String>, ListFailure> {
    let list = ListItems::<&RawValue>::read(body).map_err(|error| {
        let fault = JsonFault::from(&error);
        ListFailure::Permanent(format!("the answer is not a list: {fault}"))
    })?;
    for item in list.items {
        let bytes = item.get().len();
        if bytes > MAX_OBJECT {
            tracing::warn!(bytes, "a custom resource is too large to be restored");
            continue;
        }
        let decoded = serde_json::from_str::<persisted::InFlightOperation>(item.get());
        let operation = match decoded {
            Ok(custom_resource) => persist::from_cr(&custom_resource),
            Err(error) => {
                let error = JsonFault::from(&error);
                tracing::warn!(%error, "a custom resource cannot be decoded");
                None
            }
        };
        if let Some(operation) = operation
            && !state.add_custom_resource(operation, tracking::now())
        {
            let why = format!("there are more than {MAX_RESTORED}");
            return Err(ListFailure::Permanent(why));
        }
    }
    Ok(list.next)
}
