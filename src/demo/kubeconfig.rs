//! Writes the kubeconfig with which kubectl connects to the demo.
//!
//! The file contains a credential, so its mode is 0600. The demo writes a temporary file, and
//! renames the complete file to its final path. When the demo ends, it removes the file. If a user
//! has edited the file, or another demo has replaced it, the file stays.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// Name of the cluster in the file.
const CLUSTER: &str = "ifo-demo";

/// A user of the demo. The kubeconfig has a context with the name of each user.
pub struct KubeconfigUser {
    /// Name of the user and the context.
    pub context: &'static str,
    /// Default namespace of the context. `None` means `default`.
    pub namespace: Option<&'static str>,
    /// Bearer token of the user.
    pub token: String,
}

/// Prints the user without the token.
impl fmt::Debug for KubeconfigUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KubeconfigUser")
            .field("context", &self.context)
            .finish_non_exhaustive()
    }
}

/// A kubeconfig on disk. Dropping this value removes the file, except if its content has changed
/// since this demo wrote it.
pub struct Written {
    path: PathBuf,
    content: String,
}

impl Drop for Written {
    fn drop(&mut self) {
        if fs::read_to_string(&self.path).is_ok_and(|now| now == self.content) {
            // An error of the removal is ignored. If the file remains, its tokens are harmless,
            // because the server has stopped.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Writes a kubeconfig for `server` (such as `https://127.0.0.1:6443`). The CA `ca_pem` has issued
/// the certificate of the server.
///
/// The current context is that of the first user. An existing file at `path` is replaced in one
/// step. A symbolic link is replaced, not followed.
pub fn write(
    path: &Path,
    server: &str,
    ca_pem: &str,
    users: &[KubeconfigUser],
) -> io::Result<Written> {
    let content = format!("{:#}\n", kubeconfig(server, ca_pem, users));
    let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
    let result = NamedTempFile::new_in(folder.unwrap_or(Path::new("."))).and_then(|mut file| {
        file.write_all(content.as_bytes())?;
        Ok(file.persist(path)?)
    });
    result.map_err(|error| {
        let path = path.display();
        io::Error::other(format!("cannot write the kubeconfig {path}: {error}"))
    })?;
    Ok(Written {
        path: path.to_owned(),
        content,
    })
}

/// Returns the kubeconfig. The file contains it as JSON, which is valid YAML.
fn kubeconfig(server: &str, ca_pem: &str, users: &[KubeconfigUser]) -> Value {
    let credentials = users
        .iter()
        .map(|user| json!({"name": user.context, "user": {"token": user.token}}));
    let contexts = users.iter().map(|user| {
        let namespace = user.namespace.unwrap_or("default");
        let context = json!({"cluster": CLUSTER, "user": user.context, "namespace": namespace});
        json!({"name": user.context, "context": context})
    });
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": CLUSTER, "cluster": {
            "server": server, "certificate-authority-data": STANDARD.encode(ca_pem),
        }}],
        "users": credentials.collect::<Vec<_>>(),
        "contexts": contexts.collect::<Vec<_>>(),
        "current-context": users.first().map_or(CLUSTER, |user| user.context),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    const SERVER: &str = "https://127.0.0.1:6443";

    fn users() -> [KubeconfigUser; 2] {
        let user = |context, namespace, token: &str| KubeconfigUser {
            context,
            namespace,
            token: token.to_owned(),
        };
        [
            user("admin", None, "1e5"),
            user("viewer", Some("team-a"), "2e5"),
        ]
    }

    #[test]
    fn the_kubeconfig_is_readable_by_its_owner_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        // Every user can read the existing file. `write` must replace this file, because an
        // overwritten file would keep its mode.
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        let _written = write(&path, SERVER, "authority", &users()).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_symlink_is_replaced_and_its_target_is_unchanged() {
        let folder = tempfile::tempdir().unwrap();
        let (path, victim) = (folder.path().join("config"), folder.path().join("victim"));
        fs::write(&victim, "precious").unwrap();
        symlink(&victim, &path).unwrap();
        let _written = write(&path, SERVER, "authority", &users()).unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
        assert!(fs::symlink_metadata(&path).unwrap().is_file());
    }

    #[test]
    fn a_file_that_cannot_be_replaced_is_an_error_without_leftovers() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        fs::create_dir(&path).unwrap();
        let error = write(&path, SERVER, "authority", &users()).map(|_| ());
        assert!(error.is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        for missing in [folder.path().join("missing/config"), "/".into()] {
            let written = write(&missing, SERVER, "authority", &users());
            let error = written.map(|_| ()).unwrap_err().to_string();
            assert!(error.contains(&missing.display().to_string()), "{error}");
        }
    }

    #[test]
    fn a_demo_removes_its_own_file_and_not_that_of_another_demo() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        let written = |token: &str| {
            let mut users = users();
            token.clone_into(&mut users[0].token);
            write(&path, SERVER, "authority", &users).unwrap()
        };
        let old = written("old");
        let new = written("new");
        drop(old);
        assert!(fs::read_to_string(&path).unwrap().contains("new"));
        drop(new);
        assert!(!path.exists());

        // A user has edited the file, so the demo does not remove it.
        let edited = written("edited");
        let mut text = fs::read_to_string(&path).unwrap();
        text.push_str("# mine\n");
        fs::write(&path, &text).unwrap();
        drop(edited);
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }

    #[test]
    fn debugging_a_user_shows_no_token() {
        assert!(!format!("{:?}", users()).contains("1e5"));
    }
}
