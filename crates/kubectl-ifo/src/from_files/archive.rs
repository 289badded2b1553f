//! Reads the files in a tar archive. Limits the memory and the time that a malicious archive can
//! cost the plugin. The crate `tar` decodes each header. The reader of the crate is not used,
//! because it reads names of any length into memory.

use std::io::{self, Read};
use tar::{EntryType, Header, PaxExtensions};

/// Largest number of entries in an archive. If there are more, the command fails. A must-gather of
/// a large cluster has about 100,000 files.
const MAX_ENTRIES: usize = 1_000_000;

/// Largest size of the decompressed archive in bytes. If the archive is larger, the command fails.
/// A must-gather of a large cluster has some gigabytes.
const MAX_ARCHIVE_BYTES: u64 = 32 << 30;

/// Largest size of an extended header in bytes: a GNU long name, or the fields of pax. If one is
/// larger, the command fails. On Linux, a path has at most 4 KiB.
const MAX_EXTENDED_HEADER_BYTES: u64 = 64 << 10;

/// Size of a block in bytes. A header has one block. The content of an entry is padded to blocks.
const BLOCK: u64 = 512;

/// A tar archive that is read from its beginning to its end.
pub(super) struct Archive<R> {
    stream: io::Take<R>,
    /// Number of headers that have been read.
    headers: usize,
    /// Bytes of the current entry that have not been read, including the padding.
    unread: u64,
}

/// A file in the archive.
pub(super) struct ArchivedFile {
    pub(super) path: String,
    /// Size of the content in bytes.
    pub(super) size: u64,
    /// Time of the last change, in seconds since 1970.
    pub(super) modified: Option<u64>,
}

/// Values from extended headers. They replace the values in the next header.
#[derive(Default)]
struct ExtendedHeader {
    path: Option<Vec<u8>>,
    size: Option<u64>,
}

impl<R: Read> Archive<R> {
    pub(super) fn new(stream: R) -> Self {
        Self {
            stream: stream.take(MAX_ARCHIVE_BYTES),
            headers: 0,
            unread: 0,
        }
    }

    /// Moves to the next regular file. Skips the content of the current file, and all other
    /// entries. Returns None at the end of the archive.
    pub(super) fn next_file(&mut self) -> io::Result<Option<ArchivedFile>> {
        let mut extended = ExtendedHeader::default();
        loop {
            let Some(header) = self.next_header()? else {
                return Ok(None);
            };
            let size = header.entry_size()?;
            self.unread = padded(size)?;
            match header.entry_type() {
                EntryType::GNULongName => {
                    let name = self.read_extended_header(size)?;
                    // The name ends with a NUL.
                    extended.path = name.split(|byte| *byte == 0).next().map(<[u8]>::to_vec);
                }
                EntryType::XHeader => extended = pax_fields(&self.read_extended_header(size)?)?,
                EntryType::GNULongLink => {}
                EntryType::GNUSparse => {
                    self.skip_sparse_maps(&header)?;
                    extended = ExtendedHeader::default();
                }
                kind => {
                    let ExtendedHeader { path, size: longer } = std::mem::take(&mut extended);
                    let size = longer.unwrap_or(size);
                    self.unread = padded(size)?;
                    if kind.is_file() {
                        let path = path.unwrap_or_else(|| header.path_bytes().into_owned());
                        return Ok(Some(ArchivedFile {
                            path: String::from_utf8_lossy(&path).into_owned(),
                            size,
                            modified: header.mtime().ok(),
                        }));
                    }
                }
            }
        }
    }

    /// Reads the content of the current file, which has `size` bytes. The caller limits the size.
    pub(super) fn read_content(&mut self, size: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.stream.by_ref().take(size).read_to_end(&mut bytes)?;
        if (bytes.len() as u64) < size {
            return Err(self.ended_early());
        }
        self.unread -= size;
        Ok(bytes)
    }

    /// Reads the next header. Returns None at the end of the archive: a block of zeros, or the end
    /// of the stream.
    fn next_header(&mut self) -> io::Result<Option<Header>> {
        let skipped = io::copy(&mut self.stream.by_ref().take(self.unread), &mut io::sink())?;
        if skipped < self.unread {
            return Err(self.ended_early());
        }
        self.headers += 1;
        if self.headers > MAX_ENTRIES {
            let why = format!("the archive has more than {MAX_ENTRIES} entries");
            return Err(io::Error::other(why));
        }
        let mut block = Vec::new();
        self.stream.by_ref().take(BLOCK).read_to_end(&mut block)?;
        let is_cut_off = (block.len() as u64) < BLOCK;
        if is_cut_off && (!block.is_empty() || self.stream.limit() == 0) {
            return Err(self.ended_early());
        }
        if block.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let mut header = Header::new_old();
        header.as_mut_bytes().copy_from_slice(&block);
        let stated = header.cksum()?;
        header.set_cksum();
        if header.cksum()? != stated {
            return Err(io::Error::other("the archive has a damaged header"));
        }
        Ok(Some(header))
    }

    /// Reads a GNU long name, or the fields of pax.
    fn read_extended_header(&mut self, size: u64) -> io::Result<Vec<u8>> {
        if size > MAX_EXTENDED_HEADER_BYTES {
            return Err(io::Error::other(format!(
                "the name or an extended header of an entry is larger than {} KiB",
                MAX_EXTENDED_HEADER_BYTES >> 10
            )));
        }
        self.read_content(size)
    }

    /// Skips the maps of a sparse file. They are between the header and the content.
    fn skip_sparse_maps(&mut self, header: &Header) -> io::Result<()> {
        let content = self.unread;
        let mut has_more = header.as_gnu().is_some_and(|gnu| gnu.isextended[0] == 1);
        while has_more {
            self.unread = BLOCK;
            let map = self.read_content(BLOCK)?;
            // The byte after the 21 parts of a map states whether another map follows.
            has_more = map[504] == 1;
        }
        self.unread = content;
        Ok(())
    }

    /// Returns the error for an archive that ends within an entry.
    fn ended_early(&self) -> io::Error {
        if self.stream.limit() == 0 {
            let limit = MAX_ARCHIVE_BYTES >> 30;
            return io::Error::other(format!("the archive is larger than {limit} GiB"));
        }
        io::Error::other("the archive ends within an entry")
    }
}

/// Returns the size of the content of an entry with its padding.
fn padded(size: u64) -> io::Result<u64> {
    let blocks = size.checked_next_multiple_of(BLOCK);
    blocks.ok_or_else(|| io::Error::other("the archive has an entry with an invalid size"))
}

fn pax_fields(bytes: &[u8]) -> io::Result<ExtendedHeader> {
    let mut fields = ExtendedHeader::default();
    for field in PaxExtensions::new(bytes) {
        let field = field?;
        match field.key_bytes() {
            b"path" => fields.path = Some(field.value_bytes().to_vec()),
            b"size" => fields.size = field.value().ok().and_then(|it| it.parse().ok()),
            _ => {}
        }
    }
    Ok(fields)
}
