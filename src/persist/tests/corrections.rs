//! Tests of custom resources that other clients change or delete, of orphans, and of failed writes.
//! An orphan is a custom resource whose operation is missing in the index of the leader.

use super::*;

impl PersistFixture {
    /// Writes operations as custom resources of a previous leader, and then removes them from the
    /// index.
    async fn leave_orphans(&mut self, operations: &[Write]) {
        let previous = self.start_leader();
        self.sleep(2).await;
        self.commit(operations.iter().cloned());
        self.sleep(2).await;
        previous.task.abort();
        let keys = operations.iter().map(|write| match write {
            Write::Put { key, .. } | Write::Delete { key } => key.clone(),
        });
        self.commit(keys.map(|key| Write::Delete { key }));
    }

    fn names(&self) -> Vec<String> {
        self.fake.phases().into_iter().map(|it| it.0).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn completed_orphans_stay_until_a_leader_has_restored_all_custom_resources() {
    let mut fixture = PersistFixture::new(true);
    fixture.leave_orphans(&[operation("a", "Completed")]).await;
    fixture.is_restored.send_replace(false);
    let next = fixture.start_leader();
    fixture.sleep(100).await;
    assert_eq!(fixture.names(), ["a"]);
    next.task.abort();
    fixture.is_restored.send_replace(true);
    let _next = fixture.start_leader();
    fixture.sleep(10).await;
    assert_eq!(fixture.names(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn an_active_orphan_stays_while_its_rule_set_may_detect_it_and_is_then_deleted() {
    let mut fixture = PersistFixture::new(true);
    fixture
        .leave_orphans(&[operation("a", "Active"), operation("b", "Active")])
        .await;
    let rule_sets = |names: &[&str]| {
        Some(Arc::new(
            names.iter().map(|name| (*name).to_owned()).collect(),
        ))
    };
    let own = fixture
        .fake
        .lock()
        .objects
        .values()
        .next()
        .unwrap()
        .spec
        .live
        .rule_set
        .to_string();
    fixture
        .unsynced_rule_sets
        .send_replace(rule_sets(&["other", &own]));
    let _next = fixture.start_leader();
    fixture.sleep(100).await;
    assert_eq!(fixture.names(), ["a", "b"]);
    fixture
        .unsynced_rule_sets
        .send_replace(rule_sets(&["other"]));
    fixture.sleep(4).await;
    // An operation that is detected within 5 s stays.
    fixture.commit([operation("a", "Active")]);
    fixture.sleep(10).await;
    assert_eq!(fixture.names(), ["a"]);
    assert_eq!(fixture.verbs(), ["create", "create", "delete"]);
}

#[tokio::test(start_paused = true)]
async fn an_orphan_that_is_detected_after_its_deletion_is_created_again() {
    let mut fixture = PersistFixture::new(true);
    let operation = operation("a", "Active");
    fixture
        .leave_orphans(std::slice::from_ref(&operation))
        .await;
    let _next = fixture.start_leader();
    while !fixture.names().is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    fixture.commit([operation]);
    fixture.sleep(3).await;
    assert_eq!(fixture.names(), ["a"]);
    assert_eq!(fixture.verbs(), ["create", "delete", "create"]);
}

#[tokio::test(start_paused = true)]
async fn a_late_creation_or_deletion_of_a_previous_leader_is_corrected() {
    let mut fixture = PersistFixture::new(true);
    let previous = fixture.start_leader();
    fixture.commit([operation("deleted", "Active")]);
    fixture.sleep(2).await;
    fixture.set_latency(58.0);
    fixture.commit([operation("created", "Active"), delete("deleted")]);
    fixture.sleep(2).await;
    previous.task.abort();
    // In the index of the next leader, the operation `deleted` is in flight, although the previous
    // leader deletes its custom resource.
    fixture.set_latency(0.005);
    let message = json!({"message": "of the next leader"});
    fixture.commit([
        delete("created"),
        with_status(&operation("deleted", "Active"), &message),
    ]);
    let _next = fixture.start_leader();
    fixture.sleep(54).await;
    assert_eq!(fixture.names(), ["deleted"]);
    fixture.sleep(4).await;
    assert_eq!(fixture.names(), ["created", "deleted"]);
    fixture.sleep(15).await;
    assert_eq!(fixture.names(), ["deleted"]);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_custom_resource_is_created_again_unless_its_operation_has_ended() {
    let mut fixture = PersistFixture::new(true);
    let running = fixture.start_leader();
    fixture.sleep(2).await;
    fixture.commit([operation("a", "Active"), operation("b", "Completed")]);
    fixture.sleep(2).await;
    assert_eq!(fixture.names(), ["a", "b"]);
    let names: Vec<String> = fixture.fake.lock().objects.keys().cloned().collect();
    for name in &names {
        assert!(fixture.fake.lock().remove(name));
    }
    fixture.sleep(60).await;
    assert_eq!(fixture.names(), ["a"]);
    // A controller that always deletes the custom resource causes one write in each resync period.
    let before = fixture.changes();
    for _ in 0..300 {
        let name = fixture.fake.lock().objects.keys().next().cloned();
        name.map(|name| fixture.fake.lock().remove(&name));
        fixture.sleep(1).await;
    }
    let writes = fixture.changes() - before;
    assert!((9..=11).contains(&writes), "{writes}");
    fixture.sleep(60).await;
    // The operation `b` ended long before the next term. So the next leader assumes that a user has
    // deleted the custom resource.
    running.task.abort();
    let running = fixture.start_leader();
    fixture.sleep(60).await;
    assert_eq!(fixture.names(), ["a"]);
    // The CRD is deleted, and thus all custom resources.
    fixture.fake.set_failure(Some(StoreFailure::CrdMissing));
    fixture.fake.lock().objects.clear();
    fixture.sleep(2).await;
    let reason = |running: &RunningLeader| running.verdict.borrow().clone().map(|it| it.reason);
    assert_eq!(reason(&running), Some("CustomResourceDefinitionMissing"));
    fixture.fake.set_failure(None);
    fixture.sleep(5).await;
    assert_eq!(fixture.names(), ["a", "b"]);
    assert_eq!(reason(&running), Some("Written"));
}

#[tokio::test(start_paused = true)]
async fn a_change_by_another_client_is_corrected_once() {
    let mut fixture = PersistFixture::new(true);
    let _running = fixture.start_leader();
    fixture.commit([operation("a", "Active")]);
    fixture.sleep(2).await;
    let message = |cr: &mut InFlightOperation| {
        cr.status.as_mut().unwrap().live.message = "edited".into();
    };
    fixture.fake.lock().edit(message);
    fixture.sleep(60).await;
    assert_eq!(status(&fixture.fake.only()).message, "");
    assert_eq!(fixture.verbs(), ["create", "change"]);
}

#[tokio::test(start_paused = true)]
async fn changes_are_written_once_per_resync_and_a_short_settling_is_not_written() {
    let mut fixture = PersistFixture::new(true);
    let _running = fixture.start_leader();
    for number in 0..290 {
        let message = json!({"message": number.to_string()});
        fixture.commit([with_status(&operation("a", "Active"), &message)]);
        fixture.sleep(1).await;
    }
    let writes = fixture.changes();
    assert!((10..=11).contains(&writes), "{writes}");
    fixture.commit([operation("a", "Active")]);
    fixture.sleep(60).await;
    let writes = fixture.changes();
    let settling = with_status(&operation("a", "Active"), &json!({"state": "Settling"}));
    for _ in 0..5 {
        fixture.commit([settling.clone()]);
        fixture.sleep(20).await;
        fixture.commit([operation("a", "Active")]);
        fixture.sleep(20).await;
    }
    fixture.commit([settling]);
    fixture.sleep(58).await;
    assert_eq!(fixture.changes(), writes);
    fixture.sleep(100).await;
    assert_eq!(fixture.changes(), writes + 1);
}

#[tokio::test(start_paused = true)]
async fn fifty_writes_are_sent_each_second_the_longest_waiting_first() {
    let mut fixture = PersistFixture::new(true);
    let _running = fixture.start_leader();
    fixture.sleep(2).await;
    for batch in ["a", "b", "c"] {
        let names = (0..60).map(|number| operation(&format!("{batch}-{number:02}"), "Active"));
        fixture.commit(names);
        fixture.sleep(1).await;
        let writes = fixture.changes();
        assert!(writes.is_multiple_of(WRITES_PER_ROUND), "{writes}");
    }
    fixture.sleep(5).await;
    assert_eq!(fixture.changes(), 180);
    let batches: Vec<String> = fixture
        .fake
        .lock()
        .changes
        .iter()
        .map(|it| it[7..8].to_owned())
        .collect();
    assert!(batches.is_sorted(), "{batches:?}");
}

#[tokio::test(start_paused = true)]
async fn a_refused_write_backs_off_is_reported_and_is_dropped_when_its_operation_ends() {
    let mut fixture = PersistFixture::new(false);
    let running = fixture.start_leader();
    let reason = || running.verdict.borrow().clone().map(|it| it.reason);
    fixture.sleep(2).await;
    fixture.fake.lock().forbidden_prefix = Some("create a");
    fixture.commit([operation("a", "Active")]);
    fixture.sleep(9).await;
    assert_eq!(reason(), Some("Written"), "a short failure is not reported");
    fixture.sleep(3).await;
    assert_eq!(reason(), Some("Forbidden"));
    fixture.commit([operation("b", "Active")]);
    fixture.sleep(600).await;
    assert_eq!(fixture.names(), ["b"], "other operations are written");
    let attempts = fixture.verbs().len();
    assert!((12..=20).contains(&attempts), "{attempts}");
    fixture.commit([delete("a")]);
    fixture.sleep(120).await;
    assert_eq!(reason(), Some("Written"));
}

#[tokio::test(start_paused = true)]
async fn a_kube_apiserver_can_delay_all_writes() {
    let mut fixture = PersistFixture::new(true);
    let _running = fixture.start_leader();
    fixture.sleep(2).await;
    fixture.fake.lock().failure = Some(StoreFailure::Throttled(Duration::from_secs(17)));
    fixture.commit([operation("a", "Active")]);
    fixture.sleep(2).await;
    fixture.fake.lock().failure = None;
    fixture.sleep(14).await;
    assert_eq!(fixture.verbs().len(), 1);
    fixture.sleep(3).await;
    assert_eq!(fixture.names(), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn writes_without_answers_are_repeated() {
    let mut fixture = PersistFixture::new(true);
    let _running = fixture.start_leader();
    fixture.commit([operation("b", "Active")]);
    fixture.sleep(2).await;
    fixture.fake.lock().answers_get_lost = true;
    fixture.commit([operation("a", "Active"), delete("b")]);
    fixture.sleep(2).await;
    fixture.fake.lock().answers_get_lost = false;
    fixture.commit([operation("a", "Completed")]);
    fixture.sleep(60).await;
    assert_eq!(fixture.fake.phases(), [("a".to_owned(), Phase::Completed)]);
    assert_eq!(fixture.changes(), 4, "each write has one effect");
}
