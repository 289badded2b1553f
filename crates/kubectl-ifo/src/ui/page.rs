//! The page as one file, and its Content-Security-Policy.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{CONTENT_SECURITY_POLICY, HeaderMap, HeaderValue};
use ring::digest::{SHA256, digest};
use std::sync::LazyLock;

const INDEX: &str = include_str!("../../ui/index.html");
const STYLE: &str = include_str!("../../ui/style.css");
const ICON: &str = include_str!("../../ui/icon.svg");

/// The scripts with their paths in [`INDEX`], in the order in which the page loads them.
const SCRIPTS: [(&str, &str); 8] = [
    ("/model.js", include_str!("../../ui/model.js")),
    ("/draw.js", include_str!("../../ui/draw.js")),
    ("/rows.js", include_str!("../../ui/rows.js")),
    ("/chart.js", include_str!("../../ui/chart.js")),
    ("/timeline.js", include_str!("../../ui/timeline.js")),
    ("/details.js", include_str!("../../ui/details.js")),
    ("/tasks.js", include_str!("../../ui/tasks.js")),
    ("/app.js", include_str!("../../ui/app.js")),
];

/// The page with its scripts, its style and its icon.
pub(super) static PAGE: LazyLock<String> = LazyLock::new(|| {
    let style = "<link rel=\"stylesheet\" href=\"/style.css\">";
    let icon = format!("\"data:image/svg+xml;base64,{}\"", STANDARD.encode(ICON));
    let mut page = INDEX.replace(style, &format!("<style>{STYLE}</style>"));
    page = page.replace("\"/icon.svg\"", &icon);
    for (path, text) in SCRIPTS {
        let element = format!("<script src=\"{path}\"></script>");
        page = page.replace(&element, &format!("<script>{text}</script>"));
    }
    page
});

/// The Content-Security-Policy of the page. The browser runs only the scripts of the page, and
/// loads no other files.
static POLICY: LazyLock<String> = LazyLock::new(|| {
    let hash = |text: &str| {
        let hash = digest(&SHA256, text.as_bytes());
        format!("'sha256-{}'", STANDARD.encode(hash))
    };
    let scripts = SCRIPTS.map(|(_, text)| hash(text)).join(" ");
    let style = hash(STYLE);
    format!(
        "default-src 'none'; script-src {scripts}; style-src {style}; img-src data: blob:; \
         base-uri 'none'; form-action 'none'"
    )
});

/// Adds the headers that protect the page to an answer.
pub(super) fn protect(headers: &mut HeaderMap) {
    let fixed = [
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
        ("cache-control", "no-store"),
        ("allow", "GET, HEAD"),
    ];
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
    let policy = format!("{}; connect-src 'self'; frame-ancestors 'none'", *POLICY);
    let policy = HeaderValue::try_from(policy).expect("hashes have only letters and digits");
    headers.insert(CONTENT_SECURITY_POLICY, policy);
}

/// Returns the page for a file, with `data`, the JSON that it shows.
pub(super) fn with_data(data: &str) -> String {
    let policy: &str = &POLICY;
    let meta =
        format!("<head>\n<meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">");
    // Without `<`, the data cannot end the script element that contains it.
    let data = data.replace('<', "\\u003c");
    let element =
        format!("<script type=\"application/json\" id=\"data\">{data}</script>\n<script>");
    let page = PAGE.replacen("<head>", &meta, 1);
    page.replacen("<script>", &element, 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::Path;

    #[test]
    fn the_page_has_exactly_the_files_of_the_folder() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("ui");
        let entries = std::fs::read_dir(folder).expect("the folder is readable");
        let names = entries.map(|it| it.expect("the folder is readable").file_name());
        let found: BTreeSet<String> = names
            .map(|it| format!("/{}", it.to_string_lossy()))
            .collect();
        let others = ["/index.html", "/style.css", "/icon.svg"];
        let known = SCRIPTS.iter().map(|it| it.0).chain(others);
        assert_eq!(found, known.map(str::to_owned).collect());
        assert!(PAGE.len() < 120 << 10, "the page has {} bytes", PAGE.len());
        let lines = SCRIPTS.iter().flat_map(|it| it.1.lines());
        let lines = lines.map(str::trim);
        let code = lines.filter(|it| !it.is_empty() && !it.starts_with("//"));
        assert!(code.count() <= 1500, "the scripts have too many lines");
    }

    #[test]
    fn the_page_contains_all_scripts_in_their_order() {
        let page = with_data("{}");
        let starts: Vec<Option<usize>> = SCRIPTS.iter().map(|it| page.find(it.1)).collect();
        assert!(starts.iter().all(Option::is_some) && starts.is_sorted());
        assert!(!page.contains(" src=\"/") && !page.contains(" href=\"/"));
        let data = page.find("id=\"data\"");
        assert!(data < starts[0], "the data comes before the scripts");
    }
}
