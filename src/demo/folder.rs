//! Reads the objects or the rule sets of the demo from a folder of manifests (`demo --objects DIR` and
//! `demo --rules DIR`), and follows the changes of the files.

use super::folder_scan::Scanner;
use super::kinds::Kinds;
use super::objects::ObjectStore;
use super::world::World;
use std::io;
use std::path::Path;
use std::time::Duration;
use tokio::time::sleep;
use tracing::warn;

/// Time between two scans of the folder. A scan of unchanged files costs one `stat` for each file. The
/// notifications of the operating system are not used, because network file systems and some container
/// mounts send none.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Reads the manifests (`.yaml`, `.yml`, `.json`) in `dir` and in the folders below it into a store. The
/// store also contains the Namespaces of the objects, and `namespaces`.
///
/// Also returns a future that follows the changes of the files and never ends. The caller must run this
/// future as a task. If a file cannot be decoded, the scan logs the error and keeps the previous objects
/// of the file.
///
/// # Errors
///
/// The folder cannot be read, has too many files, or its files are too large in total.
pub async fn open(
    dir: &Path,
    namespaces: &[&str],
) -> io::Result<(ObjectStore, impl Future<Output = ()> + Send + 'static)> {
    let namespaces: Vec<String> = namespaces.iter().map(ToString::to_string).collect();
    let (mut scanner, first) = scan(Scanner::new(dir)).await;
    let store = ObjectStore::new(Kinds::default());
    let publish = {
        let store = store.clone();
        move |mut world: World| {
            world.add_namespaces(&namespaces);
            store.replace(world);
        }
    };
    publish(first.map_err(io::Error::other)?.unwrap_or_default());
    let follow = async move {
        let mut has_failed = false;
        loop {
            sleep(POLL_INTERVAL).await;
            let (back, result) = scan(scanner).await;
            scanner = back;
            // If several scans in a row fail, only the first failure is logged.
            let failed_before = std::mem::replace(&mut has_failed, result.is_err());
            match result {
                Ok(world) => world.into_iter().for_each(&publish),
                Err(why) if !failed_before => {
                    warn!("{why}; the objects of the folder are unchanged");
                }
                Err(_) => {}
            }
        }
    };
    Ok((store, follow))
}

/// Scans the folder on a thread for blocking work. Returns the scanner for the next scan, and the
/// result of [`Scanner::scan`].
async fn scan(mut scanner: Scanner) -> (Scanner, Result<Option<World>, String>) {
    tokio::task::spawn_blocking(move || {
        let result = scanner.scan();
        (scanner, result)
    })
    .await
    .expect("scanning a folder does not panic and is not cancelled")
}

#[cfg(test)]
#[path = "folder_tests.rs"]
mod tests;
