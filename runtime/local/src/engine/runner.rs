//! The model in the engine's process: tokens, keys and values, and answers.

use std::cell::OnceCell;
use std::io;
use std::num::NonZeroU32;
use std::sync::OnceLock;

use llama_cpp_2::DecodeError;
use llama_cpp_2::context::LlamaContext;
use llama_cpp_2::context::params::LlamaContextParams;
use llama_cpp_2::llama_backend::LlamaBackend;
use llama_cpp_2::llama_batch::LlamaBatch;
use llama_cpp_2::model::LlamaModel;
use llama_cpp_2::model::params::LlamaModelParams;
use llama_cpp_2::token::LlamaToken;
use llama_cpp_2::token_type::LlamaTokenAttr;
use llama_cpp_2::vocab::VocabType;

use super::align::align;
use super::protocol::{Done, Fault, FromEngine, Generate, Load, Stop};
use super::stream::TextStream;
use crate::Model;
use crate::chat::{AnswerRules, Constraint, Piece, Segment};
use crate::sampling::Sampler;

/// Number of tokens that are evaluated at one time. More are hardly faster on a processor, and a request that is cancelled waits for
/// them.
const BATCH: u32 = 128;

/// Number of conversations whose keys and values are kept. They share the memory of one context: the one that was not used for
/// the longest time makes room.
const CONVERSATIONS: u32 = 8;

/// Tokens that are left for the end of a call beside those that it needs.
const SPARE_TOKENS: u64 = 4;

/// Kind of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Control,
    /// It ends the answer.
    End,
    /// It is never written.
    Unused,
}

/// Token of the vocabulary.
struct Word {
    kind: Kind,
    text: Box<[u8]>,
}

/// Keys and values of a conversation.
#[derive(Debug, Default)]
struct Kept {
    session: Option<String>,
    tokens: Vec<LlamaToken>,
    used: u64,
}

/// Model that is loaded.
pub(super) struct Runner<'m> {
    model: &'m LlamaModel,
    context: LlamaContext<'m>,
    batch: LlamaBatch<'static>,
    words: Vec<Word>,
    kept: Vec<Kept>,
    uses: u64,
    skips_space: bool,
    shares_beginnings: bool,
}

/// Receiver of the parts of an answer.
pub(super) type Say<'s> = &'s mut dyn FnMut(FromEngine) -> io::Result<()>;

fn failed(error: impl std::fmt::Display) -> Fault {
    Fault::Failed(error.to_string())
}

fn backend() -> Result<&'static LlamaBackend, Fault> {
    static BACKEND: OnceLock<Option<LlamaBackend>> = OnceLock::new();
    let backend = BACKEND.get_or_init(|| LlamaBackend::init().ok());
    backend
        .as_ref()
        .ok_or_else(|| failed("llama.cpp could not be started"))
}

/// Checks the header of a model, loads it, and runs `work` with it.
pub(super) fn with_model<T>(
    load: &Load,
    work: impl FnOnce(&mut Runner<'_>) -> io::Result<T>,
) -> Result<io::Result<T>, Fault> {
    let of_file = |error: &(dyn std::error::Error + 'static)| Fault::Model(toolcell_core::error_chain(error));
    let header = Model::open(&load.path).map_err(|error| of_file(&error))?;
    header.check().map_err(|error| of_file(&error))?;
    let backend = backend()?;
    let parameters = LlamaModelParams::default().with_n_gpu_layers(0);
    let model = LlamaModel::load_from_file(backend, &load.path, &parameters)
        .map_err(|_| Fault::Model("llama.cpp could not load it".into()))?;
    let threads = i32::try_from(load.threads).unwrap_or(1);
    let parameters = LlamaContextParams::default()
        .with_n_ctx(NonZeroU32::new(load.context))
        .with_n_batch(BATCH)
        .with_n_ubatch(BATCH)
        .with_n_seq_max(CONVERSATIONS)
        .with_kv_unified(true)
        .with_swa_full(true)
        .with_no_perf(true)
        .with_n_threads(threads)
        .with_n_threads_batch(threads);
    let context = model
        .new_context(backend, parameters)
        .map_err(|_| Fault::Model("llama.cpp could not allocate its context".into()))?;
    let mut runner = Runner::new(&model, context, load.shares_beginnings);
    Ok(work(&mut runner))
}

impl<'m> Runner<'m> {
    fn new(model: &'m LlamaModel, context: LlamaContext<'m>, shares_beginnings: bool) -> Self {
        let vocabulary = model.vocab();
        let word = |token: LlamaToken| {
            let attributes = vocabulary.attr(token);
            let is = |attribute| attributes.contains(attribute);
            let kind = if vocabulary.is_eog(token) {
                Kind::End
            } else if is(LlamaTokenAttr::Control) {
                Kind::Control
            } else if is(LlamaTokenAttr::Unknown) || is(LlamaTokenAttr::Unused) {
                Kind::Unused
            } else {
                Kind::Text
            };
            Word {
                kind,
                text: vocabulary.token_to_piece(token, true, None).into_boxed_slice(),
            }
        };
        Self {
            words: vocabulary.tokens().map(word).collect(),
            skips_space: vocabulary.vocab_type() == VocabType::SPM,
            batch: LlamaBatch::new(BATCH as usize, 1),
            kept: (0..CONVERSATIONS).map(|_| Kept::default()).collect(),
            uses: 0,
            shares_beginnings,
            context,
            model,
        }
    }

    /// Names of the control tokens.
    pub(super) fn control_names(&self) -> Vec<String> {
        let is_control = |word: &&Word| matches!(word.kind, Kind::Control | Kind::End);
        let names = self.words.iter().filter(is_control);
        names
            .filter_map(|word| String::from_utf8(word.text.to_vec()).ok())
            .collect()
    }

    /// Tokens of a prompt. The token with which texts begin comes first, if the model wants it.
    pub(super) fn tokens(&self, prompt: &[Segment]) -> Vec<LlamaToken> {
        let vocabulary = self.model.vocab();
        let mut tokens = Vec::new();
        for segment in prompt {
            vocabulary.tokenize_into(segment.text.as_bytes(), &mut tokens, false, !segment.is_plain);
        }
        let first = vocabulary.bos();
        if vocabulary.should_add_bos() && tokens.first() != Some(&first) {
            tokens.insert(0, first);
        }
        tokens
    }

    fn word(&self, token: LlamaToken) -> Option<&Word> {
        self.words.get(usize::try_from(token.0).ok()?)
    }

    /// Index of the conversation of a session, whose tokens are those that another one shares with `wanted`, if sessions share them,
    /// or those of its own past.
    fn conversation(&mut self, session: Option<&str>, wanted: &[LlamaToken]) -> Result<usize, Fault> {
        self.uses += 1;
        let own =
            session.and_then(|own| (self.kept.iter()).position(|kept| kept.session.as_deref() == Some(own)));
        let shared = |kept: &Kept| common(&kept.tokens, wanted);
        let index = match own {
            Some(index) => index,
            None => {
                let oldest =
                    (self.kept.iter().enumerate()).min_by_key(|(_, kept)| (kept.used, kept.tokens.len()));
                let index = oldest.map_or(0, |(index, _)| index);
                let nearest = (self.kept.iter().enumerate()).max_by_key(|(_, kept)| shared(kept));
                let (from, length) = nearest.map_or((index, 0), |(from, kept)| (from, shared(kept)));
                if !self.shares_beginnings {
                    self.forget(index, 0)?;
                } else if from != index {
                    self.forget(index, 0)?;
                    if length > 0 {
                        let end = u32::try_from(length).map_err(failed)?;
                        (self.context)
                            .copy_kv_cache_seq(sequence(from), sequence(index), Some(0), Some(end))
                            .map_err(failed)?;
                        self.kept[index].tokens = self.kept[from].tokens[..length].to_vec();
                    }
                }
                index
            }
        };
        self.kept[index].session = session.map(str::to_owned);
        self.kept[index].used = self.uses;
        Ok(index)
    }

    /// Removes the keys and values of a conversation from a token on.
    fn forget(&mut self, index: usize, from: usize) -> Result<(), Fault> {
        if self.kept[index].tokens.len() <= from {
            return Ok(());
        }
        let start = u32::try_from(from).map_err(failed)?;
        (self.context)
            .kv_cache_seq_rm(sequence(index), Some(start), None)
            .map_err(failed)?;
        self.kept[index].tokens.truncate(from);
        Ok(())
    }

    /// Evaluates tokens of a conversation, after those that it has.
    fn evaluate(&mut self, index: usize, tokens: &[LlamaToken]) -> Result<(), Fault> {
        self.batch.clear();
        let start = self.kept[index].tokens.len();
        for (at, token) in tokens.iter().enumerate() {
            let position = i32::try_from(start + at).map_err(failed)?;
            let is_last = at + 1 == tokens.len();
            (self.batch)
                .add(*token, position, &[sequence(index)], is_last)
                .map_err(failed)?;
        }
        loop {
            match self.context.decode(&mut self.batch) {
                Ok(()) => break,
                Err(DecodeError::NoKvCacheSlot) => {
                    let others = self.kept.iter().enumerate();
                    let oldest = others
                        .filter(|(other, kept)| *other != index && !kept.tokens.is_empty())
                        .min_by_key(|(_, kept)| kept.used);
                    let Some((oldest, _)) = oldest else {
                        return Err(self.too_long(start + tokens.len()));
                    };
                    self.forget(oldest, 0)?;
                    self.kept[oldest] = Kept::default();
                }
                Err(error) => return Err(failed(error)),
            }
        }
        self.kept[index].tokens.extend_from_slice(tokens);
        Ok(())
    }

    fn too_long(&self, tokens: usize) -> Fault {
        Fault::Context {
            tokens: tokens as u64,
            context: u64::from(self.context.n_ctx()),
        }
    }

    /// Numbers of the model for the next token, after the last evaluation.
    pub(super) fn logits(&self) -> &[f32] {
        self.context.get_logits_ith(self.batch.n_tokens() - 1)
    }

    /// Tokens of a conversation whose keys and values are kept.
    #[cfg(test)]
    pub(super) fn kept_tokens(&self, session: &str) -> Vec<i32> {
        let mut all = self.kept.iter();
        let kept = all.find(|kept| kept.session.as_deref() == Some(session));
        kept.map_or_else(Vec::new, |kept| kept.tokens.iter().map(|token| token.0).collect())
    }

    /// Answers a request.
    pub(super) fn generate(
        &mut self,
        job: &Generate,
        is_cancelled: &dyn Fn() -> bool,
        say: Say<'_>,
    ) -> Result<io::Result<Done>, Fault> {
        let size = self.context.n_ctx() as usize;
        let wanted = self.tokens(&job.prompt);
        if wanted.is_empty() {
            return Err(failed("the prompt is empty"));
        }
        if wanted.len() >= size {
            return Err(self.too_long(wanted.len()));
        }
        let index = self.conversation(job.session.as_deref(), &wanted)?;
        let own = &self.kept[index].tokens;
        let aligned = align(own, &wanted, |token| {
            let word = self.word(token)?;
            (word.kind == Kind::Text).then_some(&*word.text)
        });
        let tokens = if aligned.len() < size { aligned } else { wanted };
        // The last token is evaluated anew: what follows from it is not kept.
        let cached = common(own, &tokens).min(tokens.len() - 1);
        self.forget(index, cached)?;
        let mut done = Done {
            stop: Stop::Cancelled,
            input: tokens.len() as u64,
            cached: cached as u64,
            output: 0,
        };
        for chunk in tokens[cached..].chunks(BATCH as usize) {
            if is_cancelled() {
                return Ok(Ok(done));
            }
            self.evaluate(index, chunk)?;
        }
        let left = (size - tokens.len()) as u64;
        let most = job.max_tokens.unwrap_or(u64::MAX).min(left);
        let mut answer = Answer {
            constraint: Constraint::new(&job.rules),
            text: TextStream::new(
                &job.stop,
                self.skips_space && !matches!(job.rules, AnswerRules::Whole(_)),
            ),
            sampler: Sampler::new(job.sampling),
        };
        let stop = loop {
            if is_cancelled() {
                break Stop::Cancelled;
            }
            if done.output >= most {
                break Stop::MaxTokens;
            }
            let token = self.choose(&mut answer, most - done.output)?;
            done.output += 1;
            let word = &self.words[token];
            if word.kind == Kind::End {
                break Stop::Complete;
            }
            match answer.take(&word.text, say) {
                Ok(false) => {}
                Ok(true) => break Stop::Complete,
                Err(error) => return Ok(Err(error)),
            }
            if done.output < most {
                let token = LlamaToken::new(i32::try_from(token).map_err(failed)?);
                self.evaluate(index, &[token])?;
            }
        };
        done.stop = stop;
        if let Err(error) = answer.finish(say) {
            return Ok(Err(error));
        }
        Ok(Ok(done))
    }

    /// Chooses the next token, with `left` tokens until the answer must end.
    fn choose(&self, answer: &mut Answer<'_>, left: u64) -> Result<usize, Fault> {
        let constraint = &answer.constraint;
        let is_closing = !constraint.is_free() && constraint.least().saturating_add(SPARE_TOKENS) >= left;
        let first: OnceCell<Vec<bool>> = OnceCell::new();
        let begins = |byte: u8| {
            let first = first.get_or_init(|| (0..=u8::MAX).map(|byte| constraint.allows(&[byte])).collect());
            first.get(usize::from(byte)).copied().unwrap_or(false)
        };
        let is_allowed = |token: usize| {
            let Some(word) = self.words.get(token) else {
                return false;
            };
            match (word.kind, word.text.first()) {
                (Kind::End, _) => constraint.may_end(),
                (Kind::Unused, _) | (_, None) => false,
                (_, Some(first)) if !begins(*first) => false,
                // Names of control tokens are part of a call only where its form has them.
                (kind, _) if is_closing || (kind == Kind::Control && !constraint.is_free()) => {
                    constraint.closes(&word.text)
                }
                _ => constraint.allows(&word.text),
            }
        };
        (answer.sampler)
            .choose(self.logits(), is_allowed)
            .ok_or_else(|| failed("no token of the model continues the answer"))
    }
}

/// Answer that is being written.
struct Answer<'r> {
    constraint: Constraint<'r>,
    text: TextStream,
    sampler: Sampler,
}

impl Answer<'_> {
    /// Appends the text of a token. Returns true if the answer ends with it.
    fn take(&mut self, bytes: &[u8], say: Say<'_>) -> io::Result<bool> {
        for piece in self.constraint.push(bytes) {
            match piece {
                Piece::Text(bytes) => {
                    let (text, is_end) = self.text.push(&bytes);
                    say_text(text, say)?;
                    if is_end {
                        return Ok(true);
                    }
                }
                Piece::Call(bytes) => {
                    say_text(self.text.finish(), say)?;
                    say(FromEngine::Call(String::from_utf8_lossy(&bytes).into_owned()))?;
                }
            }
        }
        Ok(self.constraint.must_end())
    }

    fn finish(&mut self, say: Say<'_>) -> io::Result<()> {
        if let Some(Piece::Text(bytes)) = self.constraint.finish() {
            let (text, _) = self.text.push(&bytes);
            say_text(text, say)?;
        }
        say_text(self.text.finish(), say)
    }
}

fn say_text(text: String, say: Say<'_>) -> io::Result<()> {
    match text.is_empty() {
        true => Ok(()),
        false => say(FromEngine::Text(text)),
    }
}

/// Number of the sequence of a conversation.
fn sequence(index: usize) -> i32 {
    i32::try_from(index).unwrap_or(0)
}

/// Number of equal tokens at the beginning.
fn common(one: &[LlamaToken], other: &[LlamaToken]) -> usize {
    one.iter().zip(other).take_while(|(a, b)| a == b).count()
}
