//! Reads and formats the Kubernetes Events of a subject (the object that an operation is about).

use crate::cluster::api_client::ApiClient;
use crate::cluster::problem::Problem;
use crate::operations::operation_source::escape;
use crate::output::plain_text::ago;
use crate::output::print::{self, TerminalText};
use ifo_api::live::SubjectReference;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use std::cmp::Reverse;

/// The namespace that contains the Events of cluster-scoped objects.
const DEFAULT_NAMESPACE: &str = "default";

/// Reads the Events of a subject and sorts them, the newest first. All pages of the list are read,
/// because the newest Events can be on any page.
pub(crate) async fn read(
    server: &ApiClient,
    subject: &SubjectReference,
) -> Result<Vec<Event>, Problem> {
    let namespace = subject.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE);
    let (kind, name) = (&subject.kind, &subject.name);
    let selector = format!("involvedObject.kind={kind},involvedObject.name={name}");
    let path = format!("/api/v1/namespaces/{}/events", escape(namespace));
    let mut events: Vec<Event> = server.all(&path, &selector).await?;
    events.retain(|it| is_about(it, subject));
    events.sort_by_key(|it| Reverse(last_time(it)));
    Ok(events)
}

/// Returns true if the Event is about the subject. The field selector is not enough: it has no
/// effect on files, and it also selects Events of an earlier object with the same name.
fn is_about(event: &Event, subject: &SubjectReference) -> bool {
    let object = &event.involved_object;
    object.kind.as_deref() == Some(&*subject.kind)
        && object.name.as_deref() == Some(&*subject.name)
        && (subject.uid.is_none() || object.uid.as_deref() == subject.uid.as_deref())
}

/// Returns the time of the newest occurrence.
pub(crate) fn last_time(event: &Event) -> Option<Timestamp> {
    let series = event.series.as_ref();
    let observed = series.and_then(|it| it.last_observed_time.as_ref());
    let observed = observed.or(event.event_time.as_ref()).map(|it| it.0);
    observed.max(event.last_timestamp.as_ref().map(|it| it.0))
}

/// Returns the number of occurrences.
pub(crate) fn count(event: &Event) -> i32 {
    let count = event.series.as_ref().map_or(event.count, |it| it.count);
    count.unwrap_or(1)
}

/// Returns the component that has reported the Event.
pub(crate) fn reporter(event: &Event) -> Option<&String> {
    let source = event.source.as_ref().and_then(|it| it.component.as_ref());
    let source = source.filter(|it| !it.is_empty());
    source.or(event.reporting_component.as_ref())
}

/// Formats Events as a table. If an Event occurred several times, the number follows the age.
pub(super) fn table(events: &[Event], now: Timestamp) -> TerminalText {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let row = |event: &Event| {
        let age = last_time(event).map_or_else(|| "<unknown>".to_owned(), |it| ago(it, now));
        let count = Some(count(event)).filter(|it| *it > 1);
        let count = count.map_or_else(String::new, |it| format!(" (x{it})"));
        [
            text(&event.type_),
            text(&event.reason),
            age + &count,
            reporter(event).cloned().unwrap_or_default(),
            text(&event.message).trim().to_owned(),
        ]
    };
    let rows: Vec<_> = events.iter().map(row).collect();
    print::table(["TYPE", "REASON", "AGE", "FROM", "MESSAGE"], &rows)
}
