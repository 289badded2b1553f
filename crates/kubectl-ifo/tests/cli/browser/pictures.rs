//! `make pictures` takes the pictures of the page for the documentation.

use super::driver::Browser;
use super::session::{Demo, start};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use std::path::Path;
use std::time::Duration;
use std::{fs, thread};

/// Largest size of a picture in bytes.
const MAX_BYTES: usize = 150 << 10;

/// Writes `docs/images/ui-light.png` and `docs/images/ui-dark.png`.
pub fn take() {
    let browser = Browser::start(1200, 750).expect("Chromium is installed");
    let demo = Demo::start();
    let (_ui, address) = start(&mut demo.plugin());
    browser.open(&format!("{address}&last=120"));
    // The operations of two minutes fill the timeline.
    thread::sleep(Duration::from_mins(2));
    for scheme in ["light", "dark"] {
        let media = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        browser.devtools("Emulation.setEmulatedMedia", &media);
        thread::sleep(Duration::from_secs(2));
        let picture = browser.devtools("Page.captureScreenshot", &json!({"format": "png"}));
        let text = picture["data"].as_str().expect("a picture");
        let bytes = STANDARD.decode(text).expect("the picture is base64");
        write(&format!("ui-{scheme}.png"), &bytes);
    }
}

/// Writes a picture of the documentation.
fn write(name: &str, picture: &[u8]) {
    let bytes = picture.len();
    assert!(
        bytes <= MAX_BYTES,
        "{name} has {bytes} bytes, but at most {MAX_BYTES} are allowed"
    );
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/images");
    fs::write(folder.join(name), picture).expect("docs/images is writable");
    println!("docs/images/{name}: {bytes} bytes");
}
