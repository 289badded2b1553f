//! Writes the kubeconfig with which kubectl connects to the demo.
//!
//! The file contains a credential, so its mode is 0600. The demo writes a temporary file, and
//! renames the complete file to its final path.
//!
//! When the demo ends, it removes the file. If a user has edited the file, or another demo has
//! replaced it, the file stays.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

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

/// The error if the kubeconfig cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum KubeconfigError {
    /// The path has no file name.
    #[error("the path {} has no file name", .0.display())]
    NoFileName(PathBuf),
    /// No file can be created in the folder.
    #[error("cannot create a file in {}: {source}", folder.display())]
    Create {
        /// The folder of the kubeconfig.
        folder: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The content cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The temporary file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The complete file cannot be renamed to its final path.
    #[error("cannot put the kubeconfig at {}: {source}", path.display())]
    Rename {
        /// The final path.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}

/// A kubeconfig on disk. Dropping this value removes the file, except if its content has changed
/// since this demo wrote it.
pub struct Written {
    path: PathBuf,
    content: String,
    /// The file, locked while the demo runs. [`is_in_use`] checks the lock.
    _file: File,
}

/// Prints the path without the content, which contains a credential.
impl fmt::Debug for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Written").field(&self.path).finish()
    }
}

impl Written {
    /// Returns true if the file still has the content that this demo has written. The type and the
    /// length of the file are compared first, so that a pipe or a huge file is not read.
    fn is_unchanged(&self) -> bool {
        fs::symlink_metadata(&self.path)
            .is_ok_and(|now| now.is_file() && now.len() == self.content.len() as u64)
            && fs::read_to_string(&self.path).is_ok_and(|now| now == self.content)
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        if self.is_unchanged() {
            // An error of the removal is ignored. If the file remains, its tokens are harmless,
            // because the server has stopped.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Returns true if a demo that is still running has written the file at `path`. A running demo
/// holds a lock on its file. The kernel releases the lock when the process ends.
pub fn is_in_use(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.is_file())
        && File::open(path)
            .is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
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
) -> Result<Written, KubeconfigError> {
    let name = path
        .file_name()
        .ok_or_else(|| KubeconfigError::NoFileName(path.to_owned()))?;
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    // The name of the temporary file is random, and `create_new` fails if the file exists. So this
    // function never opens a file that another user has placed in the folder.
    let mut temporary = std::ffi::OsString::from(".");
    temporary.push(name);
    temporary.push(format!(".{}", uuid::Uuid::new_v4().simple()));
    let temporary = folder.join(temporary);

    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&temporary)
        .map_err(|source| KubeconfigError::Create {
            folder: folder.to_owned(),
            source,
        })?;
    // On a file system without locks, `is_in_use` always returns false. Everything else works.
    let _ = file.try_lock();
    let content = render(server, ca_pem, users);
    let result = file
        .write_all(content.as_bytes())
        .and_then(|()| file.sync_all())
        .map_err(|source| KubeconfigError::Write {
            path: temporary.clone(),
            source,
        })
        .and_then(|()| {
            fs::rename(&temporary, path).map_err(|source| KubeconfigError::Rename {
                path: path.to_owned(),
                source,
            })
        });
    if result.is_err() {
        // An error of the removal is ignored, because `result` already has an error. If the file
        // remains, other users cannot read it, because its mode is 0600.
        let _ = fs::remove_file(&temporary);
    }
    result.map(|()| Written {
        path: path.to_owned(),
        content,
        _file: file,
    })
}

/// Formats the kubeconfig as YAML. The address, the CA and the tokens are quoted as in JSON, which
/// is valid YAML. So YAML does not parse a token such as `1e5` as a number.
fn render(server: &str, ca_pem: &str, users: &[KubeconfigUser]) -> String {
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let of_users =
        |render: &dyn Fn(&KubeconfigUser) -> String| users.iter().map(render).collect::<String>();
    let credentials = of_users(&|user| {
        let (name, token) = (user.context, quoted(&user.token));
        format!("- name: {name}\n  user:\n    token: {token}\n")
    });
    let contexts = of_users(&|user| {
        let (name, namespace) = (user.context, user.namespace.unwrap_or("default"));
        format!(
            "- name: {name}\n  context:\n    cluster: {CLUSTER}\n    user: {name}\n    \
             namespace: {namespace}\n"
        )
    });
    format!(
        "apiVersion: v1\n\
         kind: Config\n\
         clusters:\n\
         - name: {CLUSTER}\n\
         \x20 cluster:\n\
         \x20   server: {server}\n\
         \x20   certificate-authority-data: {ca}\n\
         users:\n\
         {credentials}\
         contexts:\n\
         {contexts}\
         current-context: {current}\n",
        server = quoted(server),
        ca = quoted(&STANDARD.encode(ca_pem)),
        current = users.first().map_or(CLUSTER, |user| user.context),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::config::Kubeconfig;
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
    fn kube_rs_reads_the_written_kubeconfig() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        let _written = write(&path, SERVER, "authority", &users()).unwrap();
        let config = Kubeconfig::read_from(&path).unwrap();
        assert_eq!(config.current_context.as_deref(), Some("admin"));
        let cluster = config.clusters[0].cluster.as_ref().unwrap();
        assert_eq!(cluster.server.as_deref(), Some(SERVER));
        let authority = STANDARD.encode("authority");
        assert_eq!(cluster.certificate_authority_data, Some(authority));
        let contexts = config.contexts.iter().zip(["admin", "viewer"]);
        for (context, name) in contexts {
            assert_eq!(context.name, name);
            let context = context.context.as_ref().unwrap();
            assert_eq!(context.user.as_deref(), Some(name));
            let namespace = if name == "viewer" {
                "team-a"
            } else {
                "default"
            };
            assert_eq!(context.namespace.as_deref(), Some(namespace));
        }
        assert_eq!(config.auth_infos.len(), 2);
    }

    #[test]
    fn a_numeric_token_stays_text() {
        let text = render(SERVER, "authority", &users());
        assert!(text.contains("token: \"1e5\"\n"), "{text}");
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
    fn a_reader_sees_the_old_file_or_the_new_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        let _written = write(&path, SERVER, "authority", &users()).unwrap();
        let whole = fs::read_to_string(&path).unwrap();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                // All values are kept, because dropping a value removes the file.
                let write = |_| write(&path, SERVER, "authority", &users()).unwrap();
                (0..50).map(write).collect::<Vec<_>>()
            });
            while !writer.is_finished() {
                assert_eq!(fs::read_to_string(&path).unwrap(), whole);
            }
        });
    }

    #[test]
    fn a_file_that_cannot_be_replaced_is_an_error_without_leftovers() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        fs::create_dir(&path).unwrap();
        let error = write(&path, SERVER, "authority", &users()).unwrap_err();
        assert!(matches!(error, KubeconfigError::Rename { .. }), "{error}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        let missing = folder.path().join("missing/config");
        let error = write(&missing, SERVER, "authority", &users()).unwrap_err();
        assert!(matches!(error, KubeconfigError::Create { .. }), "{error}");
        let error = write(Path::new("/"), SERVER, "authority", &users()).unwrap_err();
        assert!(matches!(error, KubeconfigError::NoFileName(_)), "{error}");
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
        assert!(!is_in_use(&path));
        let old = written("old");
        assert!(is_in_use(&path));
        let new = written("new");
        drop(old);
        assert!(fs::read_to_string(&path).unwrap().contains("new"));
        assert!(is_in_use(&path));
        drop(new);
        assert!(!path.exists());

        // A user has edited the file, so the demo does not remove it.
        let edited = written("edited");
        let mut text = fs::read_to_string(&path).unwrap();
        text.push_str("# mine\n");
        fs::write(&path, &text).unwrap();
        drop(edited);
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        assert!(
            !is_in_use(&path),
            "the lock must be released when the demo ends"
        );
    }

    #[test]
    fn debugging_a_user_shows_no_token() {
        assert!(!format!("{:?}", users()).contains("1e5"));
        let folder = tempfile::tempdir().unwrap();
        let written = write(&folder.path().join("config"), SERVER, "authority", &users());
        assert!(!format!("{written:?}").contains("1e5"));
    }
}
