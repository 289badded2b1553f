//! Tests when feeds start and stop, and what their tasks send to the tracker and report.

use super::*;
use ifo_observe::GapReason;

#[tokio::test(start_paused = true)]
async fn the_tracker_receives_the_rules_before_the_first_message_of_the_feed() {
    let mut fixture = supervisor();
    let cars = target("cars");
    fixture.publish(&cars, Some(working(1, &cars))).await;
    assert_eq!(fixture.running_sources(), ["cars"]);
    fixture
        .running_feed()
        .list(&[thing("a", true), thing("b", false)]);
    assert_eq!(
        fixture.sent_messages().await,
        [
            "rules 1 of cars",
            "1: reset",
            "1: ns/a [Working]",
            "1: ns/b []",
            "1: synced"
        ]
    );
    assert_eq!(fixture.sent_reports().await, [("cars".to_owned(), 1, None)]);
}

#[tokio::test(start_paused = true)]
async fn a_new_rule_book_restarts_the_feed_and_the_old_feed_sends_nothing_more() {
    // The queue has one slot. So the old feed is waiting for the queue when the new rule book
    // arrives.
    let mut fixture = supervisor_with_queue(1);
    let cars = target("cars");
    fixture.publish(&cars, Some(working(1, &cars))).await;
    let old = fixture.running_feed();
    let many: Vec<_> = (0..10).map(|n| thing(&format!("t{n}"), true)).collect();
    old.list(&many);
    fixture.publish(&cars, Some(working(2, &cars))).await;
    assert!(!old.is_running());
    let mut messages = Vec::new();
    while !messages.contains(&"rules 2 of cars".to_owned()) {
        messages.push(message_line(
            &fixture
                .messages
                .recv()
                .await
                .expect("the supervisor is running"),
        ));
    }
    wait_until_idle().await;
    fixture.running_feed().list(&many[..1]);
    for _ in 0..3 {
        let message = fixture
            .messages
            .recv()
            .await
            .expect("the supervisor is running");
        assert!(message_line(&message).starts_with("2: "), "{message:?}");
    }
    assert!(
        messages.len() < many.len(),
        "the old feed must be stopped before it has sent all objects: {messages:?}"
    );
    assert_eq!(fixture.feeds().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_feed_without_rules_is_stopped_and_other_feeds_continue() {
    let mut fixture = supervisor();
    let (cars, boats) = (target("cars"), target("boats"));
    fixture.publish(&cars, Some(working(1, &cars))).await;
    fixture.publish(&boats, Some(working(2, &boats))).await;
    assert_eq!(fixture.running_sources(), ["boats", "cars"]);
    fixture.sent_messages().await;
    let metric = "ifo_feed_state{target=\"things.example/v1/cars\"";
    assert!(fixture.metrics.render().contains(metric));
    fixture.publish(&cars, None).await;
    assert_eq!(fixture.sent_messages().await, ["no rules of cars"]);
    assert_eq!(fixture.running_sources(), ["boats"]);
    assert_eq!(fixture.feeds().len(), 2, "no feed must be started again");
    assert!(
        !fixture.metrics.render().contains(metric),
        "the metric of the stopped feed must be removed"
    );
    fixture.publish(&cars, Some(working(3, &cars))).await;
    assert_eq!(
        fixture.running_sources(),
        ["boats", "cars"],
        "a new rule book must start the feed again"
    );
    // At the end of a leadership term, the supervisor stops all feeds.
    let feeds = fixture.feeds();
    drop(fixture.publications);
    let ended = fixture.running.await;
    ended.expect("the supervisor does not panic");
    wait_until_idle().await;
    assert!(feeds.iter().all(|feed| !feed.is_running()));
}

#[tokio::test(start_paused = true)]
async fn each_named_namespace_has_a_feed_of_its_own() {
    let mut fixture = supervisor();
    let cars = target("cars");
    let named = |generation, namespaces: &[&str]| {
        let rule_set = rule_set(&cars, namespaces, "object.works");
        Some(book(generation, &cars, rule_set))
    };
    fixture.publish(&cars, named(1, &["x", "y"])).await;
    assert_eq!(fixture.running_sources(), ["cars/x", "cars/y"]);
    for feed in fixture.feeds() {
        feed.list(&[]);
    }
    let mut reported = fixture.sent_reports().await;
    reported.sort();
    assert_eq!(
        reported,
        [
            ("cars/x".to_owned(), 1, None),
            ("cars/y".to_owned(), 1, None)
        ]
    );
    fixture.publish(&cars, named(2, &["y", "z"])).await;
    assert_eq!(fixture.running_sources(), ["cars/y", "cars/z"]);
    // If a rule set watches all namespaces, one feed watches them for all rule sets.
    let both = [&["x"][..], &[]].map(|namespaces| rule_set(&cars, namespaces, "object.works"));
    let both = RuleBook::new(3, (*cars).clone(), "Thing".to_owned(), true, both.to_vec());
    fixture.publish(&cars, Some(both)).await;
    assert_eq!(fixture.running_sources(), ["cars"]);
}

#[tokio::test(start_paused = true)]
async fn a_failing_feed_is_reported_with_its_error_until_it_recovers() {
    let mut fixture = supervisor();
    let cars = target("cars");
    fixture.publish(&cars, Some(working(7, &cars))).await;
    let metrics = fixture.metrics.clone();
    let shows_state = |state: &str| {
        let state = format!("state=\"{state}\"}} 1");
        metrics.render().contains(&state)
    };
    let feed = fixture.running_feed();
    let message = "may not list cars".to_owned();
    feed.send(Raw::Lost(GapReason::Refused { code: 403, message }));
    let mut reported = fixture.sent_reports().await;
    assert!(shows_state("lost"));
    let (name, generation, failure) = reported.remove(0);
    assert_eq!((&*name, generation, reported.len()), ("cars", 7, 0));
    let failure = failure.expect("the feed reports a failure");
    assert!(
        failure.starts_with("forbidden: may not list cars; apply the ClusterRole"),
        "{failure}"
    );
    let command = "kubectl create clusterrole ifo-target-cars.things.example \
                   --verb=get,list,watch --resource=cars.things.example && kubectl label \
                   clusterrole ifo-target-cars.things.example \
                   ifo.kubevirt.io/aggregate-to-targets=true";
    assert!(failure.ends_with(command), "{failure}");
    feed.list(&[]);
    assert_eq!(fixture.sent_reports().await, [("cars".to_owned(), 7, None)]);
    assert!(shows_state("watching"));
    // This interruption of the watch ends without a new list, because no change was missed.
    feed.send(Raw::Lost(GapReason::Unreachable("reset by peer".into())));
    feed.send(Raw::Synced);
    let failure = Some("unreachable: reset by peer".to_owned());
    let reported = fixture.sent_reports().await;
    assert_eq!(reported[0], ("cars".to_owned(), 7, failure));
    assert_eq!(reported[1], ("cars".to_owned(), 7, None));
    assert_eq!(
        fixture.sent_messages().await,
        [
            "rules 7 of cars",
            "7: lost",
            "7: reset",
            "7: synced",
            "7: lost",
            "7: synced"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn repeated_empty_evaluations_are_not_sent_to_the_tracker() {
    let mut fixture = supervisor();
    let cars = target("cars");
    fixture.publish(&cars, Some(working(1, &cars))).await;
    let feed = fixture.running_feed();
    feed.list(&[]);
    fixture.sent_messages().await;
    for works in [false, true, true, false, false] {
        feed.send(applied(&thing("a", works)));
    }
    feed.send(Raw::Deleted(bytes(&thing("a", false))));
    assert_eq!(
        fixture.sent_messages().await,
        [
            "1: ns/a [Working]",
            "1: ns/a [Working]",
            "1: ns/a []",
            "1: ns/a is gone"
        ]
    );
    // During a list, empty evaluations are also sent. The tracker needs them, because it considers
    // an object to be deleted if it receives no evaluation of the object during the list.
    feed.send(applied(&thing("b", true)));
    feed.list(&[thing("b", false)]);
    assert_eq!(
        fixture.sent_messages().await,
        ["1: ns/b [Working]", "1: reset", "1: ns/b []", "1: synced"]
    );
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_evaluated_counts_as_failed_and_not_as_deleted() {
    let mut fixture = supervisor();
    let cars = target("cars");
    let book = working(1, &cars);
    let rule_set = book.rule_sets[0].clone();
    fixture.publish(&cars, Some(book)).await;
    let feed = fixture.running_feed();
    feed.list(&[thing("typed", "as a text")]);
    feed.send(applied(&json!({"metadata": {"namespace": "ns"}})));
    feed.send(Raw::Applied(Bytes::from_static(b"\xffnonsense")));
    feed.send(Raw::Deleted(Bytes::from_static(b"{")));
    feed.send(applied(&thing("large", vec![0; 200_000])));
    feed.send(applied(&thing("b", true)));
    assert_eq!(
        fixture.sent_messages().await,
        [
            "rules 1 of cars",
            "1: reset",
            "1: ns/typed [Working?]",
            "1: synced",
            "1: ns/large [Working?]",
            "1: ns/b [Working]"
        ]
    );
    let failure = rule_set
        .activity
        .failures()
        .pop()
        .expect("the object is too large");
    let text = failure.error.to_string();
    assert!(text.contains("more than 100000 values"), "{text}");
    assert_eq!(
        fixture.running_sources(),
        ["cars"],
        "the feed must continue after failures"
    );
}

#[tokio::test(start_paused = true)]
async fn an_evaluation_has_the_time_of_the_objects_last_change() {
    let mut fixture = supervisor();
    let target = target("things");
    fixture.publish(&target, Some(working(1, &target))).await;
    let feed = fixture.running_feed();
    let at = |works: bool, second: u8| {
        let mut object = thing("a", works);
        let time = format!("2026-11-21T10:00:{second:02}Z");
        object["metadata"]["managedFields"] = json!([{"manager": "m", "time": time}]);
        object
    };
    feed.list(&[at(false, 1)]);
    fixture.sent_messages().await;
    let mut managed = async |object: Value| {
        feed.send(applied(&object));
        wait_until_idle().await;
        fixture.receive_messages().await;
        let message = fixture
            .unread
            .pop()
            .expect("each change of the object sends a message");
        let Message::Feed {
            event: FeedEvent::Evaluated { evaluation, .. },
            ..
        } = message
        else {
            panic!("{message:?}");
        };
        let second = |at: jiff::Timestamp| at.as_second().rem_euclid(60);
        evaluation.changed.map(second)
    };
    assert_eq!(managed(at(true, 2)).await, Some(2));
    assert_eq!(managed(at(true, 3)).await, Some(3));
    assert_eq!(managed(at(false, 4)).await, Some(4));
    assert_eq!(
        managed(thing("b", true)).await,
        None,
        "for an object without managedFields"
    );
}

#[tokio::test(start_paused = true)]
async fn a_feed_that_panics_or_ends_is_reported_as_interrupted_and_starts_again() {
    let mut fixture = supervisor();
    let cars = target("cars");
    fixture.publish(&cars, Some(working(3, &cars))).await;
    fixture.running_feed().list(&[thing("a", true)]);
    assert_eq!(fixture.sent_reports().await, [("cars".to_owned(), 3, None)]);
    fixture.sent_messages().await;
    for (number, step) in [Step::Panic, Step::End].into_iter().enumerate() {
        fixture.running_feed().step(step);
        let failure = Some(feed_task::ENDED_UNEXPECTEDLY.to_owned());
        let reported = fixture.sent_reports().await;
        assert_eq!(reported, [("cars".to_owned(), 3, failure)]);
        assert_eq!(fixture.sent_messages().await, ["3: lost"]);
        let metrics = fixture.metrics.render();
        let restarts = number + 1;
        for line in [
            format!("ifo_feed_restarts_total{{target=\"things.example/v1/cars\"}} {restarts}"),
            // The new feed has begun to list.
            "ifo_feed_state{target=\"things.example/v1/cars\",state=\"listing\"} 1".to_owned(),
        ] {
            assert!(metrics.contains(&line), "{line} is not in\n{metrics}");
        }
        // The new feed lists all objects, and the interruption is over.
        fixture.running_feed().list(&[thing("a", true)]);
        assert_eq!(
            fixture.sent_messages().await,
            ["3: reset", "3: ns/a [Working]", "3: synced"]
        );
        assert_eq!(fixture.sent_reports().await, [("cars".to_owned(), 3, None)]);
    }
    assert_eq!(fixture.feeds().len(), 3);
    // The delay before each further start grows.
    let began = Instant::now();
    for started in 3..11 {
        fixture.running_feed().step(Step::Panic);
        while fixture.feeds().len() == started {
            fixture.receive_messages().await;
        }
    }
    assert!(began.elapsed() > Duration::from_mins(1));
}

#[tokio::test(start_paused = true)]
async fn a_feed_is_reported_as_up_to_date_after_its_operations_are_in_the_index() {
    let mut fixture = supervisor();
    let cars = target("cars");
    fixture.publish(&cars, Some(working(1, &cars))).await;
    fixture.running_feed().list(&[thing("a", true)]);
    wait_until_idle().await;
    // The tracker has not processed the messages yet.
    assert!(fixture.feedback.try_recv().is_err());
    assert_eq!(fixture.sent_reports().await, [("cars".to_owned(), 1, None)]);
}
