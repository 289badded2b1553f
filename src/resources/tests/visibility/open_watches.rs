//! Tests of watches that are open or continued while rights, kinds or operations change.

use super::*;

#[tokio::test(start_paused = true)]
async fn an_open_watch_follows_the_rights_of_its_user_within_30_s() {
    let (mut fixture, rights) = fixture();
    let mut stream = Stream::open(&fixture, "", &JANE).await;
    assert_eq!(stream.next_summary().await, "ADDED one 101");
    assert_eq!(stream.next_summary().await, "ADDED named 102");
    put(&mut fixture, 104, "b", "other");
    put(&mut fixture, 105, "a", "two");
    assert_eq!(stream.next_summary().await, "ADDED two 105");
    rights.revoke("jane get virtualmachines a");
    rights.grant("jane get virtualmachines b");
    let changes = async {
        [
            stream.next_summary().await,
            stream.next_summary().await,
            stream.next_summary().await,
        ]
    };
    let changes = tokio::time::timeout(Duration::from_secs(30), changes).await;
    assert_eq!(
        changes.unwrap(),
        ["DELETED one 105", "DELETED two 105", "ADDED other 105"]
    );
    fixture.delete(106, "a", "one");
    fixture.delete(107, "b", "other");
    assert_eq!(stream.next_summary().await, "DELETED other 107");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_continues_a_watch_gets_the_changes_of_its_rights() {
    let (mut fixture, rights) = fixture();
    fixture.json(ALL, &JANE).await;
    rights.revoke("jane get virtualmachines a");
    tokio::time::sleep(Duration::from_mins(2)).await;
    let mut stream = Stream::open(&fixture, "resourceVersion=103", &JANE).await;
    assert_eq!(stream.next_summary().await, "DELETED one 103");
    // The server knows the rights of only the last two periods. The version of this watch is older,
    // so the watch fails.
    put(&mut fixture, 104, "a", "two");
    for _ in 0..2 {
        tokio::time::sleep(Duration::from_secs(31)).await;
        fixture.json(ALL, &JANE).await;
    }
    let mut stream = Stream::open(&fixture, "resourceVersion=103", &JANE).await;
    assert_eq!(stream.next().await.unwrap()["object"]["code"], 410);
}

#[tokio::test(start_paused = true)]
async fn a_client_can_watch_after_its_list_in_a_quiet_cluster() {
    let (fixture, _rights) = fixture();
    for _ in 0..4 {
        fixture.json(ALL, &JANE).await;
        tokio::time::sleep(Duration::from_secs(31)).await;
    }
    fixture.json(ALL, &JANE).await;
    let mut stream = Stream::open(&fixture, "resourceVersion=103", &JANE).await;
    let silence = tokio::time::timeout(Duration::from_secs(1), stream.next());
    assert!(silence.await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_client_has_the_newest_counts_of_its_activities_when_it_gets_a_bookmark() {
    let (mut fixture, _rights) = fixture();
    put_activity(&mut fixture, 104, "a", "namespace", 1);
    let query = "resourceVersion=104&allowWatchBookmarks=true&timeoutSeconds=11";
    let mut stream = Stream::open_path(&fixture, ACTIVITIES, query, &JANE).await;
    let silence = tokio::time::timeout(Duration::from_secs(8), stream.next());
    assert!(silence.await.is_err());
    put(&mut fixture, 105, "a", "two");
    assert_eq!(stream.next_summary().await, "MODIFIED namespace 105");
    assert_eq!(stream.next_summary().await, "BOOKMARK - 105");
}

/// At first, discovery does not contain the kind of the operations, so the watch hides them.
#[tokio::test(start_paused = true)]
async fn an_open_watch_shows_all_operations_of_a_kind_that_discovery_learns() {
    let (mut fixture, _rights) = fixture();
    let others = KINDS.iter().filter(|it| it.kind != "VirtualMachine");
    let others = kinds::short_names(&others.copied().collect::<Vec<_>>());
    let all = fixture.kinds.swap(Arc::new(others));
    let mut stream = Stream::open(&fixture, "", &JANE).await;
    let silence = tokio::time::timeout(Duration::from_secs(1), stream.next());
    assert!(silence.await.is_err());
    fixture.kinds.store(all);
    put(&mut fixture, 104, "a", "two");
    let mut events = Vec::new();
    for _ in 0..3 {
        let event = tokio::time::timeout(Duration::from_secs(30), stream.next_summary());
        events.push(event.await.expect("the watch renews its view every 30 s"));
    }
    assert_eq!(
        events,
        ["ADDED one 104", "ADDED two 104", "ADDED named 104"]
    );
}

#[tokio::test(start_paused = true)]
async fn an_operation_that_a_watch_shows_by_name_stays_when_many_hidden_ones_precede_it() {
    let (mut fixture, rights) = fixture();
    let mut stream = Stream::open(&fixture, "", &JANE).await;
    assert_eq!(stream.next_summary().await, "ADDED one 101");
    assert_eq!(stream.next_summary().await, "ADDED named 102");
    for number in 0..60 {
        put(&mut fixture, 200 + number, "b", &format!("b{number:03}"));
    }
    let silence = tokio::time::timeout(Duration::from_mins(2), stream.next());
    assert!(silence.await.is_err());
    rights.revoke("jane get virtualmachines b named");
    assert_eq!(stream.next_summary().await, "DELETED named 259");
}
