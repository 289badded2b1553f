//! What Kubernetes tells of a subject: its recent Events.

use crate::operation::Subject;
use crate::server::Server;
use crate::source::{escape, query};
use ifo_api::duration;
use jiff::Timestamp;
use serde::Deserialize;

/// Where Events of cluster-scoped objects live.
const DEFAULT_NAMESPACE: &str = "default";

/// Events that are read: kubectl's chunk size. One object seldom has more than a few, and
/// they are kept for an hour.
const MOST: &str = "500";

/// An Event, as far as it is shown.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Event {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) reason: String,
    pub(super) message: String,
    count: i64,
    first_timestamp: Option<Timestamp>,
    last_timestamp: Option<Timestamp>,
    #[serde(rename = "eventTime")]
    time: Option<Timestamp>,
    series: Option<Series>,
    source: EventSource,
    reporting_component: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Series {
    count: i64,
    last_observed_time: Option<Timestamp>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct EventSource {
    component: String,
}

#[derive(Deserialize)]
struct List {
    items: Vec<Event>,
}

/// The subject's Events, the newest last; an error says why they are not known.
pub(super) async fn of(server: &Server, subject: &Subject) -> Result<Vec<Event>, String> {
    let namespace = subject.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE);
    let mut selector = vec![
        format!("involvedObject.kind={}", subject.kind),
        format!("involvedObject.name={}", subject.name),
    ];
    if let Some(uid) = &subject.uid {
        selector.push(format!("involvedObject.uid={uid}"));
    }
    let query = query(&[("fieldSelector", &selector.join(",")), ("limit", MOST)]);
    let path = format!("/api/v1/namespaces/{}/events?{query}", escape(namespace));
    let list: List = server
        .get(&path, "events", Some(namespace))
        .await
        .map_err(|problem| problem.to_string())?;
    let mut events = list.items;
    events.sort_by_key(Event::last);
    Ok(events)
}

impl Event {
    fn last(&self) -> Option<Timestamp> {
        let series = self.series.as_ref().and_then(|it| it.last_observed_time);
        series.or(self.last_timestamp).or(self.time)
    }

    /// When it happened, as kubectl prints it: `3m (x5 over 10m)`.
    pub(super) fn age(&self, now: Timestamp) -> String {
        let ago = |time: Option<Timestamp>| {
            time.map_or_else(
                || "<unknown>".to_owned(),
                |time| duration::human(now.as_second() - time.as_second()),
            )
        };
        let last = ago(self.last());
        let first = self.first_timestamp.or(self.time);
        let count = self.series.as_ref().map_or(self.count, |it| it.count);
        if count > 1 {
            format!("{last} (x{count} over {})", ago(first))
        } else {
            last
        }
    }

    /// Who tells it.
    pub(super) fn from(&self) -> &str {
        if self.source.component.is_empty() {
            &self.reporting_component
        } else {
            &self.source.component
        }
    }
}
