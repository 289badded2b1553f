//! What a user sees and does on the page.

use super::driver::{Browser, DEADLINE};
use super::session::{Demo, Process, plugin, start};
use serde_json::{Value, json};
use std::fs;
use std::process::Command;
use std::time::Instant;

const CONNECTED: &str = "document.getElementById('connection').textContent === 'live'";
const ROWS: &str = "document.querySelectorAll('#tasks-body tr').length";

/// Starts `kubectl ifo ui`, and opens its page.
fn open(browser: &Browser, plugin: &mut Command) -> Process {
    let (process, address) = start(plugin);
    browser.open(&address);
    browser.wait_for(CONNECTED);
    process
}

#[test]
fn the_page_shows_live_operations_filters_and_zooms() {
    let Some(browser) = Browser::start(1440, 900) else {
        return;
    };
    let demo = Demo::start();
    let _ui = open(&browser, &mut demo.plugin());
    browser.wait_for(&format!("{ROWS} > 3 && ifo.painted"));
    let hash = browser.run("return location.hash");
    assert!(!hash.as_str().unwrap().contains("token"), "{hash}");

    // An operation that did not exist yet appears, and the state of others changes.
    browser.run("window.known = new Set(ifo.model.operations.keys())");
    browser.wait_for("[...ifo.model.operations.keys()].some((it) => !known.has(it))");
    browser.wait_for("document.getElementById('idle-head').textContent === 'Not idle'");
    // An operation that ends leaves a record, and all kinds stay connected.
    browser
        .run("window.ended = [...ifo.model.operations.values()].filter((it) => !it.active).length");
    browser
        .wait_for("[...ifo.model.operations.values()].filter((it) => !it.active).length > ended");
    assert_eq!(browser.run(&format!("return {CONNECTED}")), true);

    // The search leaves only fitting rows, and the address holds it.
    browser.run(
        "const search = document.getElementById('q'); search.value = 'team-b'; \
         search.dispatchEvent(new Event('input', {bubbles: true}))",
    );
    browser.wait_for(&format!(
        "{ROWS} > 0 && [...document.querySelectorAll('#tasks-body .column-target')].every((it) => it.textContent.includes('team-b'))"
    ));
    browser.wait_for("location.hash.includes('q=team-b')");
    browser.run("document.getElementById('clear').click()");

    let span = "return ifo.view.to - ifo.view.from";
    let before = browser.run(span).as_f64().unwrap();
    browser.run("document.getElementById('zoom-in').click()");
    assert!(browser.run(span).as_f64().unwrap() < 0.7 * before);
    browser.run(
        "document.getElementById('axis').dispatchEvent(new WheelEvent('wheel', {deltaY: 400, cancelable: true}))",
    );
    assert!(browser.run(span).as_f64().unwrap() > 0.9 * before);
    assert_eq!(violations(&browser), json!([]));
}

/// Returns what axe-core finds. Returns no violations if axe-core cannot be downloaded.
fn violations(browser: &Browser) -> Value {
    browser.run("document.querySelector('#tasks-body button').click()");
    browser.wait_for("!document.getElementById('details').hidden");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/axe-core");
    let found = Command::new(script).output().unwrap();
    if found.status.code() == Some(3) {
        eprintln!("SKIPPED: axe-core cannot be downloaded");
        return json!([]);
    }
    assert!(
        found.status.success(),
        "{}",
        String::from_utf8_lossy(&found.stderr)
    );
    let path = String::from_utf8(found.stdout).unwrap();
    browser.run(&fs::read_to_string(path.trim()).unwrap());
    let scheme =
        |value: &str| json!({"features": [{"name": "prefers-color-scheme", "value": value}]});
    let mut all = Vec::new();
    for value in ["light", "dark"] {
        browser.devtools("Emulation.setEmulatedMedia", &scheme(value));
        let found = browser.run_async(
            "axe.run().then((it) => done(it.violations.map((own) => [own.id, own.nodes.map((node) => node.html)])))",
        );
        all.extend(found.as_array().unwrap().clone());
    }
    Value::from(all)
}

#[test]
fn an_exported_page_works_as_a_file() {
    let Some(browser) = Browser::start(1440, 900) else {
        return;
    };
    let demo = Demo::start();
    // The demo starts its operations one after another, so the first file can have too few of them.
    let started = Instant::now();
    loop {
        let path = demo.export();
        browser.open(&format!("file://{}", path.display()));
        browser.wait_for("ifo.painted");
        if browser.run(&format!("return {ROWS} > 3")) == true {
            break;
        }
        assert!(
            started.elapsed() < DEADLINE,
            "the file never has more than three operations"
        );
    }
    let state = browser.run("return document.getElementById('connection').textContent");
    assert_eq!(state, "recorded");
}

#[test]
fn text_from_the_cluster_is_never_markup() {
    let Some(browser) = Browser::start(1440, 900) else {
        return;
    };
    let object = json!({
        "apiVersion": "live.ifo.kubevirt.io/v1alpha1", "kind": "InFlightOperation",
        "metadata": {"uid": "hostile", "name": "hostile", "creationTimestamp": "2020-01-01T00:00:00Z",
            "labels": {"<img src=x>": "<img src=x>"}},
        "spec": {"operation": "<img src=x onerror=alert(1)>", "component": "<b>c</b>",
            "ruleSet": "<b>r</b>", "initiator": "<b>i</b>",
            "subject": {"kind": "<b>k</b>", "name": "</script><img src=x>", "namespace": "<b>n</b>"}},
        "status": {"phase": "Active", "state": "<b>Failing</b>", "reason": "<b>r</b>",
            "message": "<img src=x>", "nodes": ["<img src=x>"], "cancel": "<b>stop</b>",
            "queuedAt": "2019-12-31T23:59:00Z", "started": "2020-01-01T00:00:00Z"},
    });
    let file = tempfile::Builder::new().suffix(".json").tempfile().unwrap();
    fs::write(&file, object.to_string()).unwrap();
    let (_ui, address) = start(plugin().arg("--from").arg(file.path()));
    browser.open(&address);
    browser.wait_for("ifo.model.byUid.has('hostile')");
    browser.run("ifo.pick('hostile')");
    let details = |text: &str| {
        browser.wait_for(&format!(
            "document.getElementById('details').textContent.includes('{text}')"
        ));
    };
    details("<img src=x>");
    // The fields that only some rules yield.
    details("Started by<b>i</b>");
    details("Queuedfor 1m");
    details("To stop it<b>stop</b>");
    browser.wait_for("document.getElementById('tree').textContent.includes('<img src=x>')");
    let markup = browser
        .run("return document.querySelectorAll('img, #details b, #tree b, #tasks b').length");
    assert_eq!(markup, 0);
}

/// Writes a file with three operations: a stalled one and a failing one with long names, and one that
/// has succeeded.
fn file_of_operations() -> tempfile::NamedTempFile {
    let object = |name: &str, status: Value| {
        json!({
            "apiVersion": "live.ifo.kubevirt.io/v1alpha1", "kind": "InFlightOperation",
            "metadata": {"uid": name, "name": name, "creationTimestamp": "2020-01-01T00:00:00Z"},
            "spec": {"operation": "LiveMigratingTheWholeMachineWithAllItsDisks", "component": "kubevirt",
                "subject": {"kind": "VirtualMachine", "name": name.repeat(12), "namespace": "shop"}},
            "status": status,
        })
    };
    let message = "The machine cannot be moved, because no other node has enough memory for it.";
    let stalled = json!([{"type": "Stalled", "status": "True"}]);
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [
        object("failing", json!({"phase": "Active", "state": "Failing", "message": message})),
        object("stalled", json!({"phase": "Active", "state": "Progressing", "progress": 45, "conditions": stalled})),
        object("done", json!({"phase": "Completed", "state": "Succeeded", "completed": "2020-01-01T00:01:00Z"})),
    ]});
    let file = tempfile::Builder::new().suffix(".json").tempfile().unwrap();
    fs::write(&file, list.to_string()).unwrap();
    file
}

#[test]
fn the_card_counts_what_flags_and_choices_select_and_ignores_the_search_and_the_states() {
    let Some(browser) = Browser::start(1440, 900) else {
        return;
    };
    let file = file_of_operations();
    let idle = |text: &str| {
        let shown = "document.getElementById('idle').textContent";
        browser.wait_for(&format!("{shown}.startsWith('{text}')"));
    };
    let (_ui, address) = start(plugin().arg("--from").arg(file.path()).arg("--failing"));
    browser.open(&address);
    idle("Not idle1 operation in flight in what the filters select");
    let blocked = ["--state", "Blocked"];
    let (_ui, address) = start(plugin().arg("--from").arg(file.path()).args(blocked));
    browser.open(&address);
    idle("UnknownNothing is shown, but the flags leave out operations.");
    let (_ui, address) = start(plugin().arg("--from").arg(file.path()));
    browser.open(&address);
    let all = "Not idle2 operations in flight in the cluster";
    idle(all);
    for fields in ["states: ['Succeeded']", "states: [], q: 'done'"] {
        browser.run(&format!("change({{ {fields} }})"));
        browser.wait_for(&format!("{ROWS} === 1"));
        idle(all);
    }
    browser.run("change({ q: '', component: 'kubevirt', namespace: 'shop' })");
    idle("Not idle2 operations in flight in what the filters select");
}

#[test]
fn long_texts_are_cut_with_an_ellipsis_and_the_help_opens_from_everywhere() {
    let Some(browser) = Browser::start(1280, 800) else {
        return;
    };
    let file = file_of_operations();
    let (_ui, address) = start(plugin().arg("--from").arg(file.path()));
    browser.open(&address);
    browser.wait_for(&format!("{ROWS} === 3"));
    let script = "const box = (it) => it.getBoundingClientRect(); \
        const ages = [...document.querySelectorAll('.trouble')].map((it) => \
            box(it.querySelector('.age')).right <= box(it).right); \
        const card = document.querySelector('.troubles'); \
        return [ages, card.scrollWidth <= card.clientWidth, \
            document.documentElement.scrollWidth <= innerWidth]";
    assert_eq!(browser.run(script), json!([[true, true], true, true]));
    // Chromium draws an ellipsis only in a block container.
    let script = "return [...document.querySelectorAll('.status .state')].map((it) => \
        [getComputedStyle(it).display, it.parentElement.title.includes('stalled')])";
    let expected = json!([["block", false], ["block", true], ["block", false]]);
    assert_eq!(browser.run(script), expected);
    let press = |target: &str| {
        browser.run(&format!(
            "{target}.dispatchEvent(new KeyboardEvent('keydown', {{key: '?', bubbles: true}}))"
        ))
    };
    let is_open = "return document.getElementById('help-dialog').open";
    press("document.getElementById('q')");
    assert_eq!(browser.run(is_open), false);
    for target in ["document.body", "document.getElementById('tree')"] {
        press(target);
        assert_eq!(browser.run(is_open), true, "{target}");
        browser.run("document.getElementById('help-close').click()");
    }
    if let Some(path) = std::env::var_os("IFO_PICTURE") {
        let picture = browser.devtools("Page.captureScreenshot", &json!({"format": "png"}));
        fs::write(path, picture["data"].as_str().unwrap()).unwrap();
    }
}

#[test]
fn the_page_shows_when_the_server_is_gone_and_continues_after_its_restart() {
    let Some(browser) = Browser::start(1440, 900) else {
        return;
    };
    let mut demo = Demo::start();
    let _ui = open(&browser, &mut demo.plugin());
    browser.wait_for(&format!("{ROWS} > 0"));
    demo.stop();
    browser.wait_for("document.getElementById('idle-head').textContent === 'Unknown'");
    let notice = "document.getElementById('notice').textContent";
    browser.wait_for(&format!(
        "{notice}.startsWith('The cluster does not answer')"
    ));
    browser.wait_for("ifo.frame().gaps.some((it) => it.label === 'not connected' && !it.to)");

    browser.run("window.known = new Set(ifo.model.operations.keys())");
    demo.start_again();
    browser.wait_for(&format!("{CONNECTED} && {notice} === ''"));
    browser.wait_for("ifo.frame().gaps.some((it) => it.label === 'not connected' && it.to)");
    browser.wait_for("[...ifo.model.operations.keys()].some((it) => !known.has(it))");
    browser.wait_for("document.getElementById('idle-head').textContent !== 'Unknown'");
}

#[test]
fn the_page_says_what_to_do_when_the_plugin_has_ended() {
    let Some(browser) = Browser::start(1440, 900) else {
        return;
    };
    let demo = Demo::start();
    let (ui, address) = start(&mut demo.plugin());
    browser.open(&address);
    browser.wait_for(CONNECTED);
    drop(ui);
    let says = |text: &str| {
        browser.wait_for(&format!(
            "document.getElementById('notice').textContent.includes('{text}')"
        ));
    };
    says("If you ended it, start it again");
    browser.wait_for("document.getElementById('idle-head').textContent === 'Unknown'");
    // The new process does not know the cookie of the page.
    let port = address
        .split(':')
        .nth(2)
        .unwrap()
        .split('/')
        .next()
        .unwrap();
    let (_ui, address) = start(demo.plugin().args(["--port", port]));
    says("Open the address that `kubectl ifo ui` printed last");
    browser.open(&address);
    browser.wait_for(CONNECTED);
}
