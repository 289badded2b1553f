use super::*;
use crate::ui::feeds::tests::feeds;

#[tokio::test(start_paused = true)]
async fn a_watch_that_cannot_start_restarts_a_tab_rarely() {
    let feeds = feeds(|uri| {
        let is_list = !uri.contains("watch=true");
        is_list.then(|| json!({"metadata": {"resourceVersion": "7"}, "items": []}))
    });
    let mut begun = 0;
    let events = events(feeds, json!({})).for_each(|it| {
        begun += usize::from(it.starts_with(b"event: begin"));
        std::future::ready(())
    });
    let hour = Duration::from_hours(1);
    assert!(timeout(hour, events).await.is_err(), "the stream has ended");
    // At first, the pauses are short. Then they last 30 s.
    assert!((100..=125).contains(&begun), "{begun}");
}
