//! Requests of other web sites, programs and users.

use super::cluster::{Cluster, contents};
use super::{Ui, parts_of, read_line};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

const PATHS: [&str; 5] = [
    "/",
    "/api/session",
    "/api/stream",
    "/api/events?%7B%7D",
    "/api/ruleset?vm",
];

fn start() -> (Cluster, Ui) {
    let cluster = Cluster::start(contents());
    let ui = Ui::start(cluster.address, &[]);
    (cluster, ui)
}

#[test]
fn only_get_and_head_are_allowed() {
    let (_cluster, ui) = start();
    let cookie = ui.sign_in();
    for method in [
        "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT",
    ] {
        for path in PATHS {
            // A CONNECT request names a host instead of a path.
            let path = if method == "CONNECT" {
                "127.0.0.1:1"
            } else {
                path
            };
            let answer = ui.request(method, path, &[&ui.host(), &cookie]);
            assert_eq!(answer.code, 405, "{method} {path}: {answer:?}");
            assert!(answer.head.contains("allow: GET, HEAD"), "{answer:?}");
        }
    }
    let head = ui.request("HEAD", "/", &[&ui.host()]);
    assert_eq!((head.code, head.body.as_str()), (200, ""));
}

#[test]
fn the_host_must_be_this_server() {
    let (_cluster, ui) = start();
    let cookie = ui.sign_in();
    let port = ui.port;
    for path in PATHS {
        for host in [
            "Host: attacker.example".to_owned(),
            format!("Host: attacker.example:{port}"),
            "Host: 127.0.0.1".to_owned(),
            format!("Host: 127.0.0.1:{}", port ^ 1),
            format!("Host: 127.0.0.1.:{port}"),
            format!("Host: 127.1:{port}"),
            format!("Host: LOCALHOST:{port}"),
            format!("Host: [::1]:{port}"),
            format!("Host: x@127.0.0.1:{port}"),
            "Host:".to_owned(),
        ] {
            let answer = ui.request("GET", path, &[&host, &cookie]);
            assert_eq!(answer.code, 421, "{host} {path}: {answer:?}");
            assert!(!answer.head.contains("set-cookie"), "{answer:?}");
        }
        let second = ["Host: attacker.example", &ui.host(), &cookie];
        assert_eq!(ui.request("GET", path, &second).code, 400, "{path}");
        assert_eq!(ui.request("GET", path, &[&cookie]).code, 400, "{path}");
        let absolute = format!("http://attacker.example{path}");
        assert_eq!(
            ui.request("GET", &absolute, &[&ui.host()]).code,
            421,
            "{path}"
        );
    }
    let localhost = format!("Host: localhost:{port}");
    assert_eq!(ui.request("GET", "/", &[&localhost]).code, 200);
    let session = ui.request("GET", "/api/session", &[&localhost, &cookie]);
    assert_eq!(session.code, 200, "{session:?}");
}

#[test]
fn requests_of_other_web_sites_are_refused() {
    let (_cluster, ui) = start();
    let token = format!("X-Ifo-Token: {}", ui.token);
    let foreign = [
        "Origin: https://attacker.example".to_owned(),
        "Origin: null".to_owned(),
        format!("Origin: http://localhost:{}", ui.port),
        format!("Origin: https://127.0.0.1:{}", ui.port),
        format!("Origin: http://127.0.0.1:{}", ui.port ^ 1),
        "Sec-Fetch-Site: cross-site".to_owned(),
        "Sec-Fetch-Site: same-site".to_owned(),
        "Sec-Fetch-Site: unknown".to_owned(),
    ];
    for path in PATHS {
        for header in &foreign {
            let answer = ui.request("GET", path, &[&ui.host(), header, &token]);
            assert_eq!(answer.code, 403, "{header} {path}: {answer:?}");
        }
    }
    // The refused requests have not used the token.
    let own = format!("Origin: http://127.0.0.1:{}", ui.port);
    let own = [
        &ui.host(),
        own.as_str(),
        "Sec-Fetch-Site: same-origin",
        &token,
    ];
    assert_eq!(ui.request("GET", "/api/session", &own).code, 200);
    let typed = [&ui.host(), "Sec-Fetch-Site: none"];
    assert_eq!(ui.request("GET", "/", &typed).code, 200);
}

#[test]
fn the_data_needs_the_token_of_the_printed_address() {
    let (_cluster, mut ui) = start();
    // 256 random bits.
    assert_eq!(ui.token.len(), 43, "{}", ui.token);
    let foreign = format!("Cookie: ifo-session-{}={}", ui.port, "0".repeat(43));
    for cookie in ["Cookie: a=b", &foreign] {
        for path in PATHS.iter().skip(1).chain(&["/api/", "/api/nothing"]) {
            let answer = ui.get(path, cookie);
            assert_eq!(answer.code, 401, "{path}: {answer:?}");
            assert!(answer.body.starts_with("{\"error\":\""), "{answer:?}");
        }
    }
    for wrong in [
        "",
        "0",
        &"0".repeat(43),
        &ui.token[1..],
        &ui.token.to_uppercase(),
    ] {
        assert_eq!(ui.session(wrong).code, 401, "{wrong}");
    }
    let answer = ui.session(&ui.token);
    let cookie = answer
        .head
        .lines()
        .find_map(|it| it.strip_prefix("set-cookie: "));
    let cookie = cookie.unwrap_or_default().to_owned();
    let name = format!("ifo-session-{}=", ui.port);
    assert!(cookie.starts_with(&name), "{cookie}");
    assert!(
        cookie.ends_with("; HttpOnly; SameSite=Strict; Path=/api/"),
        "{cookie}"
    );
    // The token works once. The plugin has printed an address for another browser.
    assert_eq!(ui.session(&ui.token).code, 401);
    let line = read_line(&mut ui.output);
    let next = line
        .strip_prefix("for another browser: ")
        .unwrap_or_default();
    let (port, token) = parts_of(next);
    assert_eq!(port, ui.port);
    assert_ne!(token, ui.token);
    assert_eq!(ui.session(&token).code, 200);
}

#[test]
fn every_answer_has_the_headers_that_protect_the_page() {
    let (_cluster, ui) = start();
    let refused = ui.request("POST", "/", &[&ui.host()]);
    let none = ui.get("/none", "");
    let (page, session) = (ui.get("/", ""), ui.session(&ui.token));
    for answer in [refused, none, page, session] {
        for header in [
            "content-security-policy: default-src 'none'; script-src 'sha256-",
            "; img-src data: blob:; base-uri 'none'; form-action 'none'; connect-src 'self'; frame-ancestors 'none'\r\n",
            "x-content-type-options: nosniff\r\n",
            "referrer-policy: no-referrer\r\n",
            "cross-origin-opener-policy: same-origin\r\n",
            "cross-origin-resource-policy: same-origin\r\n",
            "cache-control: no-store\r\n",
        ] {
            let head = format!("{}\r\n", answer.head);
            assert!(head.contains(header), "{header}: {answer:?}");
        }
        assert!(!answer.head.contains("access-control-"), "{answer:?}");
    }
}

#[test]
fn a_request_has_a_bounded_size() {
    let (_cluster, ui) = start();
    let long = format!("X-Long: {}", "x".repeat(1 << 20));
    assert_eq!(ui.request("GET", "/", &[&ui.host(), &long]).code, 431);
    let many: Vec<String> = (0..200).map(|it| format!("X-{it}: a")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert_eq!(ui.request("GET", "/", &many).code, 431);
}

#[test]
fn idle_connections_do_not_keep_others_out() {
    let (_cluster, ui) = start();
    // More connections than the limit. They send a part of a request, and no more.
    let mut idle: Vec<TcpStream> = (0..100)
        .map(|_| {
            let mut stream = TcpStream::connect(("127.0.0.1", ui.port)).expect("it listens");
            let _ = stream.write_all(b"GET / HTTP/1.1\r\nHost: a");
            stream
        })
        .collect();
    assert_eq!(ui.get("/", "").code, 200);
    let mut rest = Vec::new();
    let first = idle.first_mut().expect("there are connections");
    first
        .read_to_end(&mut rest)
        .expect("the plugin closes the connection");
}

#[test]
fn an_interrupt_ends_the_command_without_an_error() {
    let (_cluster, mut ui) = start();
    let cookie = ui.sign_in();
    let mut events = ui.events(&cookie);
    let killed = std::process::Command::new("kill")
        .args(["-INT", &ui.process.id().to_string()])
        .status();
    assert!(killed.is_ok_and(|it| it.success()));
    let ended = ui.process.wait().expect("the plugin can be waited for");
    assert_eq!(ended.code(), Some(0));
    let mut rest = String::new();
    let _ = events.0.read_to_string(&mut rest);
    assert!(TcpStream::connect(("127.0.0.1", ui.port)).is_err());
}
