//! Tests of the page of `kubectl ifo ui` in a real browser: headless Chromium shows the operations
//! of `ifo-apiserver demo`. Without Chromium, the tests are skipped. With `IFO_REQUIRE_BROWSER=1`,
//! they then fail.

#[path = "../../../tests/binaries/mod.rs"]
mod binaries;
#[path = "browser/driver.rs"]
mod driver;
#[path = "browser/page.rs"]
mod page;
#[path = "cli/pseudo_terminal.rs"]
mod pseudo_terminal;
#[path = "browser/recording.rs"]
#[allow(dead_code, reason = "only `make pictures` records")]
mod recording;
#[path = "browser/session.rs"]
mod session;
