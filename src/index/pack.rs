//! JSON in a fraction of its room. Enters: the JSON of an object, and an example of what
//! such objects look like. Leaves: what is not in the example, in the LZ4 block format with
//! the example as its dictionary, and the same JSON again.
//!
//! Most of an operation's JSON is names of fields, and what it says more than once: it takes
//! a quarter of its room. LZ4, since every list reads every object: it unpacks more than two
//! gigabytes a second.

use lz4_flex::block;

/// Packed JSON.
#[derive(Debug)]
pub(super) struct Packed {
    bytes: Box<[u8]>,
    /// Bytes of the JSON. No entry has 4 GiB.
    length: u32,
}

impl Packed {
    /// Packs `text`, which has less than 4 GiB.
    pub fn new(text: &[u8], example: &[u8]) -> Self {
        Self {
            bytes: block::compress_with_dict(text, example).into(),
            length: u32::try_from(text.len()).expect("the scan refuses 4 GiB"),
        }
    }

    /// What was packed with the same example.
    pub fn open(&self, example: &[u8]) -> Vec<u8> {
        let mut text = Vec::new();
        self.append_to(&mut text, example);
        text
    }

    /// Puts it at the end of `out`.
    pub fn append_to(&self, out: &mut Vec<u8>, example: &[u8]) {
        let start = out.len();
        out.resize(start + self.length as usize, 0);
        block::decompress_into_with_dict(&self.bytes, &mut out[start..], example)
            .expect("nobody but us has packed it, with this example");
    }

    /// Bytes that it takes.
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
        fn what_is_packed_unpacks(
            text in prop::collection::vec(any::<u8>(), 0..3000),
            example in prop::collection::vec(0..3_u8, 0..3000),
            common in any::<bool>(),
        ) {
            let text = if common { [&*text, &*example, &*text].concat() } else { text };
            prop_assert_eq!(&Packed::new(&text, &example).open(&example), &text);
            prop_assert_eq!(&Packed::new(&text, &[]).open(&[]), &text);
            let mut out = example.clone();
            Packed::new(&text, &example).append_to(&mut out, &example);
            prop_assert_eq!(out, [example, text].concat());
        }
    }

    #[test]
    fn more_than_fits_into_a_window_unpacks() {
        let example: Vec<u8> = (0..100_000_u32)
            .map(|it| (it % 251).to_le_bytes()[0])
            .collect();
        let text = [&*example, &*vec![7; 200_000], &*example].concat();
        assert_eq!(Packed::new(&text, &example).open(&example), text);
    }
}
