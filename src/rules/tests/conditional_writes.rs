//! Tests how the controller writes the status of a rule set while other clients change the rule
//! set. Each write contains a resourceVersion. The cluster refuses the write if the rule set has
//! another resourceVersion. The tests choose the resourceVersion in the simulated cluster, and the
//! time at which the controller receives each event.

use super::*;

/// Returns the rule set `a` with this resourceVersion and status.
fn at(version: u64, status: Option<OperationRuleSetStatus>) -> OperationRuleSet {
    let mut object = rule_set("a", "cars", "true");
    object.metadata.resource_version = Some(version.to_string());
    object.status = status;
    object
}

/// Starts a controller that has written `Ready=True` to `a`, and has not received the event of this
/// write. Also returns the written status, and the resourceVersion of `a` after the write.
async fn ready() -> (ControllerFixture, OperationRuleSetStatus, u64) {
    let mut fixture = fixture();
    fixture.set_version(10);
    fixture.list(&[at(10, None)]);
    moment().await;
    fixture.catch_up().await;
    let status = fixture.status("a");
    has(&status, "Ready", "True/Watching");
    let versions: Vec<_> = fixture.writes().into_iter().map(|it| it.version).collect();
    let expected = ["10", "11"].map(|it| Some(it.to_owned()));
    assert_eq!(
        versions, expected,
        "each write must name the version before the write"
    );
    (fixture, status, 12)
}

/// Returns `status` with other values, as if another client had edited it.
fn edited_elsewhere(status: &OperationRuleSetStatus) -> OperationRuleSetStatus {
    let mut status = status.clone();
    status.watch_active = false;
    for condition in &mut status.conditions {
        "False".clone_into(&mut condition.status);
        "Other".clone_into(&mut condition.reason);
    }
    status
}

impl ControllerFixture {
    /// Sets the resourceVersion of `a` in the cluster.
    fn set_version(&self, version: u64) {
        self.sink
            .versions
            .lock()
            .unwrap()
            .insert("a".into(), version);
    }

    /// Stores this version of `a` with this status in the cluster, as another client would. The
    /// controller receives the event of this change.
    fn edit(&self, version: u64, status: &OperationRuleSetStatus) {
        self.set_version(version);
        self.apply(&at(version, Some(status.clone())));
    }
}

#[tokio::test(start_paused = true)]
async fn late_event_of_an_own_write_writes_nothing() {
    let (fixture, status, version) = ready().await;
    let mut pending = status.clone();
    pending.watch_active = false;
    pending.conditions.retain(|it| it.type_ == "Validated");
    for event in [
        at(10, None),
        at(version - 1, Some(pending)),
        at(version, Some(status)),
    ] {
        fixture.apply(&event);
        tokio::time::sleep(REQUEUE).await;
        assert_eq!(
            fixture.writes(),
            [],
            "{:?}",
            event.metadata.resource_version
        );
    }
}

#[tokio::test(start_paused = true)]
async fn event_of_an_own_write_before_its_answer_writes_nothing() {
    let fixture = fixture();
    fixture.set_version(10);
    *fixture.sink.write_duration.lock().unwrap() = Duration::from_secs(2);
    fixture.list(&[at(10, None)]);
    moment().await;
    fixture.apply(&at(11, Some(fixture.status("a"))));
    tokio::time::sleep(REQUEUE).await;
    assert_eq!(
        fixture.writes().len(),
        1,
        "during the first list of the target, the controller must write one status"
    );
}

#[tokio::test(start_paused = true)]
async fn status_edited_or_deleted_by_another_client_is_repaired_once() {
    for is_deleted in [false, true] {
        let (fixture, status, version) = ready().await;
        let edited = Some(edited_elsewhere(&status)).filter(|_| !is_deleted);
        fixture.set_version(version + 3);
        fixture.apply(&at(version + 3, edited));
        moment().await;
        let writes = fixture.writes();
        assert_eq!(writes.len(), 1);
        assert_eq!(writes[0].version, Some((version + 3).to_string()));
        has(&writes[0].status, "Ready", "True/Watching");
        assert!(writes[0].status.watch_active);
        fixture.apply(&at(version + 4, Some(writes[0].status.clone())));
        tokio::time::sleep(REQUEUE * 5).await;
        assert_eq!(fixture.writes(), []);
    }
}

#[tokio::test(start_paused = true)]
async fn status_is_repaired_when_the_rules_change_in_the_same_event() {
    let (mut fixture, status, version) = ready().await;
    for (step, expression) in [(1, "true // The same rules."), (2, "false")] {
        let version = version + 10 * step;
        fixture.set_version(version);
        let mut object = edited(at(version, Some(edited_elsewhere(&status))), expression);
        object.metadata.generation = Some(1 + i64::try_from(step).unwrap());
        fixture.apply(&object);
        moment().await;
        fixture.catch_up().await;
        let writes = fixture.writes();
        assert_eq!(writes[0].version, Some(version.to_string()));
        let last = writes.last().expect("the status was repaired");
        assert!(last.status.watch_active, "{last:?}");
        tokio::time::sleep(REQUEUE * 20).await;
    }
}

#[tokio::test(start_paused = true)]
async fn conflict_of_a_repair_is_resolved_after_the_event() {
    let (fixture, status, version) = ready().await;
    fixture.edit(version + 1, &edited_elsewhere(&status));
    // Another client has changed the rule set, and the controller has not received the event of
    // this change.
    fixture.set_version(version + 2);
    moment().await;
    assert_eq!(
        fixture.writes().len(),
        1,
        "the conflicting write must be sent once"
    );
    moment().await;
    assert_eq!(
        fixture.writes(),
        [],
        "the controller must wait for the event"
    );
    // The newer version still has the edited status, so the controller has to repair the status.
    fixture.apply(&at(version + 2, Some(edited_elsewhere(&status))));
    tokio::time::sleep(REQUEUE).await;
    let writes = fixture.writes();
    assert_eq!(writes.len(), 1);
    assert_eq!(writes[0].version, Some((version + 2).to_string()));
}

#[tokio::test(start_paused = true)]
async fn repeated_edits_of_a_status_are_repaired_once_a_minute() {
    let (fixture, status, mut version) = ready().await;
    let mut repairs = 0;
    for _ in 0..630 {
        version += 2;
        fixture.edit(version, &edited_elsewhere(&status));
        tokio::time::sleep(Duration::from_secs(1)).await;
        repairs += fixture.writes().len();
    }
    assert!(
        (15..=20).contains(&repairs),
        "{repairs} repairs in ten and a half minutes"
    );
    // When the other client stops editing, the controller repairs the last edit, too.
    tokio::time::sleep(Duration::from_mins(2)).await;
    let last = fixture.writes().pop().expect("the last edit is repaired");
    assert!(last.status.watch_active);
    // After two minutes without edits, the next edit is repaired at once.
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert_eq!(fixture.writes(), []);
    fixture.edit(version + 10, &edited_elsewhere(&status));
    moment().await;
    assert_eq!(fixture.writes().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn many_edits_of_the_rules_do_not_delay_the_status() {
    let (mut fixture, status, version) = ready().await;
    let mut changed = at(version, Some(status));
    for edit in 1..=20 {
        changed = edited(changed, &format!("object.a == {edit}"));
        let version = version + 10 * edit;
        fixture.set_version(version);
        changed.metadata.resource_version = Some(version.to_string());
        fixture.apply(&changed);
        moment().await;
        fixture.catch_up().await;
        let status = fixture.status("a");
        assert_eq!(status.observed_generation, changed.metadata.generation);
        has(&status, "Ready", "True/Watching");
    }
}

#[tokio::test(start_paused = true)]
async fn repair_does_not_delay_the_next_change_of_the_status() {
    let (mut fixture, status, version) = ready().await;
    fixture.edit(version + 1, &edited_elsewhere(&status));
    moment().await;
    assert_eq!(fixture.writes().len(), 1);
    fixture.discovers("cars", not_served());
    fixture.changes.send(()).unwrap();
    moment().await;
    fixture.published();
    let writes = fixture.writes();
    assert_eq!(writes.len(), 1, "the new status must be written at once");
    assert_eq!(
        condition(&writes[0].status, "Ready").as_deref(),
        Some("False/InvalidTarget")
    );
}
