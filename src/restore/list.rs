//! Pages of a list, from any API server. Enters: a client and a path. Leaves: the objects
//! on a page, each decoded on its own: one that is broken costs no other. What is in flight
//! comes first, so that no amount of history crowds it out.

use super::Failure;
use bytes::Bytes;
use http::StatusCode;
use ifo_cel::JsonFault;
use ifo_client::list::{ListError, ListItems, ListPager, ListRequest, ListStart};
use kube::Client;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use std::sync::atomic::{AtomicBool, Ordering};

/// Objects on a page: at some 3 KB each, one and a half megabytes.
const LIMIT: usize = 500;

/// Objects on a page once one was too large: as many as fit into [`MAX_PAGE`] even if each
/// is as large as etcd takes, 1.5 MiB.
const SMALL_LIMIT: usize = 10;

/// Phases, in the order in which they are listed.
const PHASES: [&str; 2] = ["Active", "Completed"];

/// Bytes of a page that are read.
const MAX_PAGE: usize = 16 << 20;

/// A list that is read page by page.
pub(super) struct List {
    pager: ListPager,
    path: &'static str,
    /// Bytes of an object that are read.
    max_object: usize,
    /// Whether phases cannot be selected: then all are listed at once.
    mixed: AtomicBool,
}

/// Where a page begins.
#[derive(Clone, Copy, Default)]
struct Place<'a> {
    /// Of the objects in this phase; all if empty.
    phase: &'a str,
    /// The state that is listed: all phases are listed as of one, or what ends between two
    /// lists would be taken for what is in flight.
    version: &'a str,
    /// What the page before told; empty at the first.
    token: &'a str,
}

impl<'a> Place<'a> {
    fn of(phase: &'a str) -> Self {
        Self {
            phase,
            ..Self::default()
        }
    }

    fn write(self) -> String {
        format!("{}/{}/{}", self.phase, self.version, self.token)
    }

    fn read(text: &'a str) -> Self {
        let mut parts = text.splitn(3, '/');
        let mut part = || parts.next().unwrap_or_default();
        Self {
            phase: part(),
            version: part(),
            token: part(),
        }
    }
}

/// A page.
pub(super) struct Listed<T> {
    pub version: Option<String>,
    pub next: Option<String>,
    pub items: Vec<T>,
}

impl List {
    /// One of objects that have at most `max_object` bytes; larger ones are left out.
    pub(super) fn new(client: Client, path: &'static str, max_object: usize) -> Self {
        Self {
            pager: ListPager::new(client, path, Some(LIMIT))
                .accepting("application/json")
                .bounded(MAX_PAGE, SMALL_LIMIT),
            path,
            max_object,
            mixed: AtomicBool::new(false),
        }
    }

    /// The page that `next` asks for.
    pub(super) async fn page<T: DeserializeOwned>(
        &self,
        next: Option<&str>,
    ) -> Result<Listed<T>, Failure> {
        let mut place = match next.map(Place::read) {
            Some(place) => place,
            None if self.mixed.load(Ordering::Relaxed) => Place::default(),
            None => Place::of(PHASES[0]),
        };
        let mut body = self.read(place).await;
        if let Err(ListError::Refused(answer)) = &body
            && answer.status() == StatusCode::BAD_REQUEST
            && next.is_none()
            && !place.phase.is_empty()
        {
            tracing::info!(path = self.path, "phases cannot be selected");
            self.mixed.store(true, Ordering::Relaxed);
            place = Place::default();
            body = self.read(place).await;
        }
        let body = body.map_err(|error| failure(&error))?;
        let mut listed = decode(&body, self.max_object)?;
        let version = listed.version.as_deref().unwrap_or_default();
        listed.next = match &listed.next {
            Some(token) => Some(Place { token, ..place }.write()),
            None if place.phase == PHASES[0] => Some(
                Place {
                    version,
                    ..Place::of(PHASES[1])
                }
                .write(),
            ),
            None => None,
        };
        Ok(listed)
    }

    /// The body of the page that begins at `place`.
    async fn read(&self, place: Place<'_>) -> Result<Bytes, ListError> {
        let Place {
            phase,
            version,
            token,
        } = place;
        let field_selector = match phase {
            "" => String::new(),
            phase => format!("status.phase={phase}"),
        };
        let request = ListRequest {
            field_selector: &field_selector,
            start: match (token, version) {
                ("", "") => ListStart::First,
                ("", version) => ListStart::Exact(version),
                (token, _) => ListStart::Continue(token),
            },
            ..ListRequest::default()
        };
        Ok(self.pager.page(request).await?.body)
    }
}

/// What an error of the pager means.
fn failure(error: &ListError) -> Failure {
    match error {
        ListError::Request { source, .. } => Failure::Lasting(source.to_string()),
        ListError::Refused(answer) => refused(answer.status()),
        ListError::TooLarge {
            is_reduced: false, ..
        } => Failure::Lasting(error.to_string()),
        ListError::Transport(_) | ListError::TooLarge { .. } => Failure::Passing(error.to_string()),
    }
}

/// What an answer other than 200 means.
pub(super) fn refused(status: StatusCode) -> Failure {
    let why = format!("answered {status}");
    match status {
        StatusCode::TOO_MANY_REQUESTS => Failure::Passing(why),
        status if status.is_server_error() => Failure::Passing(why),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Failure::Refused(why),
        StatusCode::GONE => Failure::Expired(why),
        _ => Failure::Lasting(why),
    }
}

fn decode<T: DeserializeOwned>(body: &[u8], max_object: usize) -> Result<Listed<T>, Failure> {
    let list = ListItems::<&RawValue>::read(body).map_err(|error| {
        let fault = JsonFault::from(&error);
        Failure::Lasting(format!("the answer is not a list: {fault}"))
    })?;
    let items = list.items.into_iter().filter_map(|item| {
        if item.get().len() > max_object {
            tracing::warn!(
                bytes = item.get().len(),
                "an object is too large to be restored"
            );
            return None;
        }
        serde_json::from_str(item.get())
            .inspect_err(|error| {
                let error = JsonFault::from(error);
                tracing::warn!(%error, "an object cannot be restored");
            })
            .ok()
    });
    Ok(Listed {
        items: items.collect(),
        version: list.version,
        next: list.next,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::restore::tests::{operation, serving};
    use ifo_api::live::InFlightOperation;
    use serde_json::{Value, json};
    use std::sync::{Arc, Mutex};

    #[test]
    fn an_object_that_is_broken_or_too_large_costs_no_other() {
        let good = serde_json::to_value(operation("a")).unwrap();
        let mut large = good.clone();
        large["status"]["message"] = "x".repeat(1 << 10).into();
        let list = serde_json::json!({
            "metadata": {"resourceVersion": "7", "continue": "more"},
            "items": [{}, 3, large, good],
        });
        let page = decode::<InFlightOperation>(list.to_string().as_bytes(), 1 << 10).unwrap();
        assert_eq!(page.items, [operation("a")]);
        assert_eq!(
            (page.version.as_deref(), page.next.as_deref()),
            (Some("7"), Some("more"))
        );
        for answer in ["", "[]", "{\"items\": 3}", "not found"] {
            assert!(
                decode::<InFlightOperation>(answer.as_bytes(), 1 << 10).is_err(),
                "{answer}"
            );
        }
    }

    #[test]
    fn only_what_may_pass_is_asked_again() {
        for code in [429, 500, 503] {
            let refused = refused(StatusCode::from_u16(code).unwrap());
            assert!(matches!(refused, Failure::Passing(_)), "{refused:?}");
        }
        for code in [401, 403] {
            let refused = refused(StatusCode::from_u16(code).unwrap());
            assert!(matches!(refused, Failure::Refused(_)), "{refused:?}");
        }
        assert!(matches!(refused(StatusCode::GONE), Failure::Expired(_)));
        for code in [400, 404] {
            let refused = refused(StatusCode::from_u16(code).unwrap());
            assert!(matches!(refused, Failure::Lasting(_)), "{refused:?}");
        }
    }

    /// Lists all that `answer` has; gives names, and what was asked.
    async fn all(
        answer: impl Fn(&str) -> (u16, Value) + Send + Sync + 'static,
    ) -> (Vec<String>, Vec<String>) {
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let kept = asked.clone();
        let client = serving(move |uri| {
            kept.lock().unwrap().push(uri.to_owned());
            answer(uri)
        });
        let list = List::new(client, "/all", 1 << 16);
        let (mut names, mut next) = (Vec::new(), None);
        loop {
            let page = list.page::<InFlightOperation>(next.as_deref()).await;
            let page = page.unwrap();
            names.extend(page.items.into_iter().map(|it| it.metadata.name.unwrap()));
            next = page.next;
            if next.is_none() {
                break;
            }
        }
        let asked = asked.lock().unwrap().clone();
        (names, asked)
    }

    fn listed(names: &[&str], token: &str) -> (u16, Value) {
        let items: Vec<_> = names.iter().map(|name| operation(name)).collect();
        (
            200,
            json!({"metadata": {"resourceVersion": "7", "continue": token}, "items": items}),
        )
    }

    #[tokio::test]
    async fn what_is_in_flight_comes_before_all_history() {
        let (names, asked) = all(|uri| {
            match (
                uri.contains("phase%3DActive"),
                uri.contains("continue=more%2F1"),
            ) {
                (true, false) => listed(&["x"], "more/1"),
                (true, true) => listed(&["y"], ""),
                (false, false) => listed(&["a"], "more/1"),
                (false, true) => listed(&["b"], ""),
            }
        })
        .await;
        assert_eq!(names, ["x", "y", "a", "b"]);
        let of = |phase: &str, token: &str| {
            format!("/all?limit=500&fieldSelector=status.phase%3D{phase}{token}")
        };
        let want = [("Active", ""), ("Active", "&continue=more%2F1")];
        // As of the same version: what ends meanwhile is in flight in both.
        let then = "&resourceVersionMatch=Exact&resourceVersion=7";
        let more = [("Completed", then), ("Completed", "&continue=more%2F1")];
        let want = want.iter().chain(&more);
        assert!(want.map(|(phase, token)| of(phase, token)).eq(asked));
    }

    #[tokio::test]
    async fn where_phases_cannot_be_selected_all_are_listed() {
        let (names, asked) = all(|uri| {
            if uri.contains("fieldSelector") {
                return (400, json!({}));
            }
            if uri.contains("continue=1") {
                listed(&["b"], "")
            } else {
                listed(&["a"], "1")
            }
        })
        .await;
        assert_eq!(names, ["a", "b"]);
        assert_eq!(asked.len(), 3, "{asked:?}");
    }
}
