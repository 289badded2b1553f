//! Compiles rule sets outside of the loop of the controller, because a compilation can take seconds.

use crate::clock::processor_time;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use ifo_api::ruleset::OperationRuleSetSpec;
use ifo_engine::rules::{MAX_COMPILE_TIME, RuleSet, RuleSetError, compile_within};
use std::sync::Arc;

/// The compiled rules, or the errors in the spec.
pub type CompileResult = Result<RuleSet, Vec<RuleSetError>>;

/// The result of a compilation, with the name and the spec of the rule set.
pub(super) type CompiledSpec = (String, Arc<OperationRuleSetSpec>, CompileResult);

/// Compiles a rule set. The controller polls the future in its loop, so the future must not do the
/// work itself: the loop would stop for this time.
pub type Compiler = Arc<
    dyn Fn(String, Arc<OperationRuleSetSpec>) -> BoxFuture<'static, CompileResult> + Send + Sync,
>;

/// Compiles a rule set on another thread, for at most [`MAX_COMPILE_TIME`]. When the process ends,
/// it does not wait for this thread.
pub fn compile_on_thread(
    name: String,
    spec: Arc<OperationRuleSetSpec>,
) -> BoxFuture<'static, CompileResult> {
    let compiling = tokio::task::spawn_blocking(move || {
        // Measures the processor time of this thread. Wall-clock time would also count the time in
        // which other processes use the processor. A rule set must not be refused because of them.
        let began = processor_time();
        let is_over = || processor_time().saturating_sub(began) > MAX_COMPILE_TIME;
        compile_within(&name, &spec, None, &is_over)
    });
    let compiled = compiling.map(|compiled| {
        compiled.unwrap_or_else(|error| {
            tracing::error!(%error, "the compiler failed");
            Err(vec![RuleSetError::Spec("the compiler failed".to_owned())])
        })
    });
    compiled.boxed()
}
