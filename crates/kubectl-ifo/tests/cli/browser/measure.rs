//! The page with 10,000 operations, which come from a file (`--from`). `make bench-ui` also measures
//! the time until the page shows them, and its frames.

use super::driver::Browser;
use super::session::{plugin, start};
use serde_json::{Value, json};

/// The movements whose frames are counted, as scripts. `n` is the number of the frame.
const MOVEMENTS: [&str; 2] = [
    "ifo.pan(Math.sin(n / 20) * 30)",
    "ifo.zoom(n % 120 < 60 ? 0.97 : 1 / 0.97)",
];

#[test]
fn the_page_shows_ten_thousand_operations() {
    let Some(browser) = Browser::start(1440, 900) else {
        return;
    };
    let is_measured = std::env::var_os("IFO_MEASURE_PAGE").is_some();
    browser.devtools("Performance.enable", &json!({"timeDomain": "threadTicks"}));
    for count in [2_000, 10_000] {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("operations.json");
        std::fs::write(&path, operations(count).to_string()).expect("the folder is writable");
        let (_ui, address) = start(plugin().arg("--from").arg(&path));
        browser.open(&address);
        browser.wait_for("ifo.painted");
        assert_eq!(browser.run("return ifo.model.operations.size"), count);
        if is_measured {
            let painted = browser.run("return Math.round(ifo.painted)");
            println!("{count} operations: shown {painted} ms after the page was opened");
        }
        for movement in MOVEMENTS.iter().filter(|_| is_measured && count == 10_000) {
            measure(&browser, movement);
        }
    }
}

/// Prints the number of frames in a second, and the time of the processor for a frame. Other programs
/// on the machine change only the first one.
fn measure(browser: &Browser, movement: &str) {
    let before = busy(browser);
    let frames = browser.run_async(&format!(
        "let n = 0; const start = performance.now(); \
         requestAnimationFrame(function step() {{ n += 1; {movement}; \
         if (performance.now() - start > 4000) done(n); else requestAnimationFrame(step); }});"
    ));
    let frames = frames.as_f64().expect("a number");
    let each = (busy(browser) - before) * 1000.0 / frames;
    let rate = frames / 4.0;
    println!(
        "10000 operations: {rate:.0} frames a second, {each:.1} ms of the main thread each, {movement}"
    );
}

/// Returns the seconds for which the main thread of the page was busy.
fn busy(browser: &Browser) -> f64 {
    let metrics = browser.devtools("Performance.getMetrics", &json!({}));
    let mut metrics = metrics["metrics"].as_array().expect("a list").iter();
    let busy = metrics.find(|it| it["name"] == "TaskDuration");
    busy.and_then(|it| it["value"].as_f64()).expect("a number")
}

/// Returns a list of completed operations of 800 machines, two for each piece of work.
fn operations(count: usize) -> Value {
    let kinds = [
        ("Migrating", "Succeeded"),
        ("Rollout", "Failed"),
        ("Importing", "Ended"),
    ];
    let record = |at: usize| {
        let (operation, outcome) = kinds[at % kinds.len()];
        let (hour, minute, machine) = (at % 23, at % 60, at % 800);
        json!({
            "apiVersion": "live.ifo.kubevirt.io/v1alpha1", "kind": "OperationRecord",
            "metadata": {"uid": format!("u{at}"), "name": format!("o{at}"), "namespace": "n"},
            "spec": {
                "operation": operation, "component": "c", "work": format!("w{}", at / 2), "ruleSet": "r",
                "subject": {
                    "apiVersion": "v1", "kind": "VirtualMachine", "name": format!("vm-{machine}"),
                    "namespace": format!("team-{}", at % 40), "uid": format!("s{machine}"),
                },
            },
            "status": {
                "outcome": outcome, "nodes": [format!("node-{}", at % 30)],
                "started": format!("2026-01-01T{hour:02}:{minute:02}:00Z"),
                "completed": format!("2026-01-01T{hour:02}:{minute:02}:{:02}Z", 1 + at % 59),
            },
        })
    };
    let items: Vec<Value> = (0..count).map(record).collect();
    json!({"apiVersion": "v1", "kind": "List", "items": items})
}
