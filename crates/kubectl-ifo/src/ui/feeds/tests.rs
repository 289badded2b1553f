use super::*;
use crate::test_fixtures::client;
use serde_json::Value;
use tokio::time::Instant;

/// Returns the feeds of a simulated cluster.
pub(in crate::ui) fn feeds(answer: impl Fn(&str) -> Option<Value> + Send + 'static) -> Arc<Feeds> {
    let filters = Filters::default();
    let source = OperationSource::new(client(answer), filters.clone());
    Arc::new(Feeds::new(source, &filters).expect("there is one namespace"))
}

#[tokio::test(start_paused = true)]
async fn refused_records_are_requested_rarely() {
    let feeds = feeds(|_| None);
    let mut records = feeds
        .all
        .iter()
        .filter(|it| it.resource.kind == record::KIND);
    let records = records.next().expect("records have a feed");
    let start = Instant::now();
    let changes: Vec<ObjectChange> = records.changes().take(3).collect().await;
    assert!(
        changes.iter().all(|it| matches!(it, ObjectChange::Lost(_))),
        "{changes:?}"
    );
    assert_eq!(start.elapsed(), 2 * REFUSED_INTERVAL);
}
