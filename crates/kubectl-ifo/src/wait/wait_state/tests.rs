use super::*;
use crate::test_fixtures::{OperationFixture as _, on};
use ifo_api::live::Phase;

const QUIET: Duration = Duration::from_secs(30);

fn wait_state(goal: WaitGoal, quiet_period: Duration) -> WaitState {
    WaitState::new(WaitSettings {
        goal,
        quiet_period: Some(quiet_period),
        ignore_failing: false,
        ignore_blocked: false,
    })
}

fn operation(name: &str, state: &str) -> InFlightOperation {
    on("a", "VM", name, "Up").state(state, None)
}

#[test]
fn no_operation_means_idle_only_if_all_operations_are_known() {
    let now = Instant::now();
    let mut wait_state = wait_state(WaitGoal::Idle, Duration::ZERO);
    assert_eq!(wait_state.verdict(now), WaitVerdict::NotReached);
    wait_state.listed(&[], now);
    assert_eq!(wait_state.verdict(now), WaitVerdict::Reached);
    wait_state.lost();
    assert_eq!(wait_state.verdict(now), WaitVerdict::NotReached);
}

#[test]
fn an_active_operation_is_certain_until_the_watch_is_interrupted() {
    let now = Instant::now();
    let mut wait_state = wait_state(WaitGoal::Idle, Duration::ZERO);
    wait_state.settings.ignore_failing = true;
    wait_state.applied(operation("a", "Failing"), now);
    wait_state.listed(&[], now);
    assert!(!wait_state.is_busy(), "an ignored operation must not count");
    wait_state.applied(operation("b", "Progressing"), now);
    assert!(wait_state.is_busy());
    wait_state.lost();
    assert!(
        !wait_state.is_busy(),
        "the operation can have ended during the interruption"
    );
    wait_state.listed(&[], now);
    assert!(wait_state.is_busy());
}

#[test]
fn the_quiet_period_restarts_after_each_operation_and_each_interruption() {
    let begin = Instant::now();
    let mut wait_state = wait_state(WaitGoal::Idle, QUIET);
    wait_state.applied(operation("a", "Progressing"), begin);
    wait_state.listed(&[], begin);
    assert_eq!(wait_state.verdict(begin), WaitVerdict::NotReached);
    wait_state.applied(operation("a", "Succeeded"), begin);
    assert_eq!(
        wait_state.verdict(begin),
        WaitVerdict::ReachedAt(begin + QUIET)
    );
    let later = begin + QUIET / 2;
    wait_state.applied(operation("b", "Settling"), later);
    assert_eq!(wait_state.verdict(begin + QUIET), WaitVerdict::NotReached);
    wait_state.ended_or_deleted(&operation("b", "Settling"), later);
    assert_eq!(
        wait_state.verdict(later),
        WaitVerdict::ReachedAt(later + QUIET)
    );
    wait_state.lost();
    wait_state.listed(&[], begin + QUIET);
    assert_eq!(
        wait_state.verdict(later + QUIET),
        WaitVerdict::ReachedAt(begin + QUIET * 2)
    );
    assert_eq!(wait_state.verdict(begin + QUIET * 2), WaitVerdict::Reached);
}

#[test]
fn operations_do_not_prevent_idle_while_they_are_ignored() {
    let now = Instant::now();
    let mut wait_state = wait_state(WaitGoal::Idle, Duration::ZERO);
    wait_state.settings.ignore_failing = true;
    wait_state.settings.ignore_blocked = true;
    wait_state.applied(operation("a", "Failing"), now);
    wait_state.applied(operation("b", "Blocked"), now);
    wait_state.listed(&[], now);
    assert_eq!(wait_state.verdict(now), WaitVerdict::Reached);
    assert_eq!(wait_state.ignored(), 2);
    wait_state.applied(operation("b", "Progressing"), now);
    assert_eq!(wait_state.verdict(now), WaitVerdict::NotReached);
    assert_eq!(wait_state.ignored(), 1);
    wait_state.applied(operation("b", "Blocked"), now);
    assert_eq!(wait_state.verdict(now), WaitVerdict::Reached);
    wait_state.ended_or_deleted(&operation("a", "Failing"), now);
    assert_eq!(wait_state.ignored(), 1);
}

#[test]
fn completed_needs_an_active_operation_and_then_the_completion_of_all() {
    let now = Instant::now();
    let mut wait_state = wait_state(WaitGoal::Completed, Duration::ZERO);
    wait_state.applied(operation("old", "Succeeded"), now);
    wait_state.listed(&[], now);
    assert_eq!(
        wait_state.verdict(now),
        WaitVerdict::NotReached,
        "an operation that had completed before must not count"
    );
    wait_state.applied(operation("a", "Progressing"), now);
    wait_state.applied(operation("b", "Progressing"), now);
    wait_state.applied(operation("a", "Failed"), now);
    assert_eq!(wait_state.verdict(now), WaitVerdict::NotReached);
    wait_state.ended_or_deleted(&operation("b", "Progressing"), now);
    assert_eq!(wait_state.verdict(now), WaitVerdict::Reached);
}

#[test]
fn completed_is_reached_if_an_operation_ends_while_it_is_ignored() {
    let now = Instant::now();
    let mut wait_state = wait_state(WaitGoal::Completed, Duration::ZERO);
    wait_state.settings.ignore_failing = true;
    wait_state.listed(&[], now);
    wait_state.applied(operation("other", "Failing"), now);
    wait_state.applied(operation("other", "Failed"), now);
    wait_state.applied(operation("a", "Progressing"), now);
    wait_state.applied(operation("a", "Failing"), now);
    wait_state.applied(operation("a", "Failing"), now);
    assert_eq!(
        wait_state.verdict(now),
        WaitVerdict::NotReached,
        "no operation that was relevant has ended"
    );
    wait_state.applied(operation("a", "Failed"), now);
    assert_eq!(wait_state.ignored(), 0);
    assert_eq!(wait_state.verdict(now), WaitVerdict::Reached);
}

#[test]
fn succeeded_depends_on_the_results_of_the_operations() {
    let now = Instant::now();
    let verdict = |states: &[&str]| {
        let mut wait_state = wait_state(WaitGoal::Succeeded, Duration::ZERO);
        wait_state.listed(&[], now);
        for (number, state) in states.iter().enumerate() {
            let name = number.to_string();
            wait_state.applied(operation(&name, "Progressing"), now);
            let mut ended = operation(&name, state);
            ended.status.phase = Phase::Completed;
            wait_state.applied(ended, now);
        }
        wait_state.verdict(now)
    };
    assert_eq!(verdict(&["Succeeded", "Superseded"]), WaitVerdict::Reached);
    assert_eq!(verdict(&["Superseded"]), WaitVerdict::NotReached);
    assert!(matches!(
        verdict(&["Succeeded", "Ended"]),
        WaitVerdict::Unknown(_)
    ));
    assert!(matches!(
        verdict(&["Ended", "Failed"]),
        WaitVerdict::Failed(_)
    ));
    assert!(matches!(
        verdict(&["Failed", "Ended"]),
        WaitVerdict::Failed(_)
    ));
}

#[test]
fn the_quiet_period_of_an_activity_begins_after_the_last_answer_that_it_was_busy() {
    let now = Instant::now();
    let mut wait_state = wait_state(WaitGoal::Idle, QUIET);
    wait_state.idle(QUIET, now);
    assert_eq!(wait_state.verdict(now), WaitVerdict::Reached);
    wait_state.busy(now);
    wait_state.idle(QUIET, now);
    assert_eq!(wait_state.verdict(now), WaitVerdict::ReachedAt(now + QUIET));
}
