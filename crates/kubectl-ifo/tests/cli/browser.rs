//! Tests of the page of `kubectl ifo ui` in a real browser: headless Chromium shows the operations
//! of `ifo-apiserver demo`. Without Chromium, the tests are skipped. With `IFO_REQUIRE_BROWSER=1`,
//! they then fail.

#[path = "browser/driver.rs"]
mod driver;
#[path = "browser/measure.rs"]
mod measure;
#[path = "browser/page.rs"]
mod page;
#[path = "browser/pictures.rs"]
mod pictures;
#[path = "browser/recording.rs"]
mod recording;
#[path = "browser/session.rs"]
mod session;
