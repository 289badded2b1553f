//! Tests of rule sets whose target changes to another version of the resource.

use super::*;

const RULES: &[(&str, &[&str])] = &[("vm-rules", &["Migrating"])];

fn lists(fixture: &mut TrackerFixture) {
    fixture.send_event(FeedEvent::Reset);
    fixture.send_event(FeedEvent::Synced { missing: None });
}

#[test]
fn an_operation_ends_with_its_subject_after_the_version_of_the_target_changed() {
    let mut fixture = fixture_without_rules(settings(None));
    let newer = fixture.target.clone();
    let older = Arc::new(Gvr {
        version: "v1alpha3".into(),
        ..(*newer).clone()
    });
    fixture.target = older.clone();
    fixture.set_rules(RULES);
    lists(&mut fixture);
    fixture.evaluate_vm(&["Migrating"]);
    fixture.target = newer;
    fixture.set_rules(RULES);
    fixture.send(Message::Rules(Publication {
        target: older,
        book: None,
        removed: false,
    }));
    assert_eq!(fixture.shown().len(), 1, "the other version detects it");
    // The object was deleted before the first list of the new version.
    lists(&mut fixture);
    assert!(
        fixture
            .described_changes()
            .contains("Migrating Ended SubjectDeleted")
    );
}

#[test]
fn a_restored_operation_ends_if_its_rule_set_has_another_target_now() {
    let mut fixture = fixture();
    fixture.set_rules(RULES);
    lists(&mut fixture);
    fixture.evaluate_vm(&["Migrating"]);
    let mut next = fixture.taken_over(Duration::from_secs(1));
    next.target = Arc::new(Gvr {
        group: "other.io".into(),
        ..(*next.target).clone()
    });
    next.set_rules(RULES);
    assert_eq!(
        next.shown().len(),
        1,
        "another rule set may still detect it"
    );
    next.send(Message::AllRuleBooksSent(Arc::default()));
    assert!(
        next.described_changes()
            .contains("Migrating Ended RuleRemoved")
    );
}
