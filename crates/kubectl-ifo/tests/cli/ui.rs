//! Tests of `kubectl ifo ui`: the stream of events, the protection of the page, and the export.

#[path = "ui/cluster.rs"]
mod cluster;
#[path = "ui/security.rs"]
mod security;
#[path = "ui/stream.rs"]
mod stream;
#[path = "ui/to_file.rs"]
mod to_file;

use super::fake_apiserver::plugin;
use serde_json::Value;
use std::io::{BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The running command. It is killed when the value is dropped.
struct Ui {
    process: Child,
    output: BufReader<std::process::ChildStdout>,
    port: u16,
    token: String,
}

impl Drop for Ui {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// An answer to a request.
#[derive(Debug)]
struct Answer {
    code: u16,
    /// The status line and the headers. Their names are in lower case.
    head: String,
    body: String,
}

impl Ui {
    /// Starts the command with the cluster at `address`.
    fn start(address: SocketAddr, args: &[&str]) -> Self {
        let mut command = plugin(address);
        command.args(["ui", "--no-open"]).args(args);
        Self::of(&mut command)
    }

    fn of(command: &mut Command) -> Self {
        let mut process = command
            .stdout(Stdio::piped())
            .spawn()
            .expect("the plugin can be started");
        let output = process.stdout.take().expect("the output is piped");
        let mut output = BufReader::new(output);
        let line = read_line(&mut output);
        let (port, token) = parts_of(line.trim_start_matches("kubectl ifo ui: "));
        assert!(read_line(&mut output).starts_with("showing the operations of "));
        Self {
            process,
            output,
            port,
            token,
        }
    }

    /// Sends a request, and returns the open connection. HTTP/1.0 has no chunks.
    fn connect(&self, method: &str, path: &str, headers: &[&str]) -> TcpStream {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("the plugin listens");
        stream
            .set_read_timeout(Some(Duration::from_mins(1)))
            .expect("the time is not zero");
        let headers: String = headers.iter().flat_map(|it| [*it, "\r\n"]).collect();
        let request = format!("{method} {path} HTTP/1.0\r\n{headers}\r\n");
        stream
            .write_all(request.as_bytes())
            .expect("the plugin reads");
        stream
    }

    fn host(&self) -> String {
        format!("Host: 127.0.0.1:{}", self.port)
    }

    /// Sends a request with exactly these headers.
    fn request(&self, method: &str, path: &str, headers: &[&str]) -> Answer {
        let mut text = String::new();
        let mut stream = self.connect(method, path, headers);
        stream.read_to_string(&mut text).expect("an answer");
        let (head, body) = text.split_once("\r\n\r\n").expect("an answer has a head");
        let code = head.split(' ').nth(1).and_then(|it| it.parse().ok());
        let lines = head.lines().map(|line| match line.split_once(':') {
            Some((name, value)) => format!("{}:{value}", name.to_lowercase()),
            None => line.to_owned(),
        });
        Answer {
            code: code.expect("an answer has a status code"),
            head: lines.collect::<Vec<_>>().join("\r\n"),
            body: body.to_owned(),
        }
    }

    /// Exchanges a token for the cookie, and returns the answer.
    fn session(&self, token: &str) -> Answer {
        let token = format!("X-Ifo-Token: {token}");
        self.request("GET", "/api/session", &[&self.host(), &token])
    }

    /// Signs in with the printed token. Returns the header with the cookie.
    fn sign_in(&self) -> String {
        let answer = self.session(&self.token);
        assert_eq!(answer.code, 200, "{answer:?}");
        let cookie = answer
            .head
            .lines()
            .find_map(|it| it.strip_prefix("set-cookie: "));
        let cookie = cookie.expect("the answer sets a cookie");
        format!("Cookie: {}", cookie.split(';').next().unwrap_or_default())
    }

    /// Sends a GET request with the cookie.
    fn get(&self, path: &str, cookie: &str) -> Answer {
        self.request("GET", path, &[&self.host(), cookie])
    }

    /// Opens the stream of events.
    fn events(&self, cookie: &str) -> Events {
        let stream = self.connect("GET", "/api/stream", &[&self.host(), cookie]);
        let mut events = Events(BufReader::new(stream));
        assert!(read_line(&mut events.0).contains(" 200 "));
        while read_line(&mut events.0) != "\r\n" {}
        events
    }
}

/// Returns the port and the token of a printed address.
fn parts_of(address: &str) -> (u16, String) {
    let rest = address.trim().strip_prefix("http://127.0.0.1:");
    let (port, token) = rest
        .and_then(|it| it.split_once("/#token="))
        .unwrap_or_else(|| panic!("{address}"));
    (port.parse().expect("a port"), token.to_owned())
}

fn read_line(from: &mut impl std::io::BufRead) -> String {
    let mut line = String::new();
    from.read_line(&mut line).expect("a line of text");
    line
}

/// The events that a tab receives.
struct Events(BufReader<TcpStream>);

impl Events {
    /// Returns the name and the data of the next event.
    fn next(&mut self) -> (String, Value) {
        let mut name = String::new();
        loop {
            let line = read_line(&mut self.0);
            assert!(!line.is_empty(), "the stream has ended");
            if let Some(found) = line.strip_prefix("event: ") {
                found.trim_end().clone_into(&mut name);
            } else if let Some(data) = line.strip_prefix("data: ") {
                return (name, serde_json::from_str(data).expect("the data is JSON"));
            }
        }
    }

    /// Returns the next event of this name, and skips other events.
    fn next_of(&mut self, name: &str) -> Value {
        loop {
            let (found, data) = self.next();
            if found == name {
                return data;
            }
        }
    }

    /// Returns the type, the kind and the name of the next changed object.
    fn change(&mut self) -> String {
        let change = self.next_of("change");
        let object = &change["object"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (kind, name) = (text(&object["kind"]), text(&object["metadata"]["name"]));
        format!("{} {kind}/{name}", text(&change["type"]))
    }
}
