//! Writer of small GGUF files with random weights, for tests of this crate and of the program.

/// A file to write.
#[derive(Debug, Clone, Default)]
pub(crate) struct FileWriter {
    keys: Vec<(String, u32, Vec<u8>)>,
    pub(crate) tensors: Vec<TensorHeader>,
}

/// Tensor with its weights.
#[derive(Debug, Clone)]
pub(crate) struct TensorHeader {
    pub(crate) name: String,
    pub(crate) shape: Vec<u64>,
    /// Number of the type in the format.
    pub(crate) kind: u32,
    pub(crate) offset: u64,
    pub(crate) data: Vec<u8>,
}

const ALIGNMENT: usize = 32;

impl FileWriter {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn raw(&mut self, key: &str, kind: u32, value: Vec<u8>) {
        self.keys.push((key.to_owned(), kind, value));
    }

    pub(crate) fn text(&mut self, key: &str, text: &str) {
        self.raw(key, 8, string(text));
    }

    pub(crate) fn number(&mut self, key: &str, number: u32) {
        self.raw(key, 4, number.to_le_bytes().to_vec());
    }

    pub(crate) fn float(&mut self, key: &str, number: f32) {
        self.raw(key, 6, number.to_le_bytes().to_vec());
    }

    /// Sets a number anew.
    pub(crate) fn replace_number(&mut self, key: &str, number: u32) {
        self.keys.retain(|(known, ..)| known != key);
        self.number(key, number);
    }

    /// Sets a text anew.
    #[allow(dead_code, reason = "used by tests of the program")]
    pub(crate) fn replace_text(&mut self, key: &str, text: &str) {
        self.keys.retain(|(known, ..)| known != key);
        self.text(key, text);
    }

    fn array(&mut self, key: &str, element: u32, elements: &[Vec<u8>]) {
        let mut value = element.to_le_bytes().to_vec();
        value.extend((elements.len() as u64).to_le_bytes());
        value.extend(elements.concat());
        self.raw(key, 9, value);
    }

    /// Adds a tensor after the others.
    pub(crate) fn tensor(&mut self, name: &str, shape: &[u64], kind: u32, data: Vec<u8>) {
        let offset = self
            .tensors
            .iter()
            .map(|tensor| padded(tensor.data.len()))
            .sum::<usize>();
        self.tensors.push(TensorHeader {
            name: name.to_owned(),
            shape: shape.to_vec(),
            kind,
            offset: offset as u64,
            data,
        });
    }

    /// Returns the file.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = b"GGUF\x03\0\0\0".to_vec();
        bytes.extend((self.tensors.len() as u64).to_le_bytes());
        bytes.extend((self.keys.len() as u64).to_le_bytes());
        for (key, kind, value) in &self.keys {
            bytes.extend(string(key));
            bytes.extend(kind.to_le_bytes());
            bytes.extend(value);
        }
        for tensor in &self.tensors {
            bytes.extend(string(&tensor.name));
            bytes.extend(
                u32::try_from(tensor.shape.len())
                    .unwrap_or(u32::MAX)
                    .to_le_bytes(),
            );
            for length in &tensor.shape {
                bytes.extend(length.to_le_bytes());
            }
            bytes.extend(tensor.kind.to_le_bytes());
            bytes.extend(tensor.offset.to_le_bytes());
        }
        for tensor in &self.tensors {
            bytes.resize(padded(bytes.len()), 0);
            bytes.extend(&tensor.data);
        }
        bytes
    }
}

fn padded(length: usize) -> usize {
    length.next_multiple_of(ALIGNMENT)
}

fn string(text: &str) -> Vec<u8> {
    let mut bytes = (text.len() as u64).to_le_bytes().to_vec();
    bytes.extend(text.as_bytes());
    bytes
}

/// Type of the large weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Weights {
    F16,
    Q8_0,
    Q4K,
}

/// Shape of a model.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) width: u64,
    pub(crate) heads: u64,
    pub(crate) kv_heads: u64,
    pub(crate) hidden: u64,
    pub(crate) layers: u32,
    pub(crate) context: u32,
    pub(crate) weights: Weights,
}

/// Smallest shape, of half precision.
pub(crate) const SMALL: Shape = Shape {
    width: 64,
    heads: 4,
    kv_heads: 2,
    hidden: 128,
    layers: 2,
    context: 512,
    weights: Weights::F16,
};

/// Template of conversations in ChatML, with tools as Qwen has them, written for these tests.
pub(crate) const CHATML: &str = "\
{%- if tools %}{{ '<|im_start|>system\\n' }}{% if messages[0].role == 'system' %}{{ messages[0].content + '\\n' }}{% endif %}\
# Tools\n{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}\
Call them as <tool_call>{\"name\": …, \"arguments\": …}</tool_call><|im_end|>\n{% else %}\
{%- if messages[0].role == 'system' %}{{ '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}{% endif %}{% endif %}\
{%- for message in messages %}{% if message.role != 'system' %}\
{{ '<|im_start|>' + message.role + '\\n' + (message.content or '') }}\
{%- for call in message.tool_calls or [] %}{{ '<tool_call>\\n' + (call.function | tojson) + '\\n</tool_call>' }}{% endfor %}\
{{ '<|im_end|>\\n' }}{% endif %}{% endfor %}\
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

/// Tokens before those of bytes; all but the first are control tokens.
pub(crate) const CONTROL: [&str; 4] = ["<unk>", "<s>", "<|im_end|>", "<|im_start|>"];

/// Returns a Llama of the smallest shape.
pub(crate) fn small_llama() -> FileWriter {
    model("llama", SMALL, 1)
}

/// Architectures of [`model`].
#[allow(dead_code, reason = "used by tests of the engine")]
pub(crate) const ALL: [&str; 8] = [
    "llama", "qwen2", "qwen3", "gemma", "gemma2", "gemma3", "phi3", "smollm3",
];

/// Length of the sliding window of Gemma 2 and 3, in tokens.
pub(crate) const WINDOW: u32 = 12;

/// Returns a model with random weights, of one of [`ALL`].
pub(crate) fn model(architecture: &str, shape: Shape, seed: u64) -> FileWriter {
    let mut file = FileWriter::new();
    let mut random = Random(seed);
    let each = shape.width / shape.heads;
    let number = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    let key = |key: &str| format!("{architecture}.{key}");
    file.text("general.architecture", architecture);
    file.text("general.name", "small");
    file.number(&key("context_length"), shape.context);
    file.number(&key("embedding_length"), number(shape.width));
    file.number(&key("block_count"), shape.layers);
    file.number(&key("feed_forward_length"), number(shape.hidden));
    file.number(&key("attention.head_count"), number(shape.heads));
    file.number(&key("attention.head_count_kv"), number(shape.kv_heads));
    file.number(&key("rope.dimension_count"), number(each));
    file.number(&key("attention.key_length"), number(each));
    file.number(&key("attention.value_length"), number(each));
    file.float(&key("attention.layer_norm_rms_epsilon"), 1e-5);
    // Gemma 3 has another base where its window does not slide.
    let base = if architecture == "gemma3" { 1e6 } else { 10_000.0 };
    file.float(&key("rope.freq_base"), base);
    if matches!(architecture, "gemma2" | "gemma3" | "phi3") {
        file.number(&key("attention.sliding_window"), WINDOW);
    }
    tokenizer(&mut file);
    let vocabulary = vocabulary().len() as u64;
    let mut add = |file: &mut FileWriter, name: &str, shape_of: &[u64]| {
        let (kind, data) = if shape_of.len() == 1 {
            (0, random.norm(shape_of[0], name.ends_with("bias")))
        } else {
            random.weights(shape.weights, shape_of[0] * shape_of[1], shape_of[0])
        };
        file.tensor(name, shape_of, kind, data);
    };
    add(&mut file, "token_embd.weight", &[shape.width, vocabulary]);
    add(&mut file, "output_norm.weight", &[shape.width]);
    let (q, kv) = (shape.width, each * shape.kv_heads);
    for layer in 0..shape.layers {
        let mut add = |name: &str, of: &[u64]| add(&mut file, &format!("blk.{layer}.{name}"), of);
        add("attn_norm.weight", &[shape.width]);
        add("ffn_norm.weight", &[shape.width]);
        if architecture == "phi3" {
            add("attn_qkv.weight", &[shape.width, q + 2 * kv]);
            add("ffn_up.weight", &[shape.width, 2 * shape.hidden]);
        } else {
            add("attn_q.weight", &[shape.width, q]);
            add("attn_k.weight", &[shape.width, kv]);
            add("attn_v.weight", &[shape.width, kv]);
            add("ffn_gate.weight", &[shape.width, shape.hidden]);
            add("ffn_up.weight", &[shape.width, shape.hidden]);
        }
        add("attn_output.weight", &[q, shape.width]);
        add("ffn_down.weight", &[shape.hidden, shape.width]);
        match architecture {
            "qwen2" => {
                add("attn_q.bias", &[q]);
                add("attn_k.bias", &[kv]);
                add("attn_v.bias", &[kv]);
            }
            "qwen3" | "gemma3" => {
                add("attn_q_norm.weight", &[each]);
                add("attn_k_norm.weight", &[each]);
            }
            _ => {}
        }
        if matches!(architecture, "gemma2" | "gemma3") {
            add("post_attention_norm.weight", &[shape.width]);
            add("post_ffw_norm.weight", &[shape.width]);
        }
    }
    file
}

/// Tokens: control tokens, one for each byte in the alphabet of GPT-2, and one pair.
fn vocabulary() -> Vec<String> {
    let bytes = (0..=255).map(|byte| alphabet(byte).to_string());
    let control = CONTROL.iter().map(|token| (*token).to_owned());
    control.chain(bytes).chain(["th".to_owned()]).collect()
}

/// Character that stands for a byte in vocabularies of this kind: printable bytes for themselves, others from U+0100 on.
fn alphabet(byte: u8) -> char {
    let is_plain = |byte: u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    if is_plain(byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|other| !is_plain(*other)).count();
    u32::try_from(0x100 + before)
        .ok()
        .and_then(char::from_u32)
        .unwrap_or(' ')
}

fn tokenizer(file: &mut FileWriter) {
    let tokens = vocabulary();
    let kind = |index: usize| -> i32 {
        match index {
            0 => 2,
            _ if index < CONTROL.len() => 3,
            _ => 1,
        }
    };
    let kinds: Vec<_> = (0..tokens.len())
        .map(|index| kind(index).to_le_bytes().to_vec())
        .collect();
    let tokens: Vec<_> = tokens.iter().map(|token| string(token)).collect();
    file.text("tokenizer.ggml.model", "gpt2");
    file.text("tokenizer.ggml.pre", "qwen2");
    file.array("tokenizer.ggml.tokens", 8, &tokens);
    file.array("tokenizer.ggml.token_type", 5, &kinds);
    file.array("tokenizer.ggml.merges", 8, &[string("t h")]);
    file.number("tokenizer.ggml.bos_token_id", 1);
    file.number("tokenizer.ggml.eos_token_id", 2);
    file.number("tokenizer.ggml.unknown_token_id", 0);
    file.raw("tokenizer.ggml.add_bos_token", 7, vec![0]);
    file.text("tokenizer.chat_template", CHATML);
}

/// Random numbers of SplitMix64: the same on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Number from -1 to 1.
    fn unit(&mut self) -> f32 {
        f32::from((self.next() >> 48) as u16) / 32_768.0 - 1.0
    }

    fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[0]
    }

    /// Weights of a norm, about 1, or of a bias, about 0.
    fn norm(&mut self, count: u64, is_bias: bool) -> Vec<u8> {
        let middle = if is_bias { 0.0 } else { 1.0 };
        (0..count)
            .flat_map(|_| (middle + self.unit() * 0.1).to_le_bytes())
            .collect()
    }

    /// Number of the type, and weights whose sums over a row are about 1.
    #[expect(clippy::cast_precision_loss, reason = "rows are short")]
    fn weights(&mut self, kind: Weights, count: u64, row: u64) -> (u32, Vec<u8>) {
        let scale = 1.7 / (row as f32).sqrt();
        match kind {
            Weights::F16 => {
                let data = (0..count).flat_map(|_| half(self.unit() * scale).to_le_bytes());
                (1, data.collect())
            }
            Weights::Q8_0 => {
                let mut data = Vec::new();
                for _ in 0..count / 32 {
                    data.extend(half(scale / 127.0).to_le_bytes());
                    data.extend((0..32).map(|_| self.byte()));
                }
                (8, data)
            }
            Weights::Q4K => {
                let mut data = Vec::new();
                for _ in 0..count / 256 {
                    // Scales of up to 63 times numbers of up to 15, less minima of up to 63.
                    data.extend(half(scale / 480.0).to_le_bytes());
                    data.extend(half(scale / 64.0).to_le_bytes());
                    data.extend((0..140).map(|_| self.byte()));
                }
                (12, data)
            }
        }
    }
}

/// Converts to half precision by cutting; subnormal numbers become 0.
#[expect(clippy::cast_possible_truncation, reason = "the parts are masked")]
pub(crate) fn half(number: f32) -> u16 {
    let bits = number.to_bits();
    let sign = (bits >> 16) as u16 & 0x8000;
    let exponent = (bits >> 23 & 0xff) as i32 - 127 + 15;
    if exponent <= 0 {
        return sign;
    }
    let exponent = u16::try_from(exponent.min(30)).unwrap_or(30);
    sign | exponent << 10 | (bits >> 13) as u16 & 0x3ff
}
