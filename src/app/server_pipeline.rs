//! Runs the leader's pipeline (the tasks that detect operations) in each leadership term. A
//! leadership term is the time for which this replica leads.

use super::leader_term::LeaderTerm;
use super::start_detection::{DetectionSetup, PipelineInput};
use crate::index::{IndexReader, Writer};
use crate::replicate::{Leadership, Pipeline};
use crate::tracker_task;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

/// The function that [`ServerPipeline`] calls at the beginning of a leadership term. It starts the
/// tasks of the leader that are not part of the pipeline, and returns the inputs of the pipeline.
pub(super) type BeginTerm = Box<dyn FnMut(&mut LeaderTerm) -> PipelineInput + Send>;

/// The pipeline that this server runs while it leads.
pub(super) struct ServerPipeline {
    pub(super) operations: IndexReader,
    pub(super) detection: DetectionSetup,
    pub(super) begin_term: BeginTerm,
    /// The tasks of the current term. `None` while this replica does not lead.
    pub(super) running: Option<TermTasks>,
}

/// The tasks of one leadership term, as in [`LeaderTerm`].
pub(super) struct TermTasks {
    tasks: JoinSet<&'static str>,
    finishing_tasks: JoinSet<&'static str>,
    ending: CancellationToken,
}

impl Pipeline for ServerPipeline {
    fn run<'a>(
        &'a mut self,
        writer: &'a mut Writer,
        leadership: &'a Leadership,
    ) -> BoxFuture<'a, Option<&'static str>> {
        let (tracker, messages) = mpsc::channel(tracker_task::QUEUE_CAPACITY);
        let mut term = LeaderTerm {
            tasks: JoinSet::new(),
            finishing_tasks: JoinSet::new(),
            tracker,
            ending: CancellationToken::new(),
            operations: self.operations.clone(),
            baselines: self.detection.baselines.clone(),
        };
        let origin = (self.begin_term)(&mut term);
        self.detection.start(&mut term, origin);
        let running = self.running.insert(TermTasks {
            tasks: term.tasks,
            finishing_tasks: term.finishing_tasks,
            ending: term.ending,
        });
        let metrics = self.detection.metrics.clone();
        let tracker = self.detection.tracker();
        let activity = self.detection.activity_writer(&self.operations);
        async move {
            tokio::select! {
                () = tracker_task::run(tracker, writer, leadership, messages, activity, metrics) => None,
                Some(ended) = running.tasks.join_next() => Some(name_of(ended)),
                Some(ended) = running.finishing_tasks.join_next() => Some(name_of(ended)),
            }
        }
        .boxed()
    }

    fn end(&mut self, is_orderly: bool) -> BoxFuture<'_, ()> {
        async move {
            if let Some(mut running) = self.running.take() {
                running.tasks.shutdown().await;
                if is_orderly {
                    running.ending.cancel();
                    while running.finishing_tasks.join_next().await.is_some() {}
                }
                running.finishing_tasks.shutdown().await;
            }
            self.detection.clear();
        }
        .boxed()
    }
}

/// Returns the name of a task of the leader that has ended. A task that panicked has no name, but
/// the log contains the panic.
fn name_of(ended: Result<&'static str, JoinError>) -> &'static str {
    ended.unwrap_or("a task of the leader that panicked")
}

#[cfg(test)]
mod tests {
    use super::super::spawn;
    use super::*;
    use crate::config::Config;
    use crate::index::{Bounds, index};
    use crate::observe::{Feed, Raw, Resolve};
    use crate::rules::{StatusAnswer, StatusSink, StatusWrite};
    use crate::telemetry::Metrics;
    use aggregated_apiserver::serve::Readiness;
    use futures::stream::{self, BoxStream};
    use futures::{StreamExt as _, future};
    use ifo_api::{Gvr, Resolution, Source};
    use ifo_engine::track::SharedBaselines;
    use std::sync::Arc;
    use std::time::Duration;
    use tokio::sync::watch;

    /// A cluster that never answers.
    struct SilentCluster;

    impl Feed for SilentCluster {
        fn follow(&self, _: Source) -> BoxStream<'static, Raw> {
            stream::pending().boxed()
        }
    }

    impl Resolve for SilentCluster {
        fn resolve<'a>(&'a self, _: &'a Gvr) -> BoxFuture<'a, Resolution> {
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
            unsynced_rule_sets: watch::Sender::new(None),
        }
    }

    /// Runs one leadership term, whose tasks `begin` starts. Returns the name of the task that ended
    /// the term, or None if no task ended within an hour.
    async fn ended_task(begin: fn(&mut LeaderTerm)) -> Option<&'static str> {
        let bounds = Bounds {
            bytes: 1 << 20,
            age: Duration::from_mins(1),
        };
        let (mut writer, operations) = index(bounds);
        let config = Config::from(["ifo-apiserver".to_owned()], |_| None);
        let common = config.unwrap().common;
        let detection = DetectionSetup {
            common,
            metrics: Arc::new(Metrics::new()),
            readiness: Arc::new(Readiness::new()),
            report: watch::Sender::default(),
            baselines: SharedBaselines::default(),
        };
        let leadership = Leadership::alone(writer.head());
        let mut pipeline = ServerPipeline {
            operations,
            detection,
            begin_term: Box::new(move |term| {
                begin(term);
                silent_input()
            }),
            running: None,
        };
        let running = pipeline.run(&mut writer, &leadership);
        let ended = tokio::time::timeout(Duration::from_hours(1), running).await;
        ended.ok().flatten()
    }

    #[tokio::test(start_paused = true)]
    async fn every_task_that_ends_before_its_term_ends_the_process() {
        assert_eq!(ended_task(|_| {}).await, None);
        let ended = ended_task(|term| term.start_task("one", async {}));
        assert_eq!(ended.await, Some("one"));
        let panicked = Some("a task of the leader that panicked");
        let ended = ended_task(|term| term.start_task("one", async { panic!("a defect") }));
        assert_eq!(ended.await, panicked);
        // Persistence mode is such a task. Without it, the custom resources would become stale.
        let ended = ended_task(|term| {
            spawn(&mut term.finishing_tasks, "two", async {
                panic!("a defect")
            });
        });
        assert_eq!(ended.await, panicked);
    }
}
