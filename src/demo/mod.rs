//! The demo: a server without a cluster, whose objects change as in a cluster.
//!
//! The objects come from the scenes ([`scene`]), which are recordings of real controllers and a few
//! hand-written files, or from a [`folder`] of manifests. The [`ObjectStore`] is a
//! [`Feed`](ifo_observe::Feed) of these objects for detection, and [`object_server`] serves them. The
//! module also writes a kubeconfig, and returns an introduction with commands to try.
//!
//! The code that detects and serves operations is in other modules. The server runs the same code
//! in a cluster.

pub mod access_reviews;
mod columns;
mod evictions;
pub mod folder;
pub mod kinds;
pub mod kubeconfig;
mod model;
pub mod object_server;
mod objects;
pub mod scene;
pub mod shipped_rules;
pub mod users;
mod world;

pub use objects::ObjectStore;

use std::path::Path;

/// Returns the names and the texts of the files that the build script has put into one file.
fn embedded(file: &[u8]) -> Vec<(String, String)> {
    let text = lz4_flex::block::decompress_size_prepended(file);
    let text = text.expect("the build script has compressed the file");
    let text = String::from_utf8(text).expect("the build script has compressed a text");
    let files = text.split('\u{1}').filter_map(|file| file.split_once('\n'));
    files
        .map(|(name, text)| (name.to_owned(), text.to_owned()))
        .collect()
}

/// Returns the introduction that the demo prints, with commands to try.
///
/// - `kubeconfig` is the file that [`kubeconfig::write`] has written.
/// - `viewer` is the context of the user who may read one namespace, and the name of the namespace.
/// - `objects` is the folder of manifests that replaces the scenes, or `None` for the scenes. The
///   server does not serve the objects in a folder, so there is no command that lists them. Such
///   objects are usually in other namespaces, so there are no commands for the viewer.
#[must_use]
pub fn commands(kubeconfig: &Path, viewer: (&str, &str), objects: Option<&Path>) -> String {
    let source = match objects {
        Some(folder) => format!("The server reads the objects in {}.", folder.display()),
        None => "It plays recordings of real controllers in a loop.".to_owned(),
    };
    // A line that begins with `+` is printed only if the demo plays the scenes.
    let lines = include_str!("commands.txt").lines();
    let lines = lines.filter(|line| objects.is_none() || !line.starts_with('+'));
    let lines = lines.map(|line| format!("{}\n", line.trim_start_matches('+')));
    lines
        .collect::<String>()
        .replace("{source}", &source)
        .replace("{kubeconfig}", &shell_word(&kubeconfig.to_string_lossy()))
        .replace("{context}", viewer.0)
        .replace("{namespace}", viewer.1)
}

/// Quotes a word for a POSIX shell, if necessary.
fn shell_word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:@%,".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod documentation_tests;

#[cfg(test)]
mod tests {
    use super::*;

    const VIEWER: (&str, &str) = ("ifo-demo-team-a", "team-a");

    #[test]
    fn the_printed_commands_quote_the_kubeconfig_for_the_shell() {
        let text = commands(Path::new("/home/me/demo.kubeconfig"), VIEWER, None);
        assert!(!text.contains(['{', '+']), "{text}");
        assert!(
            text.contains("export KUBECONFIG=/home/me/demo.kubeconfig\n"),
            "{text}"
        );
        let text = commands(Path::new("/home/me/it's $HOME"), VIEWER, None);
        assert!(
            text.contains(r"export KUBECONFIG='/home/me/it'\''s $HOME'"),
            "{text}"
        );
    }

    #[test]
    fn the_commands_for_a_folder_name_neither_objects_nor_namespaces_of_the_scenes() {
        let text = commands(Path::new("k"), VIEWER, Some(Path::new("dump")));
        assert!(text.contains("reads the objects in dump"), "{text}");
        assert!(text.contains("kubectl get ifos -A -w"), "{text}");
        for of_scenes in ["kubectl get vm,dv,deploy", "team-a"] {
            assert!(commands(Path::new("k"), VIEWER, None).contains(of_scenes));
            assert!(!text.contains(of_scenes), "{text}");
        }
    }
}
