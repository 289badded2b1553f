//! Runs transcripts: text files with commands and their expected output. With `UPDATE_SNAPSHOTS=1`,
//! the tests write the output of the commands to the files. A developer must then review the files.
//!
//! A transcript consists of scenes:
//!
//! ```text
//! == an operation that does not exist is an error
//! operations: [1]
//! $ ifo get none
//! ! error: there is no operation "none"
//! ? 1
//! ```
//!
//! The lines between the title and the first command are YAML: fields of [`Cluster`], and `files`, which
//! are written into the working folder. A shell runs each command line. `ifo` is the plugin. Lines of
//! standard error begin with `! `, and `? ` shows an exit code that is not 0. Ages of at least 100 days
//! are printed as `AGE`. The file `$REQUESTS` has the requests of the scene so far.

use super::cluster::Cluster;
use super::fake_apiserver::serve;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

/// Runs the plugin, and adds its standard error and its exit code to the output. A command that hangs
/// ends with the exit code 124.
const PRELUDE: &str = r#"
ifo() { timeout 120 "$PLUGIN" "$@" 2> "$ERRORS"; code=$?; sed 's/^/! /' "$ERRORS"; [ $code = 0 ] || echo "? $code"; }
"#;

/// Folder of the files with rule sets and objects. It is the working folder of a scene without
/// `files`.
const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/cli");

/// The script with which kubectl completes the arguments of the plugin.
const COMPLETER: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../deploy/plugin/kubectl_complete-ifo"
);

/// Runs a transcript, and compares the output of its commands.
#[track_caller]
fn check(name: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/transcripts/{name}.txt"));
    let text = fs::read_to_string(&path).expect("the transcript is readable");
    let mut scenes = text.split("\n== ");
    let mut printed = scenes.next().unwrap_or_default().to_owned();
    for scene in scenes {
        let found = run_scene(scene);
        if std::env::var_os("UPDATE_SNAPSHOTS").is_none() && found != scene {
            let mut lines = scene.lines().chain([""]).zip(found.lines().chain([""]));
            let (expected, line) = lines.find(|(a, b)| a != b).unwrap_or_default();
            panic!("{name}: expected {expected:?}, found {line:?} in:\n== {found}");
        }
        printed.extend(["\n== ", &found]);
    }
    if printed != text {
        fs::write(&path, printed).expect("the transcript is writable");
    }
}

/// Runs the commands of a scene. Returns the scene with their output.
fn run_scene(scene: &str) -> String {
    let begin = scene.find("\n$ ").expect("a scene has a command") + 1;
    let (head, commands) = scene.split_at(begin);
    let (title, yaml) = head.split_once('\n').expect("a scene has a title");
    let mut settings: BTreeMap<String, Value> = match yaml.trim() {
        "" => BTreeMap::new(),
        yaml => serde_saphyr::from_str(yaml).unwrap_or_else(|error| panic!("{title}: {error}")),
    };
    let files = settings.remove("files");
    let settings = serde_json::to_string(&settings).expect("the settings are JSON");
    let folder = tempfile::tempdir().expect("a temporary folder can be created");
    let folder = folder.path();
    let log = fs::File::create(folder.join("requests")).expect("the folder is writable");
    let log = Arc::new(log);
    let cluster = Cluster::read(&settings);
    let (_runtime, address) = serve(move |request| {
        // One write for each line, because requests can run at the same time.
        let line = format!("{}\n", description(request));
        (&*log)
            .write_all(line.as_bytes())
            .expect("the file is writable");
        cluster.answer(request)
    });
    let server = format!("http://{address}");
    let kubeconfig = serde_json::json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "a",
        "clusters": [{"name": "a", "cluster": {"server": server}}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": ""}}],
    });
    fs::write(folder.join("kubeconfig"), kubeconfig.to_string()).expect("the folder is writable");
    let own = folder.join("files");
    fs::create_dir(&own).expect("the folder is writable");
    for (name, content) in files.iter().filter_map(Value::as_object).flatten() {
        write(&own.join(name), content);
    }
    let here = if files.is_some() {
        own.as_path()
    } else {
        Path::new(FIXTURES)
    };
    let mut found = head.to_owned();
    for line in commands.lines().filter(|it| it.starts_with("$ ")) {
        let output = Command::new("sh")
            .args(["-c", &format!("{PRELUDE}{}", &line[2..])])
            .current_dir(here)
            .env("PLUGIN", env!("CARGO_BIN_EXE_kubectl-ifo"))
            .env("COMPLETER", COMPLETER)
            .env("ERRORS", folder.join("errors"))
            .env("KUBECONFIG", folder.join("kubeconfig"))
            .env("SERVER", &server)
            .env("REQUESTS", folder.join("requests"))
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .expect("the shell can be started");
        let text = String::from_utf8(output.stdout).expect("the output is UTF-8");
        let text = text.replace(&server, "SERVER");
        found.extend([line, "\n", &stable(&text)]);
    }
    // Scenes are separated by an empty line.
    let trailing = scene.len() - scene.trim_end_matches('\n').len();
    found.truncate(found.trim_end_matches('\n').len());
    found + &"\n".repeat(trailing)
}

/// Describes a request in one line: its method, its address, and its headers for the user.
fn description(request: &axum::extract::Request) -> String {
    let mut line = format!("{} {}", request.method(), request.uri());
    for (name, value) in request.headers() {
        if *name == "authorization" || name.as_str().starts_with("impersonate-") {
            line.extend([" ", name.as_str(), "=", value.to_str().unwrap_or_default()]);
        }
    }
    line
}

/// Writes a file with a text, or with an object as JSON.
fn write(path: &Path, content: &Value) {
    fs::create_dir_all(path.parent().expect("a file has a folder")).expect("it is writable");
    let text = match content {
        Value::String(text) => text.clone(),
        object => format!("{object}\n"),
    };
    fs::write(path, text).expect("the folder is writable");
}

/// Replaces ages, which grow every day, and the widths of columns, which depend on them.
fn stable(output: &str) -> String {
    let is_age = |it: &str| {
        let days = it.rsplit('y').next().unwrap_or_default();
        let is_long = it.contains('y') || days.len() > 3;
        is_long
            && it.starts_with(|c: char| c.is_ascii_digit())
            && it.ends_with(['d', 'y'])
            && it
                .chars()
                .all(|c| c.is_ascii_digit() || matches!(c, 'd' | 'y'))
    };
    let shown = |word: &str| {
        let age = word.trim_start_matches('(').trim_end_matches(')');
        if is_age(age) {
            word.replace(age, "AGE")
        } else {
            word.to_owned()
        }
    };
    let lines = output.lines().map(|line| {
        let words = line.split(' ');
        let mut line = words.map(shown).collect::<Vec<_>>().join(" ");
        while line.contains("    AGE") || line.contains("AGE    ") {
            line = line
                .replace("    AGE", "   AGE")
                .replace("AGE    ", "AGE   ");
        }
        line + "\n"
    });
    lines.collect()
}

macro_rules! transcripts {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                check(stringify!($name));
            }
        )*
    };
}

transcripts! {
    bundle completion describe detection errors filters from impact names requests rules wait work
}
