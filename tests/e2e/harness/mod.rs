//! The harness of the end-to-end tests: runs the tests, and contains their helpers. A test is an
//! async closure, which one of these functions runs:
//!
//! - [`shared`] runs a test on the shared cluster ([`TestCluster`]), which is a control plane and
//!   the server under test.
//! - [`alone`] runs a test on the shared cluster, while no other test uses this cluster.
//! - [`apart`] runs a test on a new control plane, without a server.
//!
//! If a test on the shared cluster fails, the harness prints the last lines of the server's log.

mod api_client;
mod changes;
mod cluster;
mod control_plane;
mod objects;
mod presented;
pub mod relay;
mod server;
mod test_cluster;
mod watch;
pub mod websocket;

pub use api_client::{ApiAnswer, Caller};
pub use cluster::{ACCOUNT, AS_ADMINISTRATOR, Cluster, Installed, columns};
pub use control_plane::ControlPlane;
pub use objects::{
    ACTIVITY, API_SERVICE, CRD, Kind, NAMESPACE, NODE, OPERATION, OPERATION_RECORD, POD, RULE_SET,
    VM, VMI, condition, crd, is, is_in_gap, items, migrating, path_of_column, rule_set, text,
    with_rule_fields,
};
pub use server::{ServerProcess, free_port, mounted_secret, tail};
pub use test_cluster::{MANIFEST_FOLDERS, TestCluster};
pub use watch::{Events, Lines};

use std::any::Any;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{LazyLock, OnceLock, PoisonError, RwLock};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::time::Instant;

/// Time limit of every wait. If a wait reaches this limit, the test fails. The limit is long enough
/// for a slow and busy machine. It is longer than one minute, because the kube-apiserver reads some
/// documents of aggregated servers, such as OpenAPI, only once a minute.
pub const DEADLINE: Duration = Duration::from_mins(3);

/// Pause between two checks of a condition that a test waits for.
const POLL: Duration = Duration::from_millis(100);

/// The runtime of all tests. A client works only on the runtime on which it was created, and the
/// tests share clients.
static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| Runtime::new().expect("the process must be able to start threads"));

/// A cluster that several tests share, and the lock for its use. A test of [`shared`] holds a read
/// lock, so several of these tests run at the same time. A test of [`alone`] holds the write lock, so
/// no other test uses the cluster meanwhile. A test of [`apart`] needs no lock.
struct SharedCluster {
    name: &'static str,
    /// Further flags of the server.
    flags: &'static [&'static str],
    setup: OnceLock<Setup>,
    turns: RwLock<()>,
}

impl SharedCluster {
    const fn new(name: &'static str, flags: &'static [&'static str]) -> Self {
        Self {
            name,
            flags,
            setup: OnceLock::new(),
            turns: RwLock::new(()),
        }
    }
}

static TEST_CLUSTER: SharedCluster = SharedCluster::new("shared", &[]);

/// The tests of persistence mode count all custom resources of a cluster, so each of them runs alone.
/// They have a cluster of their own, so that the other tests need not wait for them.
static PERSISTENCE_CLUSTER: SharedCluster = SharedCluster::new("persistence", &[]);

/// Each user sees the operations on the objects that the user may get.
static FILTERED_CLUSTER: SharedCluster = SharedCluster::new("filtered", &["--visibility=subject"]);

enum Setup {
    Ready(TestCluster),
    Skipped(String),
    Failed(String),
}

/// Runs a test on the shared cluster, at the same time as other tests.
pub fn shared(test: impl AsyncFnOnce(&'static TestCluster)) {
    TEST_CLUSTER.shared(test);
}

/// Runs a test as [`shared`] does, on a cluster whose server runs with `--visibility=subject`.
pub fn filtered(test: impl AsyncFnOnce(&'static TestCluster)) {
    FILTERED_CLUSTER.shared(test);
}

/// Runs a test on the shared cluster, while no other test uses this cluster. The test may stop the
/// server and the kube-apiserver. After the test, the harness starts them again if they are
/// stopped.
pub fn alone(test: impl AsyncFnOnce(&'static TestCluster)) {
    TEST_CLUSTER.alone(test);
}

/// Runs a test as [`alone`] does, on the cluster of the tests of persistence mode.
pub fn alone_in_persistence_cluster(test: impl AsyncFnOnce(&'static TestCluster)) {
    PERSISTENCE_CLUSTER.alone(test);
}

/// Runs a test on a new control plane, on which nothing is installed. Skips the test if
/// [`Cluster::start`] returns an error. `name` is the name of a folder for the files of the
/// control plane.
pub fn apart(name: &str, test: impl AsyncFnOnce(&mut Cluster)) {
    RUNTIME.block_on(async {
        match Cluster::start(name).await {
            Ok(mut cluster) => test(&mut cluster).await,
            Err(why) => skip(&why),
        }
    });
}

fn run(cluster: &'static TestCluster, test: impl AsyncFnOnce(&'static TestCluster)) {
    let result = catch_unwind(AssertUnwindSafe(|| RUNTIME.block_on(test(cluster))));
    if let Err(panic) = result {
        eprintln!("{}", cluster.log_tail());
        resume_unwind(panic);
    }
}

impl SharedCluster {
    fn shared(&'static self, test: impl AsyncFnOnce(&'static TestCluster)) {
        if let Some(cluster) = self.get() {
            let _turn = self.turns.read().unwrap_or_else(PoisonError::into_inner);
            run(cluster, test);
        }
    }

    fn alone(&'static self, test: impl AsyncFnOnce(&'static TestCluster)) {
        if let Some(cluster) = self.get() {
            let _turn = self.turns.write().unwrap_or_else(PoisonError::into_inner);
            let result = catch_unwind(AssertUnwindSafe(|| run(cluster, test)));
            RUNTIME.block_on(cluster.recover());
            if let Err(panic) = result {
                resume_unwind(panic);
            }
        }
    }

    /// Returns the cluster. The first call starts the cluster. If this machine cannot run a control
    /// plane, skips the test and returns None.
    fn get(&'static self) -> Option<&'static TestCluster> {
        let setup = self.setup.get_or_init(|| {
            catch_unwind(|| RUNTIME.block_on(TestCluster::start(self.name, self.flags)))
                .map_or_else(
                    |panic| Setup::Failed(panic_message(&*panic)),
                    |cluster| cluster.map_or_else(Setup::Skipped, Setup::Ready),
                )
        });
        match setup {
            Setup::Ready(cluster) => Some(cluster),
            Setup::Failed(why) => panic!("the control plane and the server did not start: {why}"),
            Setup::Skipped(why) => {
                skip(why);
                None
            }
        }
    }
}

/// Prints that the current test is skipped. If the environment has `IFO_REQUIRE_E2E=1` or
/// `CI=true`, fails the test instead.
pub fn skip(why: &str) {
    let set = |name: &str, value: &str| std::env::var(name).is_ok_and(|it| it == value);
    assert!(
        !set("IFO_REQUIRE_E2E", "1") && !set("CI", "true"),
        "end-to-end tests must not be skipped here: {why}"
    );
    let test = std::thread::current();
    print_skipped(test.name().unwrap_or("an end-to-end test"), why);
}

/// Prints that a test is skipped.
pub fn print_skipped(test: &str, why: &str) {
    // Rust's test runner hides the output of `eprintln` if the test passes, so this function writes
    // to standard error itself. The message is not important, so an error of this write is ignored.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {test}: {why}");
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_else(|| "a panic without a message".to_owned())
}

/// Repeats a check until it returns `Ok`, and returns the value. Fails after [`DEADLINE`]. The
/// error message contains `what` (the expectation) and the last error of the check (the actual
/// state).
pub async fn eventually<T>(what: &str, mut check: impl AsyncFnMut() -> Result<T, String>) -> T {
    let deadline = Instant::now() + DEADLINE;
    loop {
        match check().await {
            Ok(found) => return found,
            Err(seen) if Instant::now() >= deadline => {
                panic!(
                    "after {} s, still waiting for: {what}; last state: {seen}",
                    DEADLINE.as_secs()
                )
            }
            Err(_) => tokio::time::sleep(POLL).await,
        }
    }
}

/// Returns `Ok` if `is` is true. Otherwise returns an error with the actual state `seen`.
pub fn ok_if(is: bool, seen: impl std::fmt::Debug) -> Result<(), String> {
    if is { Ok(()) } else { Err(format!("{seen:?}")) }
}
