//! Writes the kubeconfig with which kubectl connects to the demo.
//!
//! The file contains a credential, so its mode is 0600. The demo writes a temporary file, and
//! renames the complete file to its final path. When the demo ends, it removes the file. If a user
//! has edited the file, or another demo has replaced it, the file stays.

use super::users::DemoUser;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// Name of the cluster in the file.
const CLUSTER: &str = "ifo-demo";

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

/// Writes a kubeconfig. An existing file at `path` is replaced in one step. A symbolic link is replaced,
/// not followed.
pub fn write(path: &Path, content: String) -> io::Result<Written> {
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

/// Returns a kubeconfig for `server` (such as `https://127.0.0.1:6443`). The CA `ca_pem` has issued the
/// certificate of the server. The current context is that of the first user.
pub fn content(server: &str, ca_pem: &str, users: &[DemoUser]) -> String {
    let credentials = users
        .iter()
        .map(|user| json!({"name": user.name, "user": {"token": user.token}}));
    let contexts = users.iter().map(|user| {
        let namespace = user.namespace.unwrap_or("default");
        let context = json!({"cluster": CLUSTER, "user": user.name, "namespace": namespace});
        json!({"name": user.name, "context": context})
    });
    // JSON is valid YAML.
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": CLUSTER, "cluster": {
            "server": server, "certificate-authority-data": STANDARD.encode(ca_pem),
        }}],
        "users": credentials.collect::<Vec<_>>(),
        "contexts": contexts.collect::<Vec<_>>(),
        "current-context": users.first().map_or(CLUSTER, |user| user.name),
    });
    format!("{config:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    #[test]
    fn only_the_owner_may_read_the_file_and_a_symlink_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let (path, victim) = (folder.path().join("config"), folder.path().join("victim"));
        fs::write(&victim, "precious").unwrap();
        symlink(&victim, &path).unwrap();
        let _written = write(&path, "new".to_owned()).unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
        let metadata = fs::symlink_metadata(&path).unwrap();
        assert!(metadata.is_file());
        assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_file_that_cannot_be_replaced_is_an_error_without_leftovers() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        fs::create_dir(&path).unwrap();
        let error = write(&path, "new".to_owned()).map(|_| ());
        assert!(error.is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        for missing in [folder.path().join("missing/config"), "/".into()] {
            let written = write(&missing, "new".to_owned());
            let error = written.map(|_| ()).unwrap_err().to_string();
            assert!(error.contains(&missing.display().to_string()), "{error}");
        }
    }

    #[test]
    fn a_demo_removes_its_own_file_and_not_that_of_another_demo() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        let written = |content: &str| write(&path, content.to_owned()).unwrap();
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
}
