//! The files of the page, which are part of the program, and the policy that the browser enforces.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderMap, HeaderName, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use ring::digest::{SHA256, digest};

/// The policy of all answers: only files of this server, no inline scripts, no frames.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
     img-src 'self' data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; \
     frame-ancestors 'none'";

/// A file of the page.
pub(super) struct PageFile {
    /// The path in requests.
    pub(super) path: &'static str,
    pub(super) content_type: &'static str,
    pub(super) text: &'static str,
}

const fn script(path: &'static str, text: &'static str) -> PageFile {
    PageFile {
        path,
        content_type: "text/javascript; charset=utf-8",
        text,
    }
}

const INDEX: &str = include_str!("../../ui/index.html");
const STYLE: &str = include_str!("../../ui/style.css");
const ICON: &str = include_str!("../../ui/icon.svg");

/// The scripts of the page, in the order in which the page loads them.
const SCRIPTS: [PageFile; 8] = [
    script("/model.js", include_str!("../../ui/model.js")),
    script("/draw.js", include_str!("../../ui/draw.js")),
    script("/rows.js", include_str!("../../ui/rows.js")),
    script("/chart.js", include_str!("../../ui/chart.js")),
    script("/timeline.js", include_str!("../../ui/timeline.js")),
    script("/details.js", include_str!("../../ui/details.js")),
    script("/tasks.js", include_str!("../../ui/tasks.js")),
    script("/app.js", include_str!("../../ui/app.js")),
];

/// The other files of the page.
const FILES: [PageFile; 3] = [
    PageFile {
        path: "/",
        content_type: "text/html; charset=utf-8",
        text: INDEX,
    },
    PageFile {
        path: "/style.css",
        content_type: "text/css; charset=utf-8",
        text: STYLE,
    },
    PageFile {
        path: "/icon.svg",
        content_type: "image/svg+xml",
        text: ICON,
    },
];

/// Returns the file with this path.
pub(super) fn file(path: &str) -> Option<&'static PageFile> {
    FILES.iter().chain(&SCRIPTS).find(|it| it.path == path)
}

/// Adds the headers that protect the page to an answer.
pub(super) fn protect(headers: &mut HeaderMap) {
    let policies = [
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (
            HeaderName::from_static("cross-origin-opener-policy"),
            "same-origin",
        ),
        (
            HeaderName::from_static("cross-origin-resource-policy"),
            "same-origin",
        ),
        (CACHE_CONTROL, "no-store"),
    ];
    for (name, value) in policies {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

/// Returns the page as one file, with its scripts, its style and `data`, the JSON that it shows.
pub(super) fn self_contained(data: &str) -> String {
    let style = "<link rel=\"stylesheet\" href=\"/style.css\">";
    let icon = format!(
        "href=\"data:image/svg+xml;base64,{}\"",
        STANDARD.encode(ICON)
    );
    let mut page = INDEX.replace(style, &format!("<style>{STYLE}</style>"));
    page = page.replace("href=\"/icon.svg\"", &icon);
    let mut hashes = String::new();
    for file in &SCRIPTS {
        let element = format!("<script src=\"{}\"></script>", file.path);
        page = page.replace(&element, &format!("<script>{}</script>", file.text));
        hashes.extend([" ", &hash(file.text)]);
    }
    let policy = format!(
        "default-src 'none'; script-src{hashes}; style-src {}; img-src data: blob:; \
         base-uri 'none'; form-action 'none'",
        hash(STYLE)
    );
    let meta = format!("<meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">");
    page = page.replacen("<head>", &format!("<head>\n{meta}"), 1);
    // Without `<`, the data cannot end its element.
    let data = data.replace('<', "\\u003c");
    let element = format!("<script type=\"application/json\" id=\"data\">{data}</script>\n");
    page.replacen("<script>", &(element + "<script>"), 1)
}

/// Formats the hash of a script or a style as in a policy.
fn hash(text: &str) -> String {
    let hash = digest(&SHA256, text.as_bytes());
    format!("'sha256-{}'", STANDARD.encode(hash))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::Path;

    #[test]
    fn the_program_has_exactly_the_files_of_the_folder() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("ui");
        let entries = std::fs::read_dir(folder).expect("the folder is readable");
        let names = entries.map(|it| it.expect("the folder is readable").file_name());
        let found: BTreeSet<String> = names
            .map(|it| format!("/{}", it.to_string_lossy()).replace("/index.html", "/"))
            .collect();
        let all = || FILES.iter().chain(&SCRIPTS);
        let known: BTreeSet<String> = all().map(|it| it.path.to_owned()).collect();
        assert_eq!(found, known);
        let bytes: usize = all().map(|it| it.text.len()).sum();
        assert!(bytes < 120 << 10, "the page has {bytes} bytes");
        let lines = SCRIPTS.iter().flat_map(|it| it.text.lines());
        let lines = lines.map(str::trim);
        let code = lines.filter(|it| !it.is_empty() && !it.starts_with("//"));
        assert!(code.count() <= 1500, "the scripts have too many lines");
    }

    #[test]
    fn an_exported_page_contains_all_scripts_in_their_order() {
        let page = self_contained("{}");
        let starts: Vec<Option<usize>> = SCRIPTS.iter().map(|it| page.find(it.text)).collect();
        assert!(starts.iter().all(Option::is_some) && starts.is_sorted());
        assert!(!page.contains(" src=\"/") && !page.contains(" href=\"/"));
        let data = page.find("id=\"data\"");
        assert!(data < starts[0], "the data comes before the scripts");
    }
}
