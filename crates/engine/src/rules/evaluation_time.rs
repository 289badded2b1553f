//! Limits the time that the evaluation of each rule set takes, so that an expensive rule set delays
//! only its own operations.
//!
//! Each rule set has a [`TimeAccount`]. All watches that evaluate the rule set charge the same
//! account. A share of the time that passes is added to the account. If the account is empty, the
//! rule set is throttled: the watches skip the rule set until its account allows an evaluation
//! again. So a throttled rule set uses its share of the time, and no more.
//!
//! One more account counts the time of all rule sets together. While this account is empty, the
//! share of each rule set is smaller. So many expensive rule sets together use about half of the
//! time.
//!
//! A part of each evaluation is free ([`FREE_TIME_PER_OBJECT`]), so that a long list does not
//! throttle a cheap rule set.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Time for which the rule sets of one target may be evaluated on one object without a charge. The
/// rule sets that cover the object share this time equally. Most rule sets take less than 0.1 ms.
pub const FREE_TIME_PER_OBJECT: Duration = Duration::from_millis(1);

/// Allowance of one rule set: 10 % of the time, and 1 s in advance.
pub const RULE_SET_ALLOWANCE: Allowance = Allowance {
    divisor: 10,
    burst: Duration::from_secs(1),
};

/// Allowance of one rule set while all rule sets together exceed [`TOTAL_ALLOWANCE`]: 1 % of the
/// time, and 100 ms in advance.
pub const REDUCED_ALLOWANCE: Allowance = Allowance {
    divisor: 100,
    burst: Duration::from_millis(100),
};

/// Allowance of all rule sets together: half of the time, and 1 s in advance.
pub const TOTAL_ALLOWANCE: Allowance = Allowance {
    divisor: 2,
    burst: Duration::from_secs(1),
};

/// Maximum time that an account counts as used. Longer use is not charged in full. So one long
/// evaluation delays the next evaluation of the rule set by at most 10 s, or by 190 s with
/// [`REDUCED_ALLOWANCE`].
const MAX_USED: Duration = Duration::from_secs(2);

/// The share of the time that may be used.
#[derive(Clone, Copy, Debug)]
pub struct Allowance {
    /// The share of the time is 1 / `divisor`.
    pub divisor: u32,
    /// Time that may be used in advance.
    pub burst: Duration,
}

/// Locks a mutex, even if it is poisoned. A panic cannot leave the locked values in an invalid
/// state.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts the evaluation time of one rule set, or of all rule sets.
#[derive(Debug, Default)]
pub struct TimeAccount(Mutex<TimeUsage>);

#[derive(Debug, Default)]
struct TimeUsage {
    /// True from the time at which the account becomes empty until it is full again.
    is_exhausted: bool,
    /// The time that was charged and has not been added again. Zero if the account is full.
    used: Duration,
    /// Time of the last update of `used`.
    updated: Option<Instant>,
}

impl TimeAccount {
    /// Returns true from the time at which the account becomes empty until it is full again. Only a
    /// call of [`TimeAccount::charge`] notices that the account is full.
    pub fn is_exhausted(&self) -> bool {
        lock(&self.0).is_exhausted
    }

    /// Adds the share of the time since the last call to the account, and charges `time` to the
    /// account. `now` is the end of the evaluation. Returns true if the next evaluation is allowed.
    pub fn charge(&self, time: Duration, now: Instant, allowance: Allowance) -> bool {
        let mut usage = lock(&self.0);
        let passed = usage
            .updated
            .map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        usage.updated = Some(now);
        let rest = usage.used.saturating_sub(passed / allowance.divisor);
        usage.used = rest.saturating_add(time).min(MAX_USED);
        let may_use = usage.used <= allowance.burst;
        usage.is_exhausted = !may_use || usage.is_exhausted && !usage.used.is_zero();
        may_use
    }
}

/// Measures evaluations with the clocks of the caller. All watches share this value.
///
/// The default value has no clock. Then evaluations are not measured, and no rule set is throttled
/// because of its time.
#[derive(Default)]
pub struct EvaluationTime {
    clock: Option<Box<dyn Fn() -> EvaluationInstant + Send + Sync>>,
    /// The account of all rule sets together.
    total: TimeAccount,
}

impl fmt::Debug for EvaluationTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = &self.total;
        f.debug_struct("EvaluationTime")
            .field("total", total)
            .finish_non_exhaustive()
    }
}

/// The times that the two clocks of the caller show at one moment.
#[derive(Clone, Copy, Debug)]
pub struct EvaluationInstant {
    /// Time of a monotonic clock.
    pub at: Instant,
    /// Processor time that the thread has used so far. A rule set is charged only for this time,
    /// and not for the time in which other processes use the processor.
    pub used: Duration,
}

impl EvaluationTime {
    /// Creates a value that measures evaluations with `clock`.
    pub fn new(clock: impl Fn() -> EvaluationInstant + Send + Sync + 'static) -> Self {
        Self {
            clock: Some(Box::new(clock)),
            ..Self::default()
        }
    }

    /// Reads the clocks. Returns None without clocks.
    pub(crate) fn now(&self) -> Option<EvaluationInstant> {
        self.clock.as_ref().map(|clock| clock())
    }

    /// Returns the allowance that each rule set has at `now`.
    pub(crate) fn allowance(&self, now: Instant) -> Allowance {
        let total = &self.total;
        if total.is_exhausted() && !total.charge(Duration::ZERO, now, TOTAL_ALLOWANCE) {
            REDUCED_ALLOWANCE
        } else {
            RULE_SET_ALLOWANCE
        }
    }

    /// Returns true if the rule set of `account` may be evaluated at `now`.
    pub(crate) fn may_evaluate(&self, account: &TimeAccount, now: Instant) -> bool {
        let is_unlimited = !account.is_exhausted() && !self.total.is_exhausted();
        is_unlimited || account.charge(Duration::ZERO, now, self.allowance(now))
    }

    /// Charges `time` to a rule set. `now` is the end of the evaluation.
    pub(crate) fn charge(&self, account: &TimeAccount, time: Duration, now: Instant) {
        self.total.charge(time, now, TOTAL_ALLOWANCE);
        account.charge(time, now, self.allowance(now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAVY: Duration = Duration::from_millis(14);

    /// Evaluates `rule_sets` in turn for `period`, beginning at `begin`. Each evaluation takes
    /// [`HEAVY`]. If no rule set may be evaluated, waits for 1 ms. Returns the time that each rule
    /// set used.
    fn run(
        time: &EvaluationTime,
        rule_sets: &[TimeAccount],
        begin: Instant,
        period: Duration,
    ) -> Vec<Duration> {
        let mut used = vec![Duration::ZERO; rule_sets.len()];
        let mut now = begin;
        while now < begin + period {
            let before = now;
            for (account, used) in rule_sets.iter().zip(&mut used) {
                if time.may_evaluate(account, now) {
                    now += HEAVY;
                    *used += HEAVY;
                    time.charge(account, HEAVY, now);
                }
            }
            if now == before {
                now += Duration::from_millis(1);
            }
        }
        used
    }

    #[test]
    fn an_expensive_rule_set_is_throttled_to_its_share_and_recovers_without_use() {
        let (time, begin) = (EvaluationTime::default(), Instant::now());
        let account = [TimeAccount::default()];
        let minute = Duration::from_mins(1);
        let first = run(&time, &account, begin, minute)[0];
        let second = run(&time, &account, begin + minute, minute)[0];
        assert!(account[0].is_exhausted());
        // In the first minute, the rule set also uses its burst.
        assert!(
            first > second && first < Duration::from_secs(8),
            "{first:?}"
        );
        assert!(second < Duration::from_millis(6_100), "{second:?}");
        let later = begin + 2 * minute + Duration::from_secs(5);
        assert!(time.may_evaluate(&account[0], later));
        assert!(account[0].is_exhausted(), "the account is not full yet");
        let later = later + Duration::from_secs(20);
        assert!(time.may_evaluate(&account[0], later));
        assert!(!account[0].is_exhausted(), "the account must be full");
    }

    #[test]
    fn many_expensive_rule_sets_leave_time_and_throttle_no_cheap_rule_set() {
        let (time, begin) = (EvaluationTime::default(), Instant::now());
        let accounts: Vec<TimeAccount> = (0..20).map(|_| TimeAccount::default()).collect();
        let minute = Duration::from_mins(1);
        run(&time, &accounts, begin, minute);
        let used = run(&time, &accounts, begin + minute, minute);
        let total: Duration = used.iter().sum();
        assert!(total < minute * 7 / 10, "{total:?}");
        assert!(accounts.iter().all(TimeAccount::is_exhausted));
        let cheap = TimeAccount::default();
        for second in 0..60 {
            let now = begin + 2 * minute + Duration::from_secs(second);
            time.charge(&accounts[0], Duration::from_secs(2), now);
            assert!(time.may_evaluate(&cheap, now), "second {second}");
            time.charge(&cheap, Duration::from_millis(5), now);
        }
        assert!(!cheap.is_exhausted());
    }

    #[test]
    fn a_pause_of_the_process_throttles_a_rule_set_only_for_a_short_time() {
        let (time, now) = (EvaluationTime::default(), Instant::now());
        let account = TimeAccount::default();
        time.charge(&account, Duration::from_hours(1), now);
        assert!(!time.may_evaluate(&account, now));
        assert!(time.may_evaluate(&account, now + Duration::from_secs(15)));
    }
}
