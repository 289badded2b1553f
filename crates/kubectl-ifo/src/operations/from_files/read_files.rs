//! Reads files of the user: a folder, an archive (tar, also compressed with gzip), one file, or
//! standard input.
//!
//! A must-gather (the output of `oc adm must-gather`) can have gigabytes of files. So the caller
//! decides which files of a folder or an archive are kept. A single file is always kept.

use flate2::read::MultiGzDecoder;
use ifo_client::manifest::{self, MemoryBudget};
use jiff::Timestamp;
use serde_json::Value;
use std::fs::{DirEntry, File};
use std::io::{self, BufReader, Read};
use std::path::Path;
use tar::{Archive, Entry, EntryType, PaxExtensions};

/// Largest size of one decompressed file in bytes. A larger file is an error. A list of 50,000
/// operations has about 100 MB.
const MAX_FILE_BYTES: u64 = 256 * 1024 * 1024;

/// Largest size of all kept files together, in bytes. If the files are larger, the command fails.
const MAX_TOTAL_BYTES: usize = 1024 * 1024 * 1024;

/// Memory of a kept file in addition to its path and its content, in bytes.
const FILE_BYTES: usize = 128;

/// Largest depth of nested folders. A deeper folder is an error. The files of a must-gather are up
/// to ten levels deep.
const MAX_DEPTH: usize = 32;

/// Largest number of entries in an archive. If there are more, the command fails. A must-gather of
/// a large cluster has about 100,000 files.
const MAX_ENTRIES: usize = 1_000_000;

/// Largest size of the decompressed archive in bytes. If the archive is larger, the command fails.
/// A must-gather of a large cluster has some gigabytes.
const MAX_ARCHIVE_BYTES: u64 = 32 << 30;

/// Largest size of an extended header in bytes: a GNU long name, or the fields of pax. If a header
/// is larger, the command fails. On Linux, a path has at most 4 KiB.
const MAX_EXTENDED_HEADER_BYTES: u64 = 64 << 10;

/// The magic number of a tar archive: its offset in bytes, and its text.
const TAR_MAGIC: (usize, &[u8]) = (257, b"ustar");

/// Number of bytes at the beginning of a file that are enough to recognize gzip and tar.
const HEAD_BYTES: u64 = 262;

/// The magic number of gzip.
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// A file, with its decompressed bytes.
#[derive(Debug)]
pub(crate) struct FoundFile {
    /// Path relative to the folder or archive that the user has named. For a single file, this is
    /// the path that the user has given.
    pub(crate) path: String,
    /// The bytes of the file.
    pub(super) bytes: Vec<u8>,
    /// Time of the last change. None if it is unknown.
    pub(super) modified: Option<Timestamp>,
}

impl FoundFile {
    /// Parses the YAML or JSON documents in the file. If the file has an error, also returns the
    /// documents before it.
    pub(crate) fn documents(&self, budget: &mut MemoryBudget) -> (Vec<Value>, Result<(), String>) {
        manifest::documents_before_error(&self.bytes, budget)
    }
}

/// Reads the files at `path`, in the order of their paths. The path `-` is standard input. In a
/// folder or an archive, only files with the extensions of JSON and YAML are read. `is_relevant`
/// gets the path and the content of such a file, and decides whether the file is kept.
pub(crate) fn read(path: &Path, is_relevant: fn(&str, &[u8]) -> bool) -> io::Result<FoundFiles> {
    let mut found = FoundFiles {
        files: Vec::new(),
        errors: Vec::new(),
        total_bytes: 0,
        is_relevant,
    };
    if path.as_os_str() != "-" && path.is_dir() {
        found.add_folder(path, "", 0)?;
    } else {
        let (stream, modified) = open(path)?;
        found.add_stream(&path.display().to_string(), stream, modified)?;
    }
    Ok(found)
}

/// Reads a file as text. The path `-` is standard input.
pub(crate) fn text(path: &Path) -> io::Result<String> {
    let bytes = read_limited(&path.display().to_string(), open(path)?.0)?;
    String::from_utf8(bytes).map_err(io::Error::other)
}

/// Opens a file or standard input. Also returns the time of the last change of the file.
fn open(path: &Path) -> io::Result<(Box<dyn Read>, Option<Timestamp>)> {
    if path.as_os_str() == "-" {
        return Ok((Box::new(io::stdin().lock()), None));
    }
    let file = File::open(path)?;
    let modified = file.metadata().and_then(|it| it.modified()).ok();
    let modified = modified.and_then(|it| Timestamp::try_from(it).ok());
    Ok((Box::new(BufReader::new(file)), modified))
}

/// Reads a whole stream, which can be endless. Returns an error if it is longer than
/// [`MAX_FILE_BYTES`]. `path` is the name in this error.
fn read_limited(path: &str, stream: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    stream.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        let limit = MAX_FILE_BYTES >> 20;
        let why = format!("the file {path} is larger than {limit} MiB");
        return Err(io::Error::other(why));
    }
    Ok(bytes)
}

/// Returns the first [`HEAD_BYTES`] bytes of a stream, and the whole stream.
fn with_head(mut stream: impl Read) -> io::Result<(Vec<u8>, impl Read)> {
    let mut head = Vec::new();
    stream.by_ref().take(HEAD_BYTES).read_to_end(&mut head)?;
    Ok((head.clone(), io::Cursor::new(head).chain(stream)))
}

/// The files that were kept so far.
pub(crate) struct FoundFiles {
    pub(crate) files: Vec<FoundFile>,
    /// The relative paths of the files and folders that cannot be read, and the errors.
    pub(crate) errors: Vec<(String, io::Error)>,
    /// Size of all kept files in bytes.
    total_bytes: usize,
    is_relevant: fn(&str, &[u8]) -> bool,
}

impl FoundFiles {
    fn add_folder(&mut self, folder: &Path, prefix: &str, depth: usize) -> io::Result<()> {
        let entries = match entries_of(folder, depth) {
            Ok(entries) => entries,
            Err(error) => {
                self.errors.push((prefix.to_owned(), error));
                return Ok(());
            }
        };
        for entry in entries {
            let path = format!("{prefix}{}", entry.file_name().to_string_lossy());
            // Links to folders are skipped, because they can form a cycle. Named pipes and devices
            // are skipped, because reading them could take forever.
            if entry.file_type().is_ok_and(|it| it.is_dir()) {
                self.add_folder(&entry.path(), &format!("{path}/"), depth + 1)?;
            } else if is_candidate(&path) && entry.path().is_file() {
                let read = |(file, modified)| Ok((read_limited(&path, file)?, modified));
                match open(&entry.path()).and_then(read) {
                    Ok((bytes, modified)) => self.add(path, bytes, modified)?,
                    Err(error) => self.errors.push((path, error)),
                }
            }
        }
        Ok(())
    }

    /// Adds a file. If the file is compressed, adds the decompressed bytes. If the file is an
    /// archive, adds the relevant files in the archive.
    fn add_stream(
        &mut self,
        name: &str,
        stream: impl Read,
        modified: Option<Timestamp>,
    ) -> io::Result<()> {
        let (head, whole) = with_head(stream)?;
        let content: Box<dyn Read + '_> = if head.starts_with(&GZIP_MAGIC) {
            Box::new(MultiGzDecoder::new(whole))
        } else {
            Box::new(whole)
        };
        let (head, whole) = with_head(content)?;
        let (offset, magic) = TAR_MAGIC;
        if head.get(offset..) == Some(magic) {
            return self.add_archive(whole);
        }
        self.is_relevant = |_, _| true;
        self.add(name.to_owned(), read_limited(name, whole)?, modified)
    }

    fn add_archive(&mut self, stream: impl Read) -> io::Result<()> {
        let mut archive = Archive::new(stream.take(MAX_ARCHIVE_BYTES));
        let mut long_name = None;
        // The entries are raw, because otherwise the crate reads names of any length into memory.
        for (number, entry) in archive.entries()?.raw(true).enumerate() {
            if number >= MAX_ENTRIES {
                let why = format!("the archive has more than {MAX_ENTRIES} entries");
                return Err(io::Error::other(why));
            }
            let mut entry = entry?;
            let kind = entry.header().entry_type();
            if matches!(kind, EntryType::GNULongName | EntryType::XHeader) {
                long_name = name_in(&mut entry)?;
                continue;
            }
            let own_name = || String::from_utf8_lossy(&entry.path_bytes()).into_owned();
            let path = long_name.take().unwrap_or_else(own_name);
            if !kind.is_file() || !is_candidate(&path) {
                continue;
            }
            let seconds = entry.header().mtime().ok();
            let seconds = seconds.and_then(|it| i64::try_from(it).ok());
            let modified = seconds.and_then(|it| Timestamp::from_second(it).ok());
            let bytes = content_of(&path, &mut entry)?;
            self.add(path, bytes, modified)?;
        }
        Ok(())
    }

    fn add(&mut self, path: String, bytes: Vec<u8>, modified: Option<Timestamp>) -> io::Result<()> {
        if !(self.is_relevant)(&path, &bytes) {
            return Ok(());
        }
        self.total_bytes += bytes.len() + path.len() + FILE_BYTES;
        if self.total_bytes > MAX_TOTAL_BYTES {
            let limit = MAX_TOTAL_BYTES >> 20;
            let why = format!("all relevant files together are larger than {limit} MiB");
            return Err(io::Error::other(why));
        }
        self.files.push(FoundFile {
            path,
            bytes,
            modified,
        });
        Ok(())
    }
}

/// Returns the entries of a folder, sorted by name.
fn entries_of(folder: &Path, depth: usize) -> io::Result<Vec<DirEntry>> {
    if depth > MAX_DEPTH {
        let why = format!("more than {MAX_DEPTH} nested folders");
        return Err(io::Error::other(why));
    }
    let mut entries: Vec<_> = std::fs::read_dir(folder)?.collect::<Result<_, _>>()?;
    entries.sort_by_key(DirEntry::file_name);
    Ok(entries)
}

/// Reads the content of an entry.
fn content_of(path: &str, entry: &mut Entry<'_, impl Read>) -> io::Result<Vec<u8>> {
    let bytes = read_limited(path, &mut *entry)?;
    if (bytes.len() as u64) < entry.size() {
        return Err(io::Error::other("the archive ends within an entry"));
    }
    Ok(bytes)
}

/// Returns the name of the next entry, which a GNU long name or the fields of pax contain.
fn name_in(entry: &mut Entry<'_, impl Read>) -> io::Result<Option<String>> {
    if entry.size() > MAX_EXTENDED_HEADER_BYTES {
        return Err(io::Error::other(format!(
            "the name or an extended header of an entry is larger than {} KiB",
            MAX_EXTENDED_HEADER_BYTES >> 10
        )));
    }
    let bytes = content_of("", entry)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if entry.header().entry_type() == EntryType::GNULongName {
        // The name ends with a NUL.
        return Ok(bytes.split(|byte| *byte == 0).next().map(text));
    }
    let mut fields = PaxExtensions::new(&bytes).filter_map(Result::ok);
    let path = fields.find(|field| field.key_bytes() == b"path");
    Ok(path.map(|field| text(field.value_bytes())))
}

/// Returns the name of a file without its folder.
pub(super) fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

/// Returns true if a file with this name can contain data that a command needs. Files with other
/// names are not read.
fn is_candidate(path: &str) -> bool {
    let name = base_name(path);
    let extensions = [".json", ".yaml", ".yml"];
    extensions.iter().any(|it| name.ends_with(it))
}
