//! Compiles rule sets outside of the loop of the controller, because a compilation can take seconds.

use crate::clock::processor_time;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use ifo_api::ruleset::OperationRuleSetSpec;
use ifo_engine::rules::{MAX_COMPILE_TIME, RuleSet, RuleSetError, compile_within};
use std::sync::Arc;
use tokio::sync::oneshot;

/// The compiled rules, or the errors in the spec.
pub type CompileResult = Result<RuleSet, Vec<RuleSetError>>;

/// The result of a compilation, with the name and the spec of the rule set.
pub(super) type CompiledSpec = (String, Arc<OperationRuleSetSpec>, CompileResult);

/// Compiles a rule set. The controller polls the future in its loop, so the work must be done
/// elsewhere.
pub type Compiler = Arc<
    dyn Fn(String, Arc<OperationRuleSetSpec>) -> BoxFuture<'static, CompileResult> + Send + Sync,
>;

/// Compiles a rule set on a new thread, for at most [`MAX_COMPILE_TIME`].
pub fn compile_on_thread(
    name: String,
    spec: Arc<OperationRuleSetSpec>,
) -> BoxFuture<'static, CompileResult> {
    let (done, compiled) = oneshot::channel();
    let work = move || {
        // The processor time of this thread: a rule set must not be refused only because other
        // processes use the processor. The receiver is dropped when this replica stops to lead.
        let is_over = || processor_time() > MAX_COMPILE_TIME || done.is_closed();
        let compiled = compile_within(&name, &spec, None, &is_over);
        let _ = done.send(compiled);
    };
    // The thread is not joined, so that it does not delay the end of the process.
    let thread = std::thread::Builder::new().name("rule sets".to_owned());
    let started = thread.spawn(work).map(drop);
    async move {
        let failure = match (started, compiled.await) {
            (_, Ok(compiled)) => return compiled,
            (Err(error), _) => format!("the compiler cannot be started: {error}"),
            (Ok(()), Err(_)) => "the compiler failed".to_owned(),
        };
        tracing::error!("{failure}");
        Err(vec![RuleSetError::Spec(failure)])
    }
    .boxed()
}
