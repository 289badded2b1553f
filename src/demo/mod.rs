//! The demo: everything but a cluster.
//!
//! In: a seed and a speed. Out: a [`Feed`](crate::observe::Feed) of objects that
//! change as they do in a cluster ([`Scenario`], [`World`]), a kubeconfig, and the
//! commands to try. The pipeline and the server behind it are the ones that run in a
//! cluster; nothing here knows what an operation is.

pub mod kinds;
pub mod kubeconfig;
pub mod namespaces;
mod random;
pub mod rules;
mod scenario;
mod shelf;
mod store;
mod time;

pub use scenario::{NAMESPACES, Scenario};
pub use shelf::Shelf;
pub use store::World;
pub use time::WorldTime;

use std::path::Path;

/// What to type to see the demo: a text of several lines, for a terminal.
/// `kubeconfig` is the file that [`kubeconfig::write`] wrote.
#[must_use]
pub fn commands(kubeconfig: &Path) -> String {
    let file = shell_word(&kubeconfig.to_string_lossy());
    format!(
        "The demo is running. In another terminal:\n\
         \n\
         \x20 export KUBECONFIG={file}\n\
         \n\
         \x20 kubectl get ifos -A -w              # every operation, as it starts, moves on and ends\n\
         \x20 kubectl get ifos -n team-a          # those of one namespace\n\
         \x20 kubectl get ifos -n ifo-system      # those of cluster-scoped objects\n\
         \x20 kubectl get ors                     # the rule sets that detect them\n\
         \x20 kubectl explain ifo.status          # what the fields mean\n\
         \x20 kubectl api-resources               # what this server serves\n\
         \n\
         Ctrl-C here ends it.\n"
    )
}

/// A word that a POSIX shell takes as it is: in single quotes where it must be.
fn shell_word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:@%,".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_name_the_kubeconfig_as_the_shell_takes_it() {
        let text = commands(Path::new("/home/me/demo.kubeconfig"));
        assert!(
            text.contains("export KUBECONFIG=/home/me/demo.kubeconfig\n"),
            "{text}"
        );
        let text = commands(Path::new("/home/me/it's $HOME"));
        assert!(
            text.contains(r"export KUBECONFIG='/home/me/it'\''s $HOME'"),
            "{text}"
        );
    }

    #[test]
    fn the_commands_that_the_documentation_promises_are_there() {
        let text = commands(Path::new("k"));
        for command in [
            "kubectl get ifos -A -w",
            "kubectl get ifos -n team-a",
            "kubectl get ors",
            "kubectl explain ifo.status",
            "kubectl api-resources",
        ] {
            assert!(text.contains(command), "{command}");
        }
    }
}
