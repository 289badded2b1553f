//! Compresses the JSON of completed operations, which are retained for their history.
//!
//! A list decompresses every completed operation that it returns. The format is LZ4, because LZ4
//! decompresses more than 2 GB per second.

use lz4_flex::block;

/// JSON that is compressed with LZ4.
#[derive(Debug)]
pub(super) struct Packed {
    bytes: Box<[u8]>,
    /// Length of the uncompressed JSON in bytes.
    length: usize,
}

impl Packed {
    /// Compresses `text`.
    pub fn new(text: &[u8]) -> Self {
        Self {
            bytes: block::compress(text).into(),
            length: text.len(),
        }
    }

    /// Decompresses the JSON.
    pub fn decompress(&self) -> Vec<u8> {
        let mut text = Vec::new();
        self.append_to(&mut text);
        text
    }

    /// Decompresses the JSON and appends it to `out`.
    pub fn append_to(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.resize(start + self.length, 0);
        block::decompress_into(&self.bytes, &mut out[start..])
            .expect("this process has compressed these bytes");
    }

    /// Returns the compressed size in bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn compressed_text_decompresses_to_the_original(
            text in prop::collection::vec(0..9_u8, 0..3000),
            before in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            let packed = Packed::new(&text);
            prop_assert_eq!(&packed.decompress(), &text);
            let mut out = before.clone();
            packed.append_to(&mut out);
            prop_assert_eq!(out, [before, text].concat());
        }
    }

    #[test]
    fn text_larger_than_the_window_decompresses() {
        let part: Vec<u8> = (0..100_000_u32)
            .map(|it| (it % 251).to_le_bytes()[0])
            .collect();
        let text = [&*part, &*vec![7; 200_000], &*part].concat();
        assert_eq!(Packed::new(&text).decompress(), text);
    }
}
