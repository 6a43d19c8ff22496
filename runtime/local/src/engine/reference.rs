//! A forward pass in 64-bit numbers, as plain as possible, to which the engine is compared.

mod weights;

use crate::testing::{FileWriter, Shape, WINDOW};

fn size(number: u64) -> usize {
    usize::try_from(number).unwrap()
}

/// Model of a file.
pub(super) struct Reference {
    architecture: &'static str,
    shape: Shape,
    tensors: Vec<(String, Vec<f64>)>,
}

/// Adds one vector to another.
fn add(to: &mut [f64], more: &[f64]) {
    for (x, more) in to.iter_mut().zip(more) {
        *x += more;
    }
}

/// Divides by the root of the mean square, and multiplies by the weights.
fn norm(vector: &[f64], weights: &[f64]) -> Vec<f64> {
    let mean = vector.iter().map(|x| x * x).sum::<f64>() / vector.len() as f64;
    let scale = 1.0 / (mean + 1e-5).sqrt();
    (vector.iter().zip(weights))
        .map(|(x, weight)| x * scale * weight)
        .collect()
}

/// Turns pairs of numbers of each head by the position. The pairs of Llama are neighbours; those of others, the two halves.
fn rotate(vector: &mut [f64], each: usize, position: usize, base: f64, are_neighbours: bool, slower: &[f64]) {
    let half = each / 2;
    for head in vector.chunks_mut(each) {
        for pair in 0..half {
            let slower = slower.get(pair).copied().unwrap_or(1.0);
            let angle = position as f64 * base.powf(-2.0 * pair as f64 / each as f64) / slower;
            let (sin, cos) = angle.sin_cos();
            let (first, second) = match are_neighbours {
                true => (2 * pair, 2 * pair + 1),
                false => (pair, pair + half),
            };
            let (a, b) = (head[first], head[second]);
            head[first] = a * cos - b * sin;
            head[second] = a * sin + b * cos;
        }
    }
}

fn silu(x: f64) -> f64 {
    x / (1.0 + (-x).exp())
}

/// The form with the hyperbolic tangent.
fn gelu(x: f64) -> f64 {
    let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x);
    0.5 * x * (1.0 + inner.tanh())
}

impl Reference {
    pub(super) fn of(file: &FileWriter, architecture: &'static str, shape: Shape) -> Self {
        let tensors = file.tensors.iter();
        Self {
            tensors: tensors
                .map(|tensor| (tensor.name.clone(), weights::numbers(tensor.kind, &tensor.data)))
                .collect(),
            architecture,
            shape,
        }
    }

    fn is_gemma(&self) -> bool {
        self.architecture.starts_with("gemma")
    }

    /// Weights of a tensor; none if the model does not have it.
    fn tensor(&self, name: &str) -> &[f64] {
        let found = self.tensors.iter().find(|(known, _)| known == name);
        found.map_or(&[], |(_, numbers)| numbers)
    }

    /// Product of a matrix, whose rows are as long as the vector, and a vector, plus a bias if the model has one.
    fn times(&self, name: &str, vector: &[f64]) -> Vec<f64> {
        let matrix = self.tensor(&format!("{name}.weight"));
        assert!(!matrix.is_empty(), "{name}");
        let rows = matrix.chunks(vector.len());
        let mut product: Vec<f64> = rows
            .map(|row| row.iter().zip(vector).map(|(a, b)| a * b).sum())
            .collect();
        add(&mut product, self.tensor(&format!("{name}.bias")));
        product
    }

    /// The vector itself if the model does not have this norm.
    fn optional_norm(&self, name: &str, vector: Vec<f64>) -> Vec<f64> {
        match self.tensor(name) {
            [] => vector,
            weights => vector
                .chunks(weights.len())
                .flat_map(|part| norm(part, weights))
                .collect(),
        }
    }

    /// Numbers for the token after these.
    pub(super) fn logits(&self, tokens: &[i32]) -> Vec<f64> {
        let width = size(self.shape.width);
        let embedding = self.tensor("token_embd.weight");
        let scale = if self.is_gemma() {
            (width as f64).sqrt()
        } else {
            1.0
        };
        let mut states: Vec<Vec<f64>> = (tokens.iter())
            .map(|token| size(u64::try_from(*token).unwrap()) * width)
            .map(|start| embedding[start..][..width].iter().map(|x| x * scale).collect())
            .collect();
        for layer in 0..self.shape.layers {
            self.layer(layer, &mut states);
        }
        let last = norm(&states[states.len() - 1], self.tensor("output_norm.weight"));
        let mut logits = self.times("token_embd", &last);
        if self.architecture == "gemma2" {
            for logit in &mut logits {
                *logit = 30.0 * (*logit / 30.0).tanh();
            }
        }
        logits
    }

    fn layer(&self, layer: u32, states: &mut [Vec<f64>]) {
        let name = |part: &str| format!("blk.{layer}.{part}");
        let weights = |part: &str| self.tensor(&format!("blk.{layer}.{part}.weight"));
        let (mut keys, mut values) = (Vec::new(), Vec::new());
        for (position, state) in states.iter_mut().enumerate() {
            let input = norm(state, weights("attn_norm"));
            let (query, key, value) = self.query_key_value(layer, &input, position);
            keys.push(key);
            values.push(value);
            let mixed = self.attention(layer, &query, &keys, &values);
            let more = self.times(&name("attn_output"), &mixed);
            add(
                state,
                &self.optional_norm(&name("post_attention_norm.weight"), more),
            );
            let input = norm(state, weights("ffn_norm"));
            let more = self.times(&name("ffn_down"), &self.hidden(layer, &input));
            add(state, &self.optional_norm(&name("post_ffw_norm.weight"), more));
        }
    }

    /// True if a layer sees a window of the last tokens alone.
    fn has_window(&self, layer: u32) -> bool {
        match self.architecture {
            "gemma2" => layer.is_multiple_of(2),
            "gemma3" => layer % 6 < 5,
            _ => false,
        }
    }

    fn query_key_value(&self, layer: u32, input: &[f64], position: usize) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
        let name = |part: &str| format!("blk.{layer}.{part}");
        let each = size(self.shape.width / self.shape.heads);
        let (mut query, mut key, value) = if self.architecture == "phi3" {
            let mut query = self.times(&name("attn_qkv"), input);
            let mut key = query.split_off(size(self.shape.width));
            let value = key.split_off(each * size(self.shape.kv_heads));
            (query, key, value)
        } else {
            let of = |part: &str| self.times(&name(part), input);
            (of("attn_q"), of("attn_k"), of("attn_v"))
        };
        query = self.optional_norm(&name("attn_q_norm.weight"), query);
        key = self.optional_norm(&name("attn_k_norm.weight"), key);
        let base = match self.architecture {
            "gemma3" if !self.has_window(layer) => 1e6,
            _ => 10_000.0,
        };
        if self.architecture != "smollm3" || !(layer + 1).is_multiple_of(4) {
            let are_neighbours = matches!(self.architecture, "llama" | "smollm3");
            let slower = match self.tensor("rope_freqs.weight") {
                [] => self.tensor("rope_factors_short.weight"),
                all => all,
            };
            for vector in [&mut query, &mut key] {
                rotate(vector, each, position, base, are_neighbours, slower);
            }
        }
        (query, key, value)
    }

    /// Mean of the values, by the keys that are similar to the query of the last token.
    fn attention(&self, layer: u32, query: &[f64], keys: &[Vec<f64>], values: &[Vec<f64>]) -> Vec<f64> {
        let each = size(self.shape.width / self.shape.heads);
        let group = size(self.shape.heads / self.shape.kv_heads);
        let first = match self.has_window(layer) {
            true => keys.len().saturating_sub(size(WINDOW.into())),
            false => 0,
        };
        let (keys, values) = (&keys[first..], &values[first..]);
        let mut mixed = Vec::new();
        for (head, query) in query.chunks(each).enumerate() {
            let start = head / group * each;
            let score = |key: &Vec<f64>| {
                let sum: f64 = query.iter().zip(&key[start..]).map(|(a, b)| a * b).sum();
                let score = sum / (each as f64).sqrt();
                match self.architecture {
                    "gemma2" => 50.0 * (score / 50.0).tanh(),
                    _ => score,
                }
                .exp()
            };
            let scores: Vec<f64> = keys.iter().map(score).collect();
            let all: f64 = scores.iter().sum();
            for at in start..start + each {
                let weighted = scores.iter().zip(values).map(|(score, value)| score * value[at]);
                mixed.push(weighted.sum::<f64>() / all);
            }
        }
        mixed
    }

    fn hidden(&self, layer: u32, input: &[f64]) -> Vec<f64> {
        let name = |part: &str| format!("blk.{layer}.{part}");
        let (gate, up) = if self.architecture == "phi3" {
            let mut gate = self.times(&name("ffn_up"), input);
            let up = gate.split_off(size(self.shape.hidden));
            (gate, up)
        } else {
            (
                self.times(&name("ffn_gate"), input),
                self.times(&name("ffn_up"), input),
            )
        };
        let activation = if self.is_gemma() { gelu } else { silu };
        gate.iter()
            .zip(&up)
            .map(|(gate, up)| activation(*gate) * up)
            .collect()
    }
}
