//! Writes the files of a support bundle to an archive or to a folder. Only the user who runs the
//! command may read these files.

use super::super::problem::Problem;
use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::Timestamp;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Where the bundle is written.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BundleOutput {
    /// A new archive.
    Archive(PathBuf),
    /// A folder, which is empty or does not exist.
    Folder(PathBuf),
}

/// A file of the bundle.
#[derive(Debug)]
pub(super) struct BundleFile {
    pub(super) path: String,
    pub(super) bytes: Vec<u8>,
}

impl BundleOutput {
    /// Chooses the output. If the path ends with a slash, or if it is an existing folder, the
    /// output is a folder. Otherwise, the output is an archive.
    pub(super) fn choose(path: Option<&Path>, now: Timestamp) -> Result<Self, Problem> {
        let Some(path) = path else {
            let time = now.strftime("%Y%m%d-%H%M%S");
            return Self::archive(PathBuf::from(format!("ifo-support-bundle-{time}.tar.gz")));
        };
        let is_folder = path.is_dir() || path.to_string_lossy().ends_with('/');
        if !is_folder {
            return Self::archive(path.to_owned());
        }
        let is_used = path
            .read_dir()
            .is_ok_and(|mut entries| entries.next().is_some());
        if is_used {
            return Err(Problem::Usage(format!(
                "--output {}: the folder is not empty",
                path.display()
            )));
        }
        Ok(Self::Folder(path.to_owned()))
    }

    fn archive(path: PathBuf) -> Result<Self, Problem> {
        if path.exists() {
            let name = path.display();
            return Err(Problem::Usage(format!(
                "--output {name}: the file already exists"
            )));
        }
        Ok(Self::Archive(path))
    }

    /// Returns the path of the archive or folder.
    pub(super) fn path(&self) -> &Path {
        match self {
            Self::Archive(path) | Self::Folder(path) => path,
        }
    }

    /// Writes all files.
    pub(super) fn write(&self, files: &[BundleFile], now: Timestamp) -> Result<(), Problem> {
        let written = match self {
            Self::Archive(path) => write_archive(path, files, now),
            Self::Folder(path) => write_folder(path, files),
        };
        let name = self.path().display();
        written.map_err(|error| Problem::Other(format!("cannot write {name}: {error}")))
    }
}

fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
}

fn write_archive(path: &Path, files: &[BundleFile], now: Timestamp) -> io::Result<()> {
    let mut archive = tar::Builder::new(GzEncoder::new(create(path)?, Compression::default()));
    // All files are in one folder, so that unpacking does not fill the current folder.
    let folder = base_of(path);
    for file in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(file.bytes.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(u64::try_from(now.as_second()).unwrap_or_default());
        let path = format!("{folder}/{}", file.path);
        archive.append_data(&mut header, path, file.bytes.as_slice())?;
    }
    archive.into_inner()?.finish()?.flush()
}

/// Returns the name of an archive without its folder and extension.
fn base_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name = name.strip_suffix(".gz").unwrap_or(&name);
    let name = [".tar", ".tgz"]
        .iter()
        .find_map(|it| name.strip_suffix(it))
        .unwrap_or(name);
    if name.trim_matches('.').is_empty() {
        "ifo-support-bundle"
    } else {
        name
    }
    .to_owned()
}

fn write_folder(folder: &Path, files: &[BundleFile]) -> io::Result<()> {
    let create_folder = |path: &Path| DirBuilder::new().recursive(true).mode(0o700).create(path);
    create_folder(folder)?;
    for file in files {
        let path = folder.join(&file.path);
        create_folder(path.parent().unwrap_or(folder))?;
        create(&path)?.write_all(&file.bytes)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_overwritten() {
        let folder = tempfile::tempdir().expect("a temporary folder can be created");
        let now = Timestamp::UNIX_EPOCH;
        let choose = |path: &Path| BundleOutput::choose(Some(path), now);
        let new = folder.path().join("new.tar.gz");
        assert_eq!(choose(&new), Ok(BundleOutput::Archive(new.clone())));
        let empty = folder.path().to_owned();
        assert_eq!(choose(&empty), Ok(BundleOutput::Folder(empty.clone())));
        let missing = folder.path().join("missing/");
        assert_eq!(choose(&missing), Ok(BundleOutput::Folder(missing.clone())));
        std::fs::write(&new, "").expect("the folder is writable");
        assert!(choose(&new).is_err() && choose(&empty).is_err());
        let default = BundleOutput::choose(None, now).expect("no such file exists");
        assert_eq!(
            default.path(),
            Path::new("ifo-support-bundle-19700101-000000.tar.gz")
        );
    }

    #[test]
    fn the_folder_in_an_archive_has_the_name_of_the_archive() {
        for (path, folder) in [
            ("a/b.tar.gz", "b"),
            ("b.tgz", "b"),
            ("b", "b"),
            (".tar.gz", "ifo-support-bundle"),
        ] {
            assert_eq!(base_of(Path::new(path)), folder, "{path}");
        }
    }
}
