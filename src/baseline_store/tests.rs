use super::*;
use crate::telemetry::testing::CapturedLog;
use aggregated_apiserver::auth::testing::Cluster;
use http::Method;
use ifo_engine::track::RunKind;
use jiff::Timestamp;

const PATH: &str = "/api/v1/namespaces/ours/configmaps/ifo-apiserver-baselines";

/// A time within which the requests of the store end. It is shorter than the store's intervals.
const MOMENT: Duration = Duration::from_secs(1);

/// A store in a simulated cluster, during one leadership term.
struct Term {
    cluster: Cluster,
    baselines: SharedBaselines,
    metrics: Arc<Metrics>,
    ending: CancellationToken,
    running: tokio::task::JoinHandle<()>,
    /// The queue of the tracker. The test keeps the sender, because the store has only a weak
    /// reference to the sender.
    _tracker: (mpsc::Sender<Message>, mpsc::Receiver<Message>),
}

impl Term {
    fn begin(cluster: &Cluster) -> Self {
        let baselines = SharedBaselines::default();
        let metrics = Arc::new(Metrics::new());
        let tracker = mpsc::channel(4);
        let store = BaselineStore::new(
            cluster.client(),
            "ours",
            baselines.clone(),
            tracker.0.downgrade(),
            metrics.clone(),
        );
        let ending = CancellationToken::new();
        Self {
            cluster: cluster.clone(),
            baselines,
            metrics,
            running: tokio::spawn(store.run(ending.clone())),
            ending,
            _tracker: tracker,
        }
    }

    fn learn(&self, operation: &str) {
        let kind = RunKind {
            rule_set: &"rules".into(),
            operation: &operation.into(),
            timing_hash: "hash",
            namespace: None,
            size: 1.0,
        };
        let now = Timestamp::UNIX_EPOCH;
        self.baselines.learn(kind, Duration::from_mins(1), now);
    }

    /// Returns the baselines in the ConfigMap as text. Empty if the ConfigMap has no baselines.
    fn stored(&self) -> String {
        let object = self.cluster.get(PATH).expect("the ConfigMap exists");
        let text = object["data"][DATA_KEY].as_str();
        text.unwrap_or_default().to_owned()
    }

    fn count(&self, metric: &str, result: &str) -> u64 {
        let name = format!("{metric}{{result=\"{result}\"}} ");
        let text = self.metrics.render();
        let line = text.lines().find_map(|line| line.strip_prefix(&*name));
        line.map_or(0, |value| value.parse().expect("a counter is a number"))
    }

    /// Ends the term in an orderly way. Returns the text in the ConfigMap, and the numbers of
    /// successful and failed writes.
    async fn end(mut self) -> (String, [u64; 2]) {
        self.ending.cancel();
        let running = &mut self.running;
        running.await.expect("the store must not panic");
        let writes = |result| self.count("ifo_baselines_writes_total", result);
        (self.stored(), ["success", "error"].map(writes))
    }
}

fn cluster_with_config_map() -> Cluster {
    let cluster = Cluster::new();
    cluster.put(PATH, json!({"metadata": {}}));
    cluster
}

#[tokio::test(start_paused = true)]
async fn the_last_write_keeps_other_data_and_has_a_time_limit() {
    for is_answered in [true, false] {
        let cluster = cluster_with_config_map();
        let term = Term::begin(&cluster);
        tokio::time::sleep(MOMENT).await;
        term.learn("Moving");
        cluster.put(PATH, json!({"metadata": {}, "data": {"other": "text"}}));
        if !is_answered {
            cluster.hang(Method::PATCH, CONFIG_MAP);
        }
        let began = tokio::time::Instant::now();
        let (stored, counts) = term.end().await;
        if is_answered {
            assert!(stored.contains("Moving"), "{stored}");
            assert_eq!(cluster.get(PATH).unwrap()["data"]["other"], "text");
        } else {
            assert_eq!(began.elapsed().as_secs(), REQUEST_TIMEOUT.as_secs());
        }
        assert_eq!(counts, if is_answered { [1, 0] } else { [0, 1] });
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_successful_write_the_same_error_is_logged_again() {
    let cluster = cluster_with_config_map();
    let captured = CapturedLog::default();
    let log = captured.begin();
    let term = Term::begin(&cluster);
    tokio::time::sleep(MOMENT).await;
    for (operation, is_refused) in [("A", true), ("B", true), ("C", false), ("D", true)] {
        if is_refused {
            cluster.refuse(Method::PATCH, CONFIG_MAP, 500);
        }
        term.learn(operation);
        tokio::time::sleep(WRITE_INTERVAL).await;
    }
    drop(log);
    let messages = captured
        .lines()
        .into_iter()
        .map(|line| line["message"].clone());
    let failure = "baselines could not be written";
    let recovery = "baselines can be read and written again";
    assert_eq!(messages.collect::<Vec<_>>(), [failure, recovery, failure]);
}

/// In two cases, the store writes the ConfigMap although the baselines have not changed: the last
/// write has failed, or the text in the ConfigMap could not be decoded. This write must contain the
/// newest baselines.
#[tokio::test(start_paused = true)]
async fn an_older_text_never_replaces_a_newer_text() {
    let failed_write = cluster_with_config_map();
    failed_write.refuse(Method::PATCH, CONFIG_MAP, 500);
    let other_format = Cluster::new();
    let data = json!({DATA_KEY: "no baselines"});
    other_format.put(PATH, json!({"metadata": {}, "data": data}));
    for cluster in [failed_write, other_format] {
        let term = Term::begin(&cluster);
        tokio::time::sleep(MOMENT).await;
        term.learn("Moving");
        tokio::time::sleep(WRITE_INTERVAL).await;
        term.learn("Growing");
        tokio::time::sleep(WRITE_INTERVAL).await;
        assert!(term.stored().contains("Growing"));
        tokio::time::sleep(WRITE_INTERVAL).await;
        let (stored, _) = term.end().await;
        assert!(stored.contains("Moving"), "{stored}");
        assert!(stored.contains("Growing"), "{stored}");
    }
}

#[tokio::test(start_paused = true)]
async fn failed_reads_are_counted_and_nothing_is_written_until_a_read_succeeds() {
    let cluster = cluster_with_config_map();
    for _ in 0..2 {
        cluster.refuse(Method::GET, CONFIG_MAP, 500);
    }
    let term = Term::begin(&cluster);
    tokio::time::sleep(MOMENT).await;
    term.learn("Moving");
    let reads = |result| term.count("ifo_baselines_reads_total", result);
    assert_eq!((reads("success"), reads("error")), (0, 1));
    tokio::time::sleep(READ_RETRY).await;
    assert_eq!((reads("success"), reads("error")), (0, 2));
    tokio::time::sleep(READ_RETRY).await;
    assert_eq!((reads("success"), reads("error")), (1, 2));
    assert!(cluster.seen(&Method::PATCH).is_empty());
    let (stored, _) = term.end().await;
    assert!(stored.contains("Moving"), "{stored}");
}

#[tokio::test(start_paused = true)]
async fn a_text_that_cannot_be_decoded_is_counted_and_replaced() {
    for text in ["no baselines", r#"{"format": 99, "baselines": []}"#] {
        let cluster = Cluster::new();
        cluster.put(PATH, json!({"metadata": {}, "data": {DATA_KEY: text}}));
        let term = Term::begin(&cluster);
        tokio::time::sleep(MOMENT).await;
        let metrics = term.metrics.render();
        assert!(
            metrics.contains("ifo_baselines_rejected_total 1"),
            "{metrics}"
        );
        let (stored, _) = term.end().await;
        let decoded = SharedBaselines::default().load(&stored);
        assert!(decoded.is_ok(), "{stored}");
    }
}
