use proptest::prelude::*;

use super::*;
use crate::testing::{FileWriter, SMALL, Shape, Weights, model, small_llama};

fn read(bytes: &[u8]) -> Result<Gguf, GgufError> {
    Gguf::read(bytes, bytes.len() as u64)
}

/// File with one tensor of 32 numbers, whose description was changed.
fn with_tensor(change: impl FnOnce(&mut crate::testing::TensorHeader)) -> Vec<u8> {
    let mut file = FileWriter::new();
    file.text("general.architecture", "llama");
    file.tensor("t", &[32], 0, vec![0; 128]);
    change(&mut file.tensors[0]);
    file.bytes()
}

#[test]
fn header_is_read_with_keys_and_tensors() {
    let bytes = small_llama().bytes();
    let gguf = read(&bytes).unwrap();
    assert_eq!(gguf.version, 3);
    assert_eq!(gguf.text("general.architecture"), Some("llama"));
    assert_eq!(gguf.number("llama.block_count"), Some(2));
    let Some(Value::Array(tokens)) = gguf.get("tokenizer.ggml.tokens") else {
        panic!("no tokens");
    };
    assert_eq!(tokens.element, ElementType::Text);
    assert_eq!(gguf.tensors[0].name, "token_embd.weight");
    assert_eq!(gguf.tensors[0].kind.to_string(), "F16");
    assert_eq!(gguf.weight_bytes(), gguf.parameters() * 2 + 2 * 5 * 64);
}

#[test]
fn elements_of_text_arrays_are_read_by_index() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.gguf");
    std::fs::write(&path, small_llama().bytes()).unwrap();
    let gguf = Gguf::open(&path).unwrap();
    let found = gguf
        .elements(&path, "tokenizer.ggml.tokens", &[1, 2, 99_999])
        .unwrap();
    assert_eq!(found, [(1, "<s>".into()), (2, "<|im_end|>".into())]);
    assert!(
        gguf.elements(&path, "llama.block_count", &[0])
            .unwrap()
            .is_empty()
    );
}

#[test]
fn file_cut_at_any_byte_of_its_header_is_refused() {
    let bytes = small_llama().bytes();
    let gguf = read(&bytes).unwrap();
    let header = usize::try_from(gguf.data_start).unwrap();
    for end in (0..header.min(2_000)).chain([header - 33, bytes.len() - 1]) {
        assert!(read(&bytes[..end]).is_err(), "cut at {end}");
    }
    read(&bytes).unwrap();
}

#[test]
fn other_formats_and_versions_are_named() {
    assert!(matches!(read(b"GGML\x03\0\0\0"), Err(GgufError::NotGguf)));
    assert!(matches!(read(b"GGUF\x01\0\0\0"), Err(GgufError::Version(1))));
    assert!(matches!(read(b"GGUF\x04\0\0\0"), Err(GgufError::Version(4))));
    assert!(matches!(read(b"GGUF\0\0\0\x03"), Err(GgufError::BigEndian)));
    assert!(matches!(read(b""), Err(GgufError::CutOff)));
    let mut two = small_llama().bytes();
    two[4] = 2;
    assert_eq!(read(&two).unwrap().version, 2);
}

#[test]
fn counts_are_taken_up_to_their_limits() {
    let header = |tensors: u64, keys: u64| {
        let mut bytes = b"GGUF\x03\0\0\0".to_vec();
        bytes.extend(tensors.to_le_bytes());
        bytes.extend(keys.to_le_bytes());
        read(&bytes)
    };
    for (tensors, keys) in [(MAX_TENSORS, 0), (0, MAX_KEYS)] {
        assert!(matches!(header(tensors, keys), Err(GgufError::CutOff)));
    }
    for (tensors, keys) in [(MAX_TENSORS + 1, 0), (0, MAX_KEYS + 1), (u64::MAX, u64::MAX)] {
        assert!(matches!(header(tensors, keys), Err(GgufError::TooMany { .. })));
    }
    header(0, 0).unwrap();
}

#[test]
fn lengths_of_texts_are_limited_on_both_sides() {
    let with = |key: &str, text: &str| {
        let mut file = FileWriter::new();
        file.text(key, text);
        read(&file.bytes())
    };
    let text = "x".repeat(usize::try_from(MAX_TEXT_BYTES).unwrap());
    with(&"k".repeat(256), &text).unwrap();
    assert!(matches!(
        with("k", &format!("{text}x")),
        Err(GgufError::TooLong { .. })
    ));
    assert!(matches!(
        with(&"k".repeat(257), ""),
        Err(GgufError::TooLong { .. })
    ));
    let named = |length| read(&with_tensor(|tensor| tensor.name = "n".repeat(length)));
    named(64).unwrap();
    assert!(matches!(named(65), Err(GgufError::TooLong { .. })));
}

#[test]
fn lying_length_allocates_nothing_for_it() {
    let mut bytes = b"GGUF\x03\0\0\0".to_vec();
    bytes.extend(0u64.to_le_bytes());
    bytes.extend(1u64.to_le_bytes());
    bytes.extend(1u64.to_le_bytes());
    bytes.push(b'k');
    bytes.extend(8u32.to_le_bytes());
    bytes.extend(MAX_TEXT_BYTES.to_le_bytes());
    assert!(matches!(read(&bytes), Err(GgufError::CutOff)));
    // The size of the file lies as well: it ends where the reader expects more.
    assert!(matches!(
        Gguf::read(&bytes[..], MAX_FILE_BYTES),
        Err(GgufError::CutOff)
    ));
}

#[test]
fn nested_long_and_unknown_arrays_are_refused() {
    let array = |element: u32, len: u64| {
        let mut file = FileWriter::new();
        let mut value = element.to_le_bytes().to_vec();
        value.extend(len.to_le_bytes());
        file.raw("k", 9, value);
        read(&file.bytes())
    };
    assert!(matches!(array(9, 1), Err(GgufError::Value(..))));
    assert!(matches!(array(13, 1), Err(GgufError::Value(..))));
    assert!(matches!(array(0, MAX_ELEMENTS), Err(GgufError::CutOff)));
    assert!(matches!(
        array(0, MAX_ELEMENTS + 1),
        Err(GgufError::TooMany { .. })
    ));
    array(4, 0).unwrap();
}

#[test]
fn texts_of_all_arrays_are_counted_together() {
    let arrays = |last: u64| {
        let mut file = FileWriter::new();
        for len in [MAX_ELEMENTS, last] {
            let mut value = 8u32.to_le_bytes().to_vec();
            value.extend(len.to_le_bytes());
            value.resize(value.len() + usize::try_from(len).unwrap() * 8, 0);
            file.raw(&format!("k{}", u64::from(len != last)), 9, value);
        }
        read(&file.bytes())
    };
    arrays(MAX_TEXTS - MAX_ELEMENTS - 1).unwrap();
    let mut file = FileWriter::new();
    for key in ["a", "b", "c"] {
        let mut value = 8u32.to_le_bytes().to_vec();
        value.extend(MAX_ELEMENTS.to_le_bytes());
        value.resize(value.len() + (8 << 22), 0);
        file.raw(key, 9, value);
    }
    assert!(matches!(read(&file.bytes()), Err(GgufError::TooMany { .. })));
}

#[test]
fn bytes_that_are_not_utf8_take_no_more_than_they_did() {
    let mut file = FileWriter::new();
    let mut value = 4u64.to_le_bytes().to_vec();
    value.extend(b"a\xff\xfeb");
    file.raw("k", 8, value);
    assert_eq!(read(&file.bytes()).unwrap().text("k"), Some("a??b"));
}

#[test]
fn values_that_cannot_be_are_refused() {
    let raw = |kind: u32, value: &[u8]| {
        let mut file = FileWriter::new();
        file.raw("k", kind, value.to_vec());
        read(&file.bytes())
    };
    raw(7, &[1]).unwrap();
    assert!(matches!(raw(7, &[2]), Err(GgufError::Value(..))));
    assert!(matches!(raw(13, &[0; 8]), Err(GgufError::Value(..))));
    let mut twice = FileWriter::new();
    twice.text("k", "a");
    twice.text("k", "b");
    assert!(matches!(read(&twice.bytes()), Err(GgufError::DuplicateKey(key)) if key == "k"));
}

#[test]
fn alignment_is_a_bounded_power_of_two() {
    for (alignment, is_taken) in [(8, true), (32, true), (65_536, true), (0, false), (4, false)]
        .into_iter()
        .chain([(48, false), (131_072, false), (u32::MAX, false)])
    {
        let mut file = FileWriter::new();
        file.number("general.alignment", alignment);
        let taken = read(&file.bytes());
        assert_eq!(taken.is_ok(), is_taken, "{alignment}: {taken:?}");
    }
}

#[test]
fn tensors_must_be_aligned_and_inside_the_file() {
    type Change = fn(&mut crate::testing::TensorHeader);
    read(&with_tensor(|_| {})).unwrap();
    let changes: [Change; 11] = [
        |t| t.offset = 1,
        |t| t.offset = 32,
        |t| t.offset = u64::MAX - 31,
        |t| t.shape = vec![33],
        |t| t.shape = vec![0],
        |t| t.shape = vec![],
        |t| t.shape = vec![1; 5],
        |t| t.shape = vec![1 << 62, 4],
        |t| t.shape = vec![1 << 40],
        // Doubles, and a type that does not exist.
        |t| t.kind = 28,
        |t| t.kind = 999,
    ];
    for (index, change) in changes.into_iter().enumerate() {
        let refused = read(&with_tensor(change));
        assert!(
            matches!(refused, Err(GgufError::Tensor(..))),
            "{index}: {refused:?}"
        );
    }
    // 16 elements are not a block of 32.
    let blocks = read(&with_tensor(|t| (t.shape, t.kind) = (vec![16], 8)));
    assert!(matches!(blocks, Err(GgufError::Tensor(..))));
}

#[test]
fn tensors_neither_overlap_nor_share_a_name() {
    let two = |name: &str, offset: u64| {
        let mut file = FileWriter::new();
        file.tensor("a", &[32], 0, vec![0; 128]);
        file.tensor(name, &[32], 0, vec![0; 128]);
        file.tensors[1].offset = offset;
        read(&file.bytes())
    };
    two("b", 128).unwrap();
    assert!(matches!(two("b", 96), Err(GgufError::Tensor(..))));
    assert!(matches!(two("a", 128), Err(GgufError::Tensor(..))));
}

proptest! {
    #[test]
    fn any_bytes_end_in_a_value_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let mut file = b"GGUF\x03\0\0\0".to_vec();
        file.extend(bytes);
        let _ = read(&file);
    }

    #[test]
    fn changed_file_ends_in_a_value_or_an_error(
        changes in prop::collection::vec((0usize..4_000, any::<u8>()), 1..8),
    ) {
        static FILE: std::sync::LazyLock<Vec<u8>> = std::sync::LazyLock::new(|| small_llama().bytes());
        let mut file = FILE.clone();
        for (at, byte) in changes {
            file[at] = byte;
        }
        if let Ok(gguf) = read(&file) {
            let _ = crate::Model::of(&gguf).map(|model| model.check());
        }
    }
}

#[test]
fn files_of_each_architecture_and_type_are_read() {
    let wide = Shape {
        width: 256,
        hidden: 512,
        ..SMALL
    };
    for architecture in ["llama", "qwen2", "qwen3", "gemma2", "gemma3", "phi3"] {
        for (weights, name) in [
            (Weights::F16, "F16"),
            (Weights::Q8_0, "Q8_0"),
            (Weights::Q4K, "Q4_K"),
        ] {
            let bytes = model(architecture, Shape { weights, ..wide }, 7).bytes();
            let gguf = read(&bytes).unwrap();
            let model = crate::Model::of(&gguf).unwrap();
            model.check().unwrap();
            assert_eq!(model.types[0].0.to_string(), name);
            // Weights fill the file to its end.
            let last = gguf.tensors.last().unwrap();
            assert_eq!(gguf.data_start + last.offset + last.bytes, bytes.len() as u64);
        }
    }
}
