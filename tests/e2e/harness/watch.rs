//! Collects the events of a watch, or the output lines of a running command such as `kubectl get
//! -w`. A background task collects these items, and a test can wait for an item.

use super::{Caller, DEADLINE, websocket};
use futures::{AsyncBufReadExt as _, Stream, StreamExt as _, future, stream};
use http::Request;
use http::header::UPGRADE;
use kube::client::Body;
use serde_json::Value;
use std::path::Path;
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_tungstenite::tungstenite::protocol::Message;

/// The items that have been received so far. `ended` is true if no more items follow.
#[derive(Debug)]
struct ReceivedItems<T> {
    items: Vec<T>,
    ended: bool,
}

/// A running command or a watch. A background task collects its items until this value is dropped.
#[derive(Debug)]
pub struct Collector<T> {
    /// The command line or the path of the watch, for error messages.
    what: String,
    seen: watch::Receiver<ReceivedItems<T>>,
    reader: JoinHandle<()>,
    /// The process of a command. None for a watch.
    child: Option<Child>,
}

/// The lines that a running kubectl prints.
pub type Lines = Collector<String>;

/// The events of a watch. Each event has the form `{"type": …, "object": …}`.
pub type Events = Collector<Value>;

impl<T> Drop for Collector<T> {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl<T: std::fmt::Debug> Collector<T> {
    /// Waits until `find` returns a value for the items so far, and returns this value. Calls
    /// `find` again after each new item. Panics if the command or the watch ends without such a
    /// value, or after [`DEADLINE`]. `what` describes the expected items in the panic message.
    pub async fn until<R>(&mut self, what: &str, mut find: impl FnMut(&[T]) -> Option<R>) -> R {
        let mut found = None;
        let is_found = self.seen.wait_for(|seen| {
            found = find(&seen.items);
            found.is_some() || seen.ended
        });
        let waited = tokio::time::timeout(DEADLINE, is_found).await.is_ok();
        found.unwrap_or_else(|| {
            let why = if waited { "it ended" } else { "the deadline" };
            panic!(
                "{}: {why} before this: {what}; {}",
                self.what,
                self.summary()
            )
        })
    }

    /// Applies `find` to the items so far, without waiting.
    pub fn inspect<R>(&self, find: impl FnOnce(&[T]) -> R) -> R {
        find(&self.seen.borrow().items)
    }

    /// Waits until the command or the watch has ended.
    pub async fn wait_for_end(&mut self) {
        let end = self.seen.wait_for(|seen| seen.ended);
        let waited = tokio::time::timeout(DEADLINE, end).await;
        assert!(waited.is_ok(), "{} does not end", self.what);
        if let Some(child) = &mut self.child {
            // The command has closed its output, so it exits soon. Its exit status is not checked.
            let _ = child.wait().await;
        }
    }

    fn summary(&self) -> String {
        let mut text = "so far:".to_owned();
        for item in &self.seen.borrow().items {
            text.push_str(&format!("\n  {item:?}"));
        }
        text
    }
}

impl Lines {
    /// Runs a command and collects the lines of its standard output. Dropping this value kills the
    /// command.
    pub fn of(program: &Path, args: &[&str]) -> Self {
        let mut child = Command::new(program)
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("kubectl can be started");
        let stdout = child.stdout.take().expect("standard output is piped");
        let (sender, seen) = channel();
        let reader = tokio::spawn(async move {
            let mut lines = BufReader::new(stdout).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                sender.send_modify(|seen| seen.items.push(line));
            }
            sender.send_modify(|seen| seen.ended = true);
        });
        Self {
            what: format!("kubectl {}", args.join(" ")),
            seen,
            reader,
            child: Some(child),
        }
    }
}

impl Events {
    /// Starts a watch. The query of `path` must contain `watch=1`. Returns when the server has
    /// accepted the watch. Returns an error if the server refuses the watch.
    pub async fn of(caller: &Caller, path: &str) -> Result<Self, String> {
        Self::with(caller, path, &[]).await
    }

    /// Starts a watch as [`Self::of`] does, with additional headers. With the header `Upgrade`, the
    /// watch uses WebSocket.
    pub async fn with(
        caller: &Caller,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Result<Self, String> {
        let mut request = Request::get(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Vec::new()).expect("tests send valid requests");
        if request.headers().contains_key(UPGRADE) {
            return Self::over_websocket(caller, path, request.map(Body::from)).await;
        }
        let body = caller.client.request_stream(request).await;
        let body = body.map_err(|error| error.to_string())?;
        let lines = body.lines().take_while(|line| future::ready(line.is_ok()));
        let lines = lines.filter_map(|line| future::ready(line.ok()));
        Ok(Self::collect(format!("watch of {path}"), lines))
    }

    async fn over_websocket(
        caller: &Caller,
        path: &str,
        mut request: Request<Body>,
    ) -> Result<Self, String> {
        websocket::add_handshake(&mut request);
        let (answer, messages) = websocket::open(caller, request).await?;
        let messages = messages.ok_or_else(|| format!("{answer:?}"))?;
        let texts = stream::unfold(messages, async |mut messages| {
            let Some(Message::Text(text)) = messages.next().await else {
                return None;
            };
            Some((text.to_string(), messages))
        });
        Ok(Self::collect(
            format!("watch of {path} over WebSocket"),
            texts,
        ))
    }

    fn collect(what: String, texts: impl Stream<Item = String> + Send + 'static) -> Self {
        let (sender, seen) = channel();
        let reader = tokio::spawn(async move {
            let mut texts = Box::pin(texts);
            while let Some(text) = texts.next().await {
                let event = serde_json::from_str(&text).unwrap_or(Value::String(text));
                sender.send_modify(|seen| seen.items.push(event));
            }
            sender.send_modify(|seen| seen.ended = true);
        });
        Self {
            what,
            seen,
            reader,
            child: None,
        }
    }
}

fn channel<T>() -> (
    watch::Sender<ReceivedItems<T>>,
    watch::Receiver<ReceivedItems<T>>,
) {
    watch::channel(ReceivedItems {
        items: Vec::new(),
        ended: false,
    })
}
