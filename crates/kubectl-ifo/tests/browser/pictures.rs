//! `make pictures` makes the pictures of the documentation, and `make bench-ui` measures the page.

use super::driver::Browser;
use super::session::Demo;
use serde_json::json;
use std::{env, fs, thread, time::Duration};

/// Writes `docs/images/ui-light.png` and `docs/images/ui-dark.png` if `IFO_PICTURES=1`.
#[test]
fn pictures_of_the_page() {
    if env::var_os("IFO_PICTURES").is_none() {
        return;
    }
    let browser = Browser::start(1280, 800).expect("Chromium is installed");
    let demo = Demo::start(&[]);
    let (_ui, address) = demo.ui(0);
    browser.open(&format!("{address}&last=120"));
    // The histories of two minutes fill the timeline.
    thread::sleep(Duration::from_mins(2));
    for scheme in ["light", "dark"] {
        let media = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        browser.devtools("Emulation.setEmulatedMedia", &media);
        thread::sleep(Duration::from_secs(2));
        let path = format!(
            "{}/../../docs/images/ui-{scheme}.png",
            env!("CARGO_MANIFEST_DIR")
        );
        fs::write(path, browser.picture()).unwrap();
    }
}

/// Prints the frames of a second with 10,000 operations, and the time until 2,000 are shown, if
/// `IFO_BENCH_UI=1`.
#[test]
fn speed_of_the_page() {
    if env::var_os("IFO_BENCH_UI").is_none() {
        return;
    }
    let browser = Browser::start(1440, 900).expect("Chromium is installed");
    let demo = Demo::start(&[]);
    let (_ui, address) = demo.ui(0);
    browser.open(&address);
    browser.wait_for("ifo.painted");
    for count in [2_000, 10_000] {
        let shown = browser.run_async(&format!("{FILL} fill({count}, done)"));
        println!("{count} operations: shown after {shown} ms");
    }
    for action in [
        "ifo.pan(Math.sin(n / 20) * 30)",
        "ifo.zoom(n % 120 < 60 ? 0.97 : 1 / 0.97)",
    ] {
        let frames = browser.run_async(&format!(
            "let n = 0; const start = performance.now(); \
             requestAnimationFrame(function step() {{ n += 1; {action}; const past = performance.now() - start; \
             if (past > 4000) done(Math.round(n / past * 1000)); else requestAnimationFrame(step); }});"
        ));
        println!("10000 operations: {frames} frames a second, {action}");
    }
}

/// Replaces the operations of the page, and calls `done` with the time until they are drawn.
const FILL: &str = "
const fill = (count, done) => {
  const start = performance.now();
  const iso = (ms) => new Date(ms).toISOString();
  ifo.reset();
  for (let at = 0; at < count; at += 1) {
    const begin = ifo.now() - ((at * 7919) % 86400) * 1000;
    ifo.apply('ADDED', {kind: 'OperationRecord', metadata: {uid: `u${at}`, name: `o${at}`},
      spec: {operation: ['Migrating', 'Rollout', 'Importing'][at % 3], component: 'c', work: `w${at >> 1}`,
        subject: {kind: 'VirtualMachine', name: `vm-${at % 800}`, namespace: `team-${at % 40}`, uid: `s${at % 800}`}},
      status: {outcome: ['Succeeded', 'Failed', 'Ended'][at % 3], started: iso(begin), completed: iso(begin + 1000 * (at % 600)), nodes: [`node-${at % 30}`]}});
  }
  ifo.showNow(86400e3);
  ifo.changed('rows');
  ifo.changed('data');
  requestAnimationFrame(() => requestAnimationFrame(() => done(Math.round(performance.now() - start))));
};";
