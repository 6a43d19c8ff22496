//! A forward pass of Llama in 64-bit numbers, as plain as possible, to which the engine is compared.

use crate::testing::{FileWriter, Shape};

/// Weights of a file.
pub(super) struct Reference {
    shape: Shape,
    tensors: Vec<(String, Vec<f64>)>,
}

/// Reads half precision.
fn of_half(bits: u16) -> f64 {
    let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
    let exponent = i32::from(bits >> 10 & 0x1f);
    let fraction = f64::from(bits & 0x3ff) / 1024.0;
    match exponent {
        0 => sign * fraction * 2f64.powi(-14),
        _ => sign * (1.0 + fraction) * 2f64.powi(exponent - 15),
    }
}

impl Reference {
    /// Reads the weights, of half precision and of 32 bits.
    pub(super) fn of(file: &FileWriter, shape: Shape) -> Self {
        let numbers = |kind: u32, data: &[u8]| -> Vec<f64> {
            match kind {
                1 => data
                    .chunks(2)
                    .map(|two| of_half(u16::from_le_bytes(two.try_into().unwrap())))
                    .collect(),
                0 => data
                    .chunks(4)
                    .map(|four| f64::from(f32::from_le_bytes(four.try_into().unwrap())))
                    .collect(),
                other => panic!("type {other}"),
            }
        };
        let tensors = file.tensors.iter();
        Self {
            tensors: tensors
                .map(|tensor| (tensor.name.clone(), numbers(tensor.kind, &tensor.data)))
                .collect(),
            shape,
        }
    }

    fn tensor(&self, name: &str) -> &[f64] {
        let found = self.tensors.iter().find(|(known, _)| known == name);
        found.map_or_else(|| panic!("{name}"), |(_, numbers)| numbers)
    }

    /// Product of a matrix, whose rows are as long as the vector, and a vector.
    fn times(&self, name: &str, vector: &[f64]) -> Vec<f64> {
        let rows = self.tensor(name).chunks(vector.len());
        rows.map(|row| row.iter().zip(vector).map(|(a, b)| a * b).sum())
            .collect()
    }

    fn norm(&self, name: &str, vector: &[f64]) -> Vec<f64> {
        let mean = vector.iter().map(|x| x * x).sum::<f64>() / vector.len() as f64;
        let scale = 1.0 / (mean + 1e-5).sqrt();
        vector
            .iter()
            .zip(self.tensor(name))
            .map(|(x, weight)| x * scale * weight)
            .collect()
    }

    /// Turns neighbouring numbers of each head by the position.
    fn rotate(vector: &mut [f64], each: usize, position: usize) {
        for head in vector.chunks_mut(each) {
            for (pair, numbers) in head.chunks_mut(2).enumerate() {
                let angle = position as f64 * 10_000f64.powf(-2.0 * pair as f64 / each as f64);
                let (sin, cos) = angle.sin_cos();
                let (a, b) = (numbers[0], numbers[1]);
                numbers[0] = a * cos - b * sin;
                numbers[1] = a * sin + b * cos;
            }
        }
    }

    /// Numbers for the token after these.
    pub(super) fn logits(&self, tokens: &[i32]) -> Vec<f64> {
        let size = |number: u64| usize::try_from(number).unwrap();
        let width = size(self.shape.width);
        let (heads, kv_heads) = (size(self.shape.heads), size(self.shape.kv_heads));
        let each = width / heads;
        let embedding = self.tensor("token_embd.weight");
        let mut states: Vec<Vec<f64>> = (tokens.iter())
            .map(|token| embedding[*token as usize * width..][..width].to_vec())
            .collect();
        for layer in 0..self.shape.layers {
            let name = |part: &str| format!("blk.{layer}.{part}.weight");
            let (mut keys, mut values) = (Vec::new(), Vec::new());
            for (position, state) in states.iter_mut().enumerate() {
                let input = self.norm(&name("attn_norm"), state);
                let mut query = self.times(&name("attn_q"), &input);
                let mut key = self.times(&name("attn_k"), &input);
                Self::rotate(&mut query, each, position);
                Self::rotate(&mut key, each, position);
                keys.push(key);
                values.push(self.times(&name("attn_v"), &input));
                let mut mixed = Vec::new();
                for head in 0..heads {
                    let kv = head / (heads / kv_heads) * each;
                    let query = &query[head * each..][..each];
                    let score = |key: &Vec<f64>| {
                        let sum: f64 = query.iter().zip(&key[kv..]).map(|(a, b)| a * b).sum();
                        (sum / (each as f64).sqrt()).exp()
                    };
                    let scores: Vec<f64> = keys.iter().map(score).collect();
                    let all: f64 = scores.iter().sum();
                    for at in 0..each {
                        let weighted = scores
                            .iter()
                            .zip(&values)
                            .map(|(score, value)| score * value[kv + at]);
                        mixed.push(weighted.sum::<f64>() / all);
                    }
                }
                for (x, more) in state.iter_mut().zip(self.times(&name("attn_output"), &mixed)) {
                    *x += more;
                }
                let input = self.norm(&name("ffn_norm"), state);
                let gate = self.times(&name("ffn_gate"), &input);
                let up = self.times(&name("ffn_up"), &input);
                let hidden: Vec<f64> = gate
                    .iter()
                    .zip(&up)
                    .map(|(g, u)| g / (1.0 + (-g).exp()) * u)
                    .collect();
                for (x, more) in state.iter_mut().zip(self.times(&name("ffn_down"), &hidden)) {
                    *x += more;
                }
            }
        }
        let last = self.norm("output_norm.weight", &states[states.len() - 1]);
        self.times("token_embd.weight", &last)
    }
}
