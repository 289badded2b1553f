//! A client of `chromedriver`: the few commands of the `WebDriver` protocol that the tests need. The
//! clients on crates.io need either a licence that this project does not allow, or some 30 packages.

use serde_json::{Value, json};
use std::env;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Time limit of every wait. It is long enough for a busy machine.
pub const DEADLINE: Duration = Duration::from_mins(2);

/// A running Chromium. Dropping this value ends it.
pub struct Browser {
    driver: Child,
    port: u16,
    session: String,
}

fn program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|it| it.is_file())
}

impl Browser {
    /// Starts Chromium with a window of this size. Returns None if it is not installed.
    pub fn start(width: u32, height: u32) -> Option<Self> {
        let found = program("chromedriver").zip(program("chromium"));
        let Some((driver, chromium)) = found else {
            assert!(
                env::var_os("IFO_REQUIRE_BROWSER").is_none_or(|it| it != "1"),
                "IFO_REQUIRE_BROWSER=1, but chromium or chromedriver is missing"
            );
            eprintln!("SKIPPED: chromium and chromedriver are not installed");
            return None;
        };
        let mut driver = Command::new(driver)
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines();
        let port = lines
            .by_ref()
            .map_while(Result::ok)
            .find_map(|line| {
                let port = line.split("successfully on port ").nth(1)?;
                port.trim_end_matches('.').parse().ok()
            })
            .expect("chromedriver prints its port");
        // The pipe stays open, so that chromedriver can write.
        std::thread::spawn(move || lines.for_each(drop));
        let mut browser = Self {
            driver,
            port,
            session: String::new(),
        };
        // The sandbox of Chromium does not work for root, and /dev/shm is small in containers.
        let options = json!({
            "binary": chromium,
            "args": ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"],
        });
        let capabilities = json!({"alwaysMatch": {"goog:chromeOptions": options}});
        let created = browser.request("POST", "/session", &json!({"capabilities": capabilities}));
        let id = created["sessionId"].as_str().unwrap();
        browser.session = format!("/session/{id}");
        let size =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        browser.devtools("Emulation.setDeviceMetricsOverride", &size);
        Some(browser)
    }

    /// Sends a command to chromedriver, and returns the value of its answer.
    fn request(&self, method: &str, path: &str, body: &Value) -> Value {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let body = body.to_string();
        let (port, length) = (self.port, body.len());
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let mut stream = BufReader::new(stream);
        let mut length = 0;
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).unwrap();
            let header = line.trim_end().to_ascii_lowercase();
            if let Some(value) = header.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            if header.is_empty() {
                break;
            }
        }
        let mut answer = vec![0; length];
        stream.read_exact(&mut answer).unwrap();
        let mut answer: Value = serde_json::from_slice(&answer).unwrap();
        let value = answer["value"].take();
        assert!(value["error"].is_null(), "{method} {path}: {value:#}");
        value
    }

    /// Sends a command of Chromium's `DevTools` protocol.
    pub fn devtools(&self, command: &str, params: &Value) -> Value {
        let path = format!("{}/goog/cdp/execute", self.session);
        self.request("POST", &path, &json!({"cmd": command, "params": params}))
    }

    /// Opens an address.
    pub fn open(&self, url: &str) {
        // The browser loads nothing if only the fragment of the address changes.
        for url in ["about:blank", url] {
            self.request(
                "POST",
                &format!("{}/url", self.session),
                &json!({"url": url}),
            );
        }
    }

    /// Runs a script in the page, and returns its result.
    pub fn run(&self, script: &str) -> Value {
        let path = format!("{}/execute/sync", self.session);
        self.request("POST", &path, &json!({"script": script, "args": []}))
    }

    /// Runs a script that passes its result to the function `done`.
    pub fn run_async(&self, script: &str) -> Value {
        let path = format!("{}/execute/async", self.session);
        let script = format!("const done = arguments[0]; {script}");
        self.request("POST", &path, &json!({"script": script, "args": []}))
    }

    /// Waits until the expression is true.
    pub fn wait_for(&self, expression: &str) {
        let started = Instant::now();
        while self.run(&format!("return Boolean({expression})")) != true {
            let text = "return document.body.innerText";
            assert!(
                started.elapsed() < DEADLINE,
                "never true: {expression}\n{}",
                self.run(text)
            );
            sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !std::thread::panicking() && !self.session.is_empty() {
            self.request("DELETE", &self.session.clone(), &json!({}));
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}
