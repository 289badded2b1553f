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
    assert_eq!(wait_state.reached_at(), Ok(None));
    wait_state.listed(&[], now);
    assert_eq!(wait_state.reached_at(), Ok(Some(now)));
    wait_state.lost();
    assert_eq!(wait_state.reached_at(), Ok(None));
}

#[test]
fn the_quiet_period_restarts_after_each_operation_and_each_interruption() {
    let begin = Instant::now();
    let mut wait_state = wait_state(WaitGoal::Idle, QUIET);
    wait_state.listed(&[operation("a", "Progressing")], begin);
    assert_eq!(wait_state.reached_at(), Ok(None));
    wait_state.applied(operation("a", "Succeeded"), begin);
    assert_eq!(wait_state.reached_at(), Ok(Some(begin + QUIET)));
    let later = begin + QUIET / 2;
    wait_state.applied(operation("b", "Settling"), later);
    assert_eq!(wait_state.reached_at(), Ok(None));
    wait_state.ended(&operation("b", "Settling"), true, later);
    assert_eq!(wait_state.reached_at(), Ok(Some(later + QUIET)));
    wait_state.lost();
    wait_state.listed(&[], begin + QUIET);
    let reached = wait_state.reached_at();
    assert_eq!(reached, Ok(Some(begin + QUIET * 2)));
}

#[test]
fn operations_do_not_prevent_idle_while_they_are_ignored() {
    let now = Instant::now();
    let mut wait_state = wait_state(WaitGoal::Idle, Duration::ZERO);
    wait_state.settings.ignore_failing = true;
    wait_state.settings.ignore_blocked = true;
    wait_state.listed(&[operation("a", "Failing"), operation("b", "Blocked")], now);
    assert_eq!(wait_state.reached_at(), Ok(Some(now)));
    assert!(wait_state.reason().ends_with(", but 2 held or ignored"));
    wait_state.applied(operation("b", "Progressing"), now);
    assert_eq!(wait_state.reached_at(), Ok(None));
    wait_state.applied(operation("b", "Blocked"), now);
    assert_eq!(wait_state.reached_at(), Ok(Some(now)));
    wait_state.ended(&operation("a", "Failing"), true, now);
    assert!(wait_state.reason().ends_with(", but 1 held or ignored"));
}

#[test]
fn completed_needs_an_active_operation_and_then_the_completion_of_all() {
    let now = Instant::now();
    let mut wait_state = wait_state(WaitGoal::Completed, Duration::ZERO);
    wait_state.listed(&[operation("old", "Succeeded")], now);
    let reached = wait_state.reached_at();
    assert_eq!(reached, Ok(None), "`old` had completed before the wait");
    wait_state.applied(operation("a", "Progressing"), now);
    wait_state.applied(operation("b", "Progressing"), now);
    wait_state.applied(operation("a", "Failed"), now);
    assert_eq!(wait_state.reached_at(), Ok(None));
    wait_state.ended(&operation("b", "Progressing"), true, now);
    assert_eq!(wait_state.reached_at(), Ok(Some(now)));
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
    let reached = wait_state.reached_at();
    assert_eq!(reached, Ok(None), "no relevant operation has ended");
    wait_state.applied(operation("a", "Failed"), now);
    assert_eq!(wait_state.reached_at(), Ok(Some(now)));
}

#[test]
fn succeeded_depends_on_the_results_of_the_operations() {
    let now = Instant::now();
    let reached = |states: &[&str]| {
        let mut wait_state = wait_state(WaitGoal::Succeeded, Duration::ZERO);
        wait_state.listed(&[], now);
        for (number, state) in states.iter().enumerate() {
            let name = number.to_string();
            wait_state.applied(operation(&name, "Progressing"), now);
            let mut ended = operation(&name, state);
            ended.status.phase = Phase::Completed;
            wait_state.applied(ended, now);
        }
        wait_state.reached_at()
    };
    assert_eq!(reached(&["Succeeded", "Superseded"]), Ok(Some(now)));
    assert_eq!(reached(&["Superseded"]), Ok(None));
    let unknown = reached(&["Succeeded", "Ended"]);
    assert!(matches!(unknown, Err(WaitEnd::Unknown(_))));
    for states in [["Ended", "Failed"], ["Failed", "Ended"]] {
        assert!(matches!(reached(&states), Err(WaitEnd::Failed(_))));
    }
}

#[test]
fn the_quiet_period_of_an_activity_begins_after_the_last_answer_that_it_was_busy() {
    let now = Instant::now();
    let mut wait_state = wait_state(WaitGoal::Idle, QUIET);
    wait_state.idle(QUIET, now);
    assert_eq!(wait_state.reached_at(), Ok(Some(now)));
    wait_state.listed(&[operation("a", "Progressing")], now);
    wait_state.idle(QUIET, now);
    assert_eq!(wait_state.reached_at(), Ok(Some(now + QUIET)));
}
