//! Runs the pipeline (the tasks that detect operations) while this replica leads. The time for
//! which one replica leads is a leadership term.
//!
//! The pipeline has a thread of its own. On the leader, this thread watches the objects and
//! evaluates the rules. It also runs the tracker, which turns detections into operations, and
//! writes the index (the operations in memory). On a follower, this thread copies the leader's
//! index. Other threads serve requests.
//!
//! One thread runs all tasks of the pipeline, because each event of a watch passes through several
//! tasks:
//!
//! - The task of the HTTP/2 connection receives the event.
//! - The task of the feed (the watch of one resource) evaluates the rules.
//! - The tracker's task updates the operations.
//!
//! On several threads, each task would have to wake up the thread of the next task. These wake-ups
//! would take more processor time than the evaluation of the rules. After the task of a feed has
//! evaluated rules for a millisecond, it lets the other tasks run.

use super::Components;
use super::leader_term::{LeaderTerm, PipelineInput};
use super::tasks::Tasks;
use crate::index::Writer;
use crate::replicate::{Leadership, Pipeline};
use crate::tracker_task;
use std::io;
use std::sync::Arc;
use tokio::runtime::{Builder, Handle};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

/// The handle of the running thread. When this handle is dropped, the thread ends and drops its
/// tasks.
pub(super) struct PipelineThread {
    handle: Handle,
    /// Keeps the thread running until this sender is dropped. The sender never sends a value.
    _running: oneshot::Sender<()>,
}

impl PipelineThread {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// The system has no file descriptor or thread left.
    pub(super) fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (running, ended) = oneshot::channel();
        std::thread::Builder::new()
            .name("pipeline".to_owned())
            .spawn(move || {
                // Waits until the sender is dropped. `ended` then returns an error, which is
                // expected.
                let _ = runtime.block_on(ended);
                // `shutdown_background` does not wait for blocked threads, such as a thread that
                // looks up a host name. A drop of the runtime would wait for these threads.
                runtime.shutdown_background();
            })?;
        Ok(Self {
            handle,
            _running: running,
        })
    }

    /// Returns the runtime on which the tasks of the pipeline are spawned.
    pub(super) fn handle(&self) -> &Handle {
        &self.handle
    }
}

/// The function that [`ServerPipeline`] calls at the beginning of a leadership term. It starts the
/// tasks of the leader that are not part of the pipeline, and returns the inputs of the pipeline.
pub(super) type BeginTerm = Box<dyn FnMut(&Components, &mut LeaderTerm) -> PipelineInput + Send>;

/// The pipeline that this server runs while it leads.
pub(super) struct ServerPipeline {
    pub(super) shared: Components,
    pub(super) begin_term: BeginTerm,
}

impl Pipeline for ServerPipeline {
    async fn run(
        &mut self,
        writer: &mut Writer,
        leadership: &Leadership,
        stop: &CancellationToken,
    ) -> Option<&'static str> {
        let (tracker, messages) = mpsc::channel(tracker_task::QUEUE_CAPACITY);
        let mut term = LeaderTerm {
            tasks: Tasks::default(),
            tracker,
            ending: CancellationToken::new(),
            unsynced_rule_sets: watch::Sender::new(None),
        };
        let input = (self.begin_term)(&self.shared, &mut term);
        self.start_detection(&mut term, input);
        let metrics = self.shared.metrics.clone();
        let tracker = self.tracker();
        let activity = self.activity_writer();
        let LeaderTerm {
            mut tasks, ending, ..
        } = term;
        let ended = tokio::select! {
            biased;
            () = leadership.lost() => None,
            () = stop.cancelled() => None,
            _ = tracker_task::run(tracker, writer, leadership, messages, activity, metrics) => None,
            ended = tasks.next_ended() => Some(ended),
        };
        tasks.abort();
        if leadership.is_valid() {
            ending.cancel();
            tasks.finish().await;
        }
        drop(tasks);
        // The report and the baselines (the usual durations of operations) belong to the term that
        // has ended. The next leader reads the baselines again from their ConfigMap.
        self.shared.report.send_replace(Arc::default());
        self.shared.baselines.clear();
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::App;
    use crate::config::Config;
    use crate::rules::{StatusAnswer, StatusSink, StatusWrite};
    use futures::future::{self, BoxFuture};
    use futures::stream::{self, BoxStream};
    use futures::{FutureExt as _, StreamExt as _};
    use ifo_api::{Gvr, Source};
    use ifo_observe::{Feed, Raw, Resolve, ResolvedTarget};
    use std::time::Duration;

    /// A cluster that never answers.
    struct SilentCluster;

    impl Feed for SilentCluster {
        fn follow(&self, _: Source, _: Option<&str>) -> BoxStream<'static, Raw> {
            stream::pending().boxed()
        }
    }

    impl Resolve for SilentCluster {
        fn resolve(&self, _: Vec<Arc<Gvr>>) -> BoxFuture<'static, Vec<ResolvedTarget>> {
            future::pending().boxed()
        }

        fn resolution_changes(&self) -> BoxStream<'static, ()> {
            stream::pending().boxed()
        }
    }

    impl StatusSink for SilentCluster {
        fn write<'a>(&'a self, _: &'a StatusWrite) -> BoxFuture<'a, StatusAnswer> {
            future::pending().boxed()
        }
    }

    fn silent_input() -> PipelineInput {
        PipelineInput {
            feed: Arc::new(SilentCluster),
            resolve: Arc::new(SilentCluster),
            rule_sets: stream::pending().boxed(),
            status: Arc::new(SilentCluster),
            restored: future::pending().boxed(),
        }
    }

    /// Runs one leadership term, whose tasks `begin` starts. Returns the name of the task that
    /// ended the term, or None if no task ended within an hour.
    async fn ended_task(begin: fn(&mut LeaderTerm)) -> Option<&'static str> {
        let config = Config::from(["ifo-apiserver".to_owned()], |_| None);
        let (app, mut writer) = App::start(&config.unwrap().common, false).unwrap();
        let leadership = Leadership::alone(writer.head());
        let mut pipeline = ServerPipeline {
            shared: app.shared,
            begin_term: Box::new(move |_, term| {
                begin(term);
                silent_input()
            }),
        };
        let stop = CancellationToken::new();
        let running = pipeline.run(&mut writer, &leadership, &stop);
        let ended = tokio::time::timeout(Duration::from_hours(1), running).await;
        ended.ok().flatten()
    }

    #[tokio::test(start_paused = true)]
    async fn every_task_that_ends_before_its_term_ends_the_process() {
        assert_eq!(ended_task(|_| {}).await, None);
        let ended = ended_task(|term| term.tasks.start("one", async {}));
        assert_eq!(ended.await, Some("one"));
        let panicked = Some("a task that panicked");
        let ended = ended_task(|term| term.tasks.start("one", async { panic!("a defect") }));
        assert_eq!(ended.await, panicked);
        // For example, persistence mode is such a task. If only this task ended, the custom
        // resources would become stale.
        let ended = ended_task(|term| {
            term.tasks
                .start_finishing("two", async { panic!("a defect") });
        });
        assert_eq!(ended.await, panicked);
    }
}
