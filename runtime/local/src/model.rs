//! Facts about a model, from the header of its file.

use std::collections::BTreeMap;
use std::path::Path;

use crate::error::{GgufError, InvalidModel};
use crate::gguf::{Gguf, TensorType, Value};

/// Architectures whose numbers [`Model::check`] checks, by their names in files. Mistral and SmolLM 1 and 2 are `llama`, Qwen 2.5
/// is `qwen2`, Phi 4 is `phi3`.
pub const ARCHITECTURES: [&str; 8] = [
    "llama", "qwen2", "qwen3", "gemma", "gemma2", "gemma3", "phi3", "smollm3",
];

/// Tokenizers of [`ARCHITECTURES`].
const TOKENIZERS: [&str; 2] = ["gpt2", "llama"];

/// Maximum number of layers. llama.cpp ends the process above 512.
const MAX_LAYERS: u64 = 512;

/// Maximum number of heads: four times that of the largest published models.
const MAX_HEADS: u64 = 1_024;

/// Maximum length of a vector between layers, four times that of the largest published models.
const MAX_WIDTH: u64 = 65_536;

/// Maximum length of a context that a file may claim, in tokens: 16 million.
const MAX_CONTEXT: u64 = 16 << 20;

/// Size of a number in the cache of keys and values, in bytes: half precision.
const CACHE_NUMBER_BYTES: u64 = 2;

/// Memory for intermediate results, in bytes, beside that which follows from the model: 64 MiB.
const WORK_BYTES: u64 = 64 << 20;

/// Facts about a model. Texts are those of the file, and can contain anything.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// Architecture, such as `qwen3`.
    pub architecture: String,
    /// Name that the file has for itself.
    pub name: Option<String>,
    /// Number of parameters.
    pub parameters: u64,
    /// Size of the weights, in bytes.
    pub weight_bytes: u64,
    /// Types of the weights with their sizes in bytes; the largest first.
    pub types: Vec<(TensorType, u64)>,
    /// Length of the context for which the model was trained, in tokens.
    pub context: Option<u64>,
    /// Number of layers.
    pub layers: Option<u64>,
    /// Number of elements of a vector between layers.
    pub width: Option<u64>,
    /// Kind of tokenizer, such as `gpt2` or `llama`, and its variant, such as `qwen2`.
    pub tokenizer: Option<String>,
    /// Variant of the tokenizer.
    pub tokenizer_variant: Option<String>,
    /// Number of tokens in the vocabulary.
    pub vocabulary: Option<u64>,
    /// Template of conversations.
    pub chat_template: Option<String>,
    /// Special tokens, by their role, such as `bos` and `eos`.
    pub special: BTreeMap<&'static str, u64>,
    heads: Option<u64>,
    kv_heads: Option<u64>,
    key_length: Option<u64>,
    value_length: Option<u64>,
    experts: Option<u64>,
    experts_used: Option<u64>,
    epsilon: Option<f64>,
    parts: u64,
}

/// Keys of special tokens, with the names under which they are shown.
const SPECIAL: [(&str, &str); 8] = [
    ("bos", "tokenizer.ggml.bos_token_id"),
    ("eos", "tokenizer.ggml.eos_token_id"),
    ("eot", "tokenizer.ggml.eot_token_id"),
    ("eom", "tokenizer.ggml.eom_token_id"),
    ("unknown", "tokenizer.ggml.unknown_token_id"),
    ("padding", "tokenizer.ggml.padding_token_id"),
    ("separator", "tokenizer.ggml.seperator_token_id"),
    ("mask", "tokenizer.ggml.mask_token_id"),
];

impl Model {
    /// Reads the facts of a file.
    ///
    /// # Errors
    /// [`GgufError`] if it is not a valid file, or has no architecture.
    pub fn open(path: &Path) -> Result<Self, GgufError> {
        Self::of(&Gguf::open(path)?)
    }

    /// Returns the facts in a header.
    ///
    /// # Errors
    /// [`GgufError::NoArchitecture`].
    pub fn of(gguf: &Gguf) -> Result<Self, GgufError> {
        let architecture = gguf
            .text("general.architecture")
            .ok_or(GgufError::NoArchitecture)?;
        let own = |key: &str| gguf.number(&format!("{architecture}.{key}"));
        let text = |key: &str| gguf.text(key).map(str::to_owned);
        let mut types: BTreeMap<TensorType, u64> = BTreeMap::new();
        for tensor in &gguf.tensors {
            let sum = types.entry(tensor.kind).or_default();
            *sum = sum.saturating_add(tensor.bytes);
        }
        let mut types: Vec<_> = types.into_iter().collect();
        types.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        Ok(Self {
            name: text("general.name"),
            parameters: gguf.parameters(),
            weight_bytes: gguf.weight_bytes(),
            types,
            context: own("context_length"),
            layers: own("block_count"),
            width: own("embedding_length"),
            tokenizer: text("tokenizer.ggml.model"),
            tokenizer_variant: text("tokenizer.ggml.pre"),
            vocabulary: match gguf.get("tokenizer.ggml.tokens") {
                Some(Value::Array(tokens)) => Some(tokens.len),
                _ => None,
            },
            chat_template: text("tokenizer.chat_template"),
            special: SPECIAL
                .iter()
                .filter_map(|(name, key)| Some((*name, gguf.number(key)?)))
                .collect(),
            heads: own("attention.head_count"),
            kv_heads: own("attention.head_count_kv"),
            key_length: own("attention.key_length"),
            value_length: own("attention.value_length"),
            experts: own("expert_count"),
            experts_used: own("expert_used_count"),
            epsilon: gguf
                .get(&format!("{architecture}.attention.layer_norm_rms_epsilon"))
                .and_then(Value::as_f64),
            parts: gguf.number("split.count").unwrap_or(1),
            architecture: architecture.to_owned(),
        })
    }

    /// Checks the numbers that engines take from a file without checking them: an engine ends its process, or allocates without
    /// a bound, if they are out of order. It is known which those are for [`ARCHITECTURES`] only.
    ///
    /// # Errors
    /// [`InvalidModel`] with the reason.
    pub fn check(&self) -> Result<(), InvalidModel> {
        if !ARCHITECTURES.contains(&self.architecture.as_str()) {
            return Err(InvalidModel::Architecture(self.architecture.clone()));
        }
        if self.parts > 1 {
            return Err(InvalidModel::Split(self.parts));
        }
        let layers = self.number("block_count", self.layers, 1, MAX_LAYERS)?;
        let width = self.number("embedding_length", self.width, 1, MAX_WIDTH)?;
        self.number("context_length", self.context, 1, MAX_CONTEXT)?;
        let heads = self.number("attention.head_count", self.heads, 1, MAX_HEADS)?;
        let kv_heads = self.number("attention.head_count_kv", self.kv_heads.or(Some(heads)), 1, heads)?;
        let each = width / heads;
        self.number(
            "attention.key_length",
            self.key_length.or(Some(each)),
            1,
            MAX_WIDTH,
        )?;
        self.number(
            "attention.value_length",
            self.value_length.or(Some(each)),
            1,
            MAX_WIDTH,
        )?;
        // Models with experts have architectures of their own, or are `llama` with a few.
        let experts = self.number("expert_count", Some(self.experts.unwrap_or(0)), 0, 256)?;
        if experts > 0 {
            self.number("expert_used_count", self.experts_used, 1, experts)?;
        }
        // NaN is not in a range.
        if !self.epsilon.is_none_or(|epsilon| (0.0..1.0).contains(&epsilon)) {
            return Err(InvalidModel::Inconsistent(
                "the epsilon of its normalisation is not between 0 and 1",
            ));
        }
        if heads % kv_heads != 0 {
            return Err(InvalidModel::Inconsistent(
                "the number of heads is not a multiple of that of heads with keys",
            ));
        }
        let Some(tokenizer) = self
            .tokenizer
            .as_deref()
            .filter(|_| self.vocabulary.unwrap_or(0) > 0)
        else {
            return Err(InvalidModel::Inconsistent("it has no tokenizer"));
        };
        if !TOKENIZERS.contains(&tokenizer) {
            return Err(InvalidModel::Inconsistent(
                "its tokenizer is not one of these architectures, `gpt2` or `llama`",
            ));
        }
        let most = self.vocabulary.unwrap_or(0);
        if self
            .special
            .values()
            .any(|id| *id >= most && *id != u64::from(u32::MAX))
        {
            return Err(InvalidModel::Inconsistent(
                "a special token is not in its vocabulary",
            ));
        }
        if layers * 4 > self.weight_bytes {
            return Err(InvalidModel::Inconsistent("it has more layers than weights"));
        }
        Ok(())
    }

    fn number(&self, key: &str, found: Option<u64>, least: u64, most: u64) -> Result<u64, InvalidModel> {
        found
            .filter(|number| (least..=most).contains(number))
            .ok_or_else(|| InvalidModel::Number {
                key: format!("{}.{key}", self.architecture),
                found: found.map_or("missing".into(), |number| number.to_string()),
                least,
                most,
            })
    }

    /// Estimates the memory that the model takes with a context of this many tokens, in bytes: its weights, the cache of keys and
    /// values of `sessions` conversations, and intermediate results. `None` if the file lacks a number for it.
    pub fn memory(&self, context: u64, sessions: u64) -> Option<Memory> {
        let (layers, width, heads) = (self.layers?, self.width?, self.heads?.max(1));
        let kv_heads = self.kv_heads.unwrap_or(heads);
        let each = width / heads;
        let lengths = self
            .key_length
            .unwrap_or(each)
            .saturating_add(self.value_length.unwrap_or(each));
        let token = [layers, kv_heads, lengths, CACHE_NUMBER_BYTES]
            .into_iter()
            .fold(1u64, u64::saturating_mul);
        let cache = token.saturating_mul(context).saturating_mul(sessions);
        // Logits, and the vectors of a batch of 512 tokens through the widest layer (about four times the width).
        let logits = self.vocabulary.unwrap_or(0).saturating_mul(4 * 4);
        let batch = width.saturating_mul(512 * 4 * 8);
        Some(Memory {
            weights: self.weight_bytes,
            cache,
            work: WORK_BYTES.saturating_add(logits).saturating_add(batch),
        })
    }
}

/// Estimate of the memory that a model takes, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Weights, which are mapped from the file.
    pub weights: u64,
    /// Keys and values of the conversation.
    pub cache: u64,
    /// Intermediate results.
    pub work: u64,
}

impl Memory {
    /// Sum of all.
    pub fn total(&self) -> u64 {
        self.weights.saturating_add(self.cache).saturating_add(self.work)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{FileWriter, small_llama};

    fn facts(file: &FileWriter) -> Model {
        let bytes = file.bytes();
        Model::of(&Gguf::read(&bytes[..], bytes.len() as u64).unwrap()).unwrap()
    }

    /// Facts of the small file with one number replaced.
    fn changed(key: &str, value: u32) -> Model {
        let mut file = small_llama();
        file.replace_number(key, value);
        facts(&file)
    }

    #[test]
    fn facts_of_a_file_are_those_of_its_keys() {
        let model = facts(&small_llama());
        assert_eq!(model.architecture, "llama");
        assert_eq!(model.context, Some(512));
        assert_eq!(model.tokenizer.as_deref(), Some("gpt2"));
        assert_eq!(model.special["eos"], 2);
        assert_eq!(model.types[0].0.to_string(), "F16");
        model.check().unwrap();
        let memory = model.memory(100, 1).unwrap();
        // Two layers, two heads of 16 keys and 16 values of two bytes.
        assert_eq!(memory.cache, 2 * 2 * 32 * 2 * 100);
        assert_eq!(model.memory(100, 2).unwrap().cache, 2 * memory.cache);
        assert_eq!(memory.weights, model.weight_bytes);
    }

    #[test]
    fn numbers_are_checked_on_both_sides() {
        for (key, value, is_taken) in [
            ("llama.block_count", 0, false),
            ("llama.block_count", 512, true),
            ("llama.block_count", 513, false),
            ("llama.embedding_length", 0, false),
            ("llama.embedding_length", 65_536, true),
            ("llama.embedding_length", 65_537, false),
            ("llama.context_length", 1, true),
            ("llama.context_length", 0, false),
            ("llama.context_length", 16 << 20, true),
            ("llama.context_length", u32::MAX, false),
            ("llama.attention.head_count", 0, false),
            ("llama.attention.head_count", 1_025, false),
            ("llama.attention.head_count_kv", 0, false),
            ("llama.attention.head_count_kv", 3, false),
            ("llama.attention.head_count_kv", 5, false),
            ("llama.expert_count", 256, false),
            ("llama.expert_count", 0, true),
            ("llama.expert_count", 4_000_000_000, false),
            ("tokenizer.ggml.eos_token_id", 100_000, false),
        ] {
            let checked = changed(key, value).check();
            assert_eq!(checked.is_ok(), is_taken, "{key} = {value}: {checked:?}");
        }
    }

    #[test]
    fn experts_epsilon_and_tokenizer_are_checked() {
        for (used, is_taken) in [(0, false), (1, true), (8, true), (9, false)] {
            let mut file = small_llama();
            file.replace_number("llama.expert_count", 8);
            file.replace_number("llama.expert_used_count", used);
            assert_eq!(facts(&file).check().is_ok(), is_taken, "{used}");
        }
        for (epsilon, is_taken) in [
            (0.0, true),
            (0.99, true),
            (1.0, false),
            (-1e-5, false),
            (f64::NAN, false),
        ] {
            let model = Model {
                epsilon: Some(epsilon),
                ..facts(&small_llama())
            };
            assert_eq!(model.check().is_ok(), is_taken, "{epsilon}");
        }
        for (tokenizer, is_taken) in [("llama", true), ("bert", false), ("", false)] {
            let model = Model {
                tokenizer: Some(tokenizer.into()),
                ..facts(&small_llama())
            };
            assert_eq!(model.check().is_ok(), is_taken, "{tokenizer}");
        }
    }

    #[test]
    fn unknown_architectures_and_parts_are_refused() {
        let mut file = FileWriter::new();
        file.text("general.architecture", "mamba");
        assert!(matches!(facts(&file).check(), Err(InvalidModel::Architecture(_))));
        assert!(matches!(
            changed("split.count", 2).check(),
            Err(InvalidModel::Split(2))
        ));
        let bytes = FileWriter::new().bytes();
        let gguf = Gguf::read(&bytes[..], bytes.len() as u64).unwrap();
        assert!(matches!(Model::of(&gguf), Err(GgufError::NoArchitecture)));
    }
}
