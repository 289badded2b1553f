//! Writes the files of a support bundle to an archive or to a folder. Only the user who runs the
//! command may read these files.

use crate::output::create_private;
use crate::problem::Problem;
use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::Timestamp;
use std::fs::DirBuilder;
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

/// Where the bundle is written.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BundleOutput {
    pub(super) path: PathBuf,
    /// True for a folder, which is empty or does not exist. False for a new archive.
    is_folder: bool,
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
        let time = now.strftime("%Y%m%d-%H%M%S");
        let default = || PathBuf::from(format!("ifo-support-bundle-{time}.tar.gz"));
        let path = path.map_or_else(default, Path::to_owned);
        let is_folder = path.is_dir() || path.to_string_lossy().ends_with('/');
        let mut entries = path.read_dir().into_iter().flatten();
        let why = if is_folder && entries.next().is_some() {
            "the folder is not empty"
        } else if !is_folder && path.exists() {
            "the file already exists"
        } else {
            return Ok(Self { path, is_folder });
        };
        let name = path.display();
        Err(Problem::Usage(format!("--output {name}: {why}")))
    }

    /// Writes all files.
    pub(super) fn write(&self, files: &[BundleFile], now: Timestamp) -> Result<(), Problem> {
        let written = if self.is_folder {
            write_folder(&self.path, files)
        } else {
            write_archive(&self.path, files, now)
        };
        let name = self.path.display();
        written.map_err(|error| Problem::Other(format!("cannot write {name}: {error}")))
    }
}

fn write_archive(path: &Path, files: &[BundleFile], now: Timestamp) -> io::Result<()> {
    let mut archive = tar::Builder::new(GzEncoder::new(
        create_private(path)?,
        Compression::default(),
    ));
    // All files are in one folder, so that unpacking does not fill the current folder.
    let folder = format!("ifo-support-bundle-{}", now.strftime("%Y%m%d-%H%M%S"));
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

fn write_folder(folder: &Path, files: &[BundleFile]) -> io::Result<()> {
    let create_folder = |path: &Path| DirBuilder::new().recursive(true).mode(0o700).create(path);
    create_folder(folder)?;
    for file in files {
        let path = folder.join(&file.path);
        create_folder(path.parent().unwrap_or(folder))?;
        create_private(&path)?.write_all(&file.bytes)?;
    }
    Ok(())
}
