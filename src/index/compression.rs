//! Compresses the content of completed operations and of records (`OperationRecord`). The index can
//! contain many of them, and they no longer change.
//!
//! A list decompresses every completed operation and every record that it returns. The format is
//! LZ4, because LZ4 decompresses more than 2 GB per second.
//!
//! LZ4 replaces a repeated text by a reference to an earlier occurrence. A record is short, so it
//! contains few repeated texts. But all records are similar. So references can also point into a
//! dictionary, which contains a typical record. The dictionary halves the compressed size of a
//! record.

use ifo_engine::track::DecodedObject;
use lz4_flex::block;
use std::sync::LazyLock;

/// A typical record: the result of a live migration that has succeeded.
const TYPICAL_RECORD: &str = concat!(
    r#"{"apiVersion":"live.ifo.kubevirt.io/v1alpha1","kind":"OperationRecord","#,
    r#""metadata":{"resourceVersion":"1795262179263067","#,
    r#""creationTimestamp":"2026-11-26T10:20:30Z","labels":{"#,
    r#""ifo.kubevirt.io/component":"kubevirt","#,
    r#""ifo.kubevirt.io/operation":"Migrating","ifo.kubevirt.io/ruleset":"kubevirt","#,
    r#""ifo.kubevirt.io/state":"Succeeded","#,
    r#""ifo.kubevirt.io/subject-kind":"VirtualMachineInstance","#,
    r#""ifo.kubevirt.io/subject-name":"vm-1"},"#,
    r#""name":"vm-1-migrating-2ee2002f","namespace":"default","#,
    r#""uid":"8df9131c-a67f-51d8-8920-a91fe0bf99d5"},"#,
    r#""spec":{"operation":"Migrating","ruleSet":"kubevirt","component":"kubevirt","#,
    r#""subject":{"apiVersion":"kubevirt.io/v1","kind":"VirtualMachineInstance","name":"vm-1","#,
    r#""namespace":"default","uid":"2c1e8f9a-9a6b-4a43-8f0e-3bd3e8a52f0c"},"#,
    r#""item":"disk","work":"2c1e8f9a-9a6b-4a43-8f0e-3bd3e8a52f0c"},"#,
    r#""status":{"outcome":"Succeeded","reason":"NotDetected","#,
    r#""message":"No rule detects the operation any more.","progress":100,"#,
    r#""nodes":["worker-1","worker-2"],"started":"2026-11-26T10:20:30Z","#,
    r#""startTimeSource":"Detected","completed":"2026-11-26T10:21:42Z","durationSeconds":72,"#,
    r#""expected":{"typicalSeconds":60,"p95Seconds":90,"runs":37,"source":"History"}}}"#,
);

/// The dictionary: the content that an index entry with [`TYPICAL_RECORD`] has. This is the short
/// form of the JSON, and then the encoded positions of the texts in this JSON.
static DICTIONARY: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let decoded = DecodedObject::decode(TYPICAL_RECORD.as_bytes());
    let decoded = decoded.expect("the typical record is an object with metadata");
    let mut content = decoded.short_json;
    decoded.positions.encode(&mut content);
    content
});

/// Bytes that are compressed with LZ4.
#[derive(Debug)]
pub(super) struct Packed {
    bytes: Box<[u8]>,
    /// Number of uncompressed bytes.
    length: u32,
}

impl Packed {
    /// Compresses `content`, which must have less than 4 GiB.
    pub fn new(content: &[u8]) -> Self {
        Self {
            bytes: block::compress_with_dict(content, &DICTIONARY).into(),
            length: u32::try_from(content.len()).expect("the content has less than 4 GiB"),
        }
    }

    /// Decompresses the content.
    pub fn decompress(&self) -> Vec<u8> {
        let mut content = vec![0; self.length as usize];
        block::decompress_into_with_dict(&self.bytes, &mut content, &DICTIONARY)
            .expect("this process has compressed these bytes");
        content
    }

    /// Returns the compressed size in bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ifo_api::record::OperationRecord;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn compressed_text_decompresses_to_the_original(
            text in prop::collection::vec(0..9_u8, 0..3000),
        ) {
            prop_assert_eq!(Packed::new(&text).decompress(), text);
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

    #[test]
    fn the_typical_record_has_the_same_form_as_other_records() {
        let mut record: OperationRecord = serde_json::from_str(TYPICAL_RECORD).unwrap();
        // The tracker writes a record without a resourceVersion, and the index inserts it. So this
        // test removes the resourceVersion before the comparison.
        let version = record.metadata.resource_version.take().unwrap();
        let inserted = format!(r#""resourceVersion":"{version}","#);
        let without_version = TYPICAL_RECORD.replace(&inserted, "");
        assert_eq!(serde_json::to_string(&record).unwrap(), without_version);
    }

    #[test]
    fn the_dictionary_halves_the_size_of_other_records() {
        let other = TYPICAL_RECORD
            .replace("vm-1", "team-database-disk-7")
            .replace("igrating", "mporting")
            .replace("VirtualMachineInstance", "DataVolume")
            .replace("Succeeded", "Failed")
            .replace("2026-11-26", "2027-03-07")
            .replace("2c1e8f9a-9a6b-4a43-8f0e", "7d0b2a61-0c55-4e0d-b6f2");
        let decoded = DecodedObject::decode(other.as_bytes()).unwrap();
        let without_dictionary = block::compress(&decoded.short_json).len();
        let packed = Packed::new(&decoded.short_json);
        assert!(packed.len() < without_dictionary / 2, "{}", packed.len());
        assert_eq!(packed.decompress(), decoded.short_json);
    }
}
