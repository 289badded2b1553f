//! Compiles rule sets outside of the loop of the controller, because a compilation can take seconds.
//! At most one compilation runs at the same time. The registry decides which rule set is compiled
//! next.

use crate::clock::processor_time;
use futures::FutureExt;
use futures::future::BoxFuture;
use ifo_api::ruleset::OperationRuleSetSpec;
use ifo_engine::rules::{MAX_COMPILE_TIME, RuleSet, RuleSetError, compile_within};
use std::sync::Arc;
use tokio::sync::oneshot;

/// The compiled rules, or the errors in the spec.
pub type CompileResult = Result<RuleSet, Vec<RuleSetError>>;

/// Compiles rule sets.
pub trait Compile: Send + Sync {
    /// Compiles the rule set `name`. The caller polls the future in the loop of the controller, so
    /// the work must be done elsewhere.
    fn compile(
        &self,
        name: String,
        spec: Arc<OperationRuleSetSpec>,
    ) -> BoxFuture<'static, CompileResult>;
}

/// Compiles each rule set on a new thread, for at most [`MAX_COMPILE_TIME`].
#[derive(Debug)]
pub struct CompileThread;

impl Compile for CompileThread {
    fn compile(
        &self,
        name: String,
        spec: Arc<OperationRuleSetSpec>,
    ) -> BoxFuture<'static, CompileResult> {
        let (done, compiled) = oneshot::channel();
        let work = move || {
            // The processor time of this thread: a rule set must not be refused only because other
            // processes use the processor. The receiver is dropped when this replica stops to lead.
            let is_over = || processor_time() > MAX_COMPILE_TIME || done.is_closed();
            let compiled = compile_within(&name, &spec, &is_over);
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
}

/// The result of a compilation, with the name and the spec of the rule set.
pub(super) type CompiledSpec = (String, Arc<OperationRuleSetSpec>, CompileResult);

/// The running compilation.
pub(super) struct Compilations {
    compiler: Arc<dyn Compile>,
    running: Option<BoxFuture<'static, CompiledSpec>>,
}

impl Compilations {
    pub(super) fn new(compiler: Arc<dyn Compile>) -> Self {
        Self {
            compiler,
            running: None,
        }
    }

    /// Returns true if no compilation is running.
    pub(super) fn is_idle(&self) -> bool {
        self.running.is_none()
    }

    /// Starts a compilation. The caller checks that no compilation is running.
    pub(super) fn start(&mut self, name: String, spec: Arc<OperationRuleSetSpec>) {
        let compiling = self.compiler.compile(name.clone(), spec.clone());
        let compiled = compiling.map(|result| (name, spec, result));
        self.running = Some(compiled.boxed());
    }

    /// Waits for the end of the compilation and returns the result. If no compilation runs, returns
    /// `None` at once. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<CompiledSpec> {
        let compiled = self.running.as_mut()?.await;
        self.running = None;
        Some(compiled)
    }
}

/// Compiles in the loop of the controller. So a test with a paused clock needs no other thread.
#[cfg(test)]
pub struct CompileAtOnce;

#[cfg(test)]
impl Compile for CompileAtOnce {
    fn compile(
        &self,
        name: String,
        spec: Arc<OperationRuleSetSpec>,
    ) -> BoxFuture<'static, CompileResult> {
        futures::future::ready(ifo_engine::rules::compile(&name, &spec)).boxed()
    }
}
