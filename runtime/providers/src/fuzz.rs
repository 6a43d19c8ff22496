//! Fuzz targets for responses of servers, one per protocol. See `tests/fuzz` for how to run them.

#[path = "../../../tests/fuzz/mod.rs"]
mod runner;

use runner::Target;
use toolcell_core::Part;
use toolcell_core::provider::{Completion, Delta, Request};

use crate::anthropic::MessagesDecoder;
use crate::framing::{Framing, Reader};
use crate::gemini::GeminiDecoder;
use crate::http::{Decoder, DecoderState};
use crate::ollama::OllamaDecoder;
use crate::openai::ChatDecoder;
use crate::response_builder::ResponseBuilder;
use crate::responses::ResponsesDecoder;
use crate::robustness::WORDS;

/// Maximum bytes of deltas per byte of a response: an invalid byte in a text becomes the three bytes of U+FFFD.
const MOST_GROWTH: usize = 3;

/// Additional bytes of deltas, such as for calls without a name.
const MOST_MORE: usize = 1_024;

/// Maximum length of an error that quotes a server, in bytes.
const MAX_ERROR: usize = 8 << 10;

/// Result of decoding a response.
#[derive(Debug, PartialEq)]
struct Read {
    deltas: Vec<Delta>,
    end: Result<Completion, String>,
}

/// Decodes a response that arrives in chunks of `piece` bytes, like an exchange.
fn read(mut decoder: Box<dyn Decoder>, framing: Framing, bytes: &[u8], piece: usize) -> Read {
    let mut reader = Reader::new(framing);
    let mut answer = ResponseBuilder::to(&Request::default(), "p");
    let mut deltas = Vec::new();
    let end = (|| {
        let mut progress = DecoderState::Open;
        for chunk in bytes.chunks(piece).map(Some).chain([None]) {
            match chunk {
                Some(chunk) => reader.push(chunk),
                None => reader.end(),
            }
            while progress != DecoderState::Done
                && let Some(event) = reader.next().map_err(|error| error.to_string())?
            {
                let next = decoder.event(event, &mut answer);
                deltas.extend(answer.take_deltas());
                answer.check_size().map_err(|failure| failure.error.to_string())?;
                progress = next.map_err(|failure| failure.error.to_string())?;
            }
        }
        let completion = decoder.finish(&mut answer);
        deltas.extend(answer.take_deltas());
        let mut completion = completion.map_err(|failure| failure.error.to_string())?;
        for part in &mut completion.parts {
            // A call without an identifier gets a random one.
            if let Part::Call(call) = part {
                call.id.clear();
            }
        }
        Ok(completion)
    })();
    Read { deltas, end }
}

fn bytes_of(delta: &Delta) -> usize {
    match delta {
        Delta::Text(text) | Delta::Reasoning(text) => text.len(),
        Delta::CallStarted { name, .. } => name.len(),
        Delta::CallArguments { fragment, .. } => fragment.len(),
        _ => 0,
    }
}

/// The first byte selects the chunk size.
fn check(decoder: impl Fn() -> Box<dyn Decoder>, framing: Framing, input: &[u8]) -> String {
    let (piece, bytes) = input
        .split_first()
        .map_or((1, input), |(first, rest)| (1 + usize::from(first % 16), rest));
    let whole = read(decoder(), framing, bytes, bytes.len().max(1));
    let in_pieces = read(decoder(), framing, bytes, piece);
    assert_eq!(whole, in_pieces, "chunk boundaries do not change the result");
    let grown: usize = whole.deltas.iter().map(bytes_of).sum();
    assert!(
        grown <= MOST_GROWTH * bytes.len() + MOST_MORE,
        "{grown} bytes of {}",
        bytes.len()
    );
    match whole.end {
        Ok(completion) => {
            let kinds = whole.deltas.iter().map(|d| {
                format!("{d:?}")
                    .split(['(', ' '])
                    .next()
                    .unwrap_or_default()
                    .to_owned()
            });
            let kinds: std::collections::BTreeSet<String> = kinds.collect();
            format!("{:?} {kinds:?}", completion.stop)
        }
        Err(error) => {
            assert!(error.len() <= MAX_ERROR, "{} bytes of an error", error.len());
            error.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
        }
    }
}

fn fuzz(target: Target<'_>, framing: Framing, seeds: &[&str], decoder: impl Fn() -> Box<dyn Decoder>) {
    let tried = target
        .seeds(seeds.iter().map(|seed| format!("\u{5}{seed}")))
        .words(WORDS)
        .run(|input| check(&decoder, framing, input));
    assert!(tried.outcomes.len() >= 3, "{tried:?}");
}

#[test]
fn fuzz_chat_completions_answers_are_bounded() {
    let seeds = [
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hi\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n",
        "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"a\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]}}]}\n\ndata: {\"choices\":[{\"delta\":{},\"finish_reason\":\"tool_calls\"}],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2}}\n\ndata: [DONE]\n\n",
        "data: {\"choices\":[{\"delta\":{\"content\":\"<tool_call>{\\\"name\\\":\\\"f\\\",\\\"arguments\\\":{}}</tool_call>\",\"reasoning\":\"r\"}}]}\n\ndata: {\"error\":{\"message\":\"m\",\"code\":500}}\n\n",
    ];
    let target = Target::new("chat", 4_000);
    fuzz(target, Framing::Sse, &seeds, || Box::new(ChatDecoder::new("p")));
}

#[test]
fn fuzz_responses_answers_are_bounded() {
    let seeds = [
        "event: response.output_item.added\ndata: {\"type\":\"response.output_item.added\",\"output_index\":0,\"item\":{\"type\":\"function_call\",\"id\":\"i\",\"call_id\":\"c\",\"name\":\"f\",\"arguments\":\"\"}}\n\ndata: {\"type\":\"response.function_call_arguments.delta\",\"output_index\":0,\"delta\":\"{}\"}\n\ndata: {\"type\":\"response.completed\",\"response\":{\"status\":\"completed\",\"output\":[],\"usage\":{\"input_tokens\":1,\"output_tokens\":1}}}\n\n",
        "data: {\"type\":\"response.output_text.delta\",\"output_index\":0,\"delta\":\"hi\"}\n\ndata: {\"type\":\"response.incomplete\",\"response\":{\"status\":\"incomplete\",\"incomplete_details\":{\"reason\":\"max_output_tokens\"}}}\n\n",
    ];
    let target = Target::new("responses", 4_000);
    fuzz(target, Framing::Sse, &seeds, || {
        Box::new(ResponsesDecoder::new("p"))
    });
}

#[test]
fn fuzz_messages_answers_are_bounded() {
    let seeds = [
        "data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":1}}}\n\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"hi\"}}\n\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":2}}\n\ndata: {\"type\":\"message_stop\"}\n\n",
        "data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"tool_use\",\"id\":\"c\",\"name\":\"f\",\"input\":{}}}\n\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{}\"}}\n\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"m\"}}\n\n",
    ];
    let target = Target::new("messages", 4_000);
    fuzz(target, Framing::Sse, &seeds, || {
        Box::new(MessagesDecoder::new("p"))
    });
}

#[test]
fn fuzz_gemini_answers_are_bounded() {
    let seeds = [
        "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"hi\"}]}}]}\n\ndata: {\"candidates\":[{\"content\":{\"parts\":[{\"functionCall\":{\"name\":\"f\",\"args\":{\"a\":1}},\"thoughtSignature\":\"s\"}]},\"finishReason\":\"STOP\"}],\"usageMetadata\":{\"promptTokenCount\":1,\"candidatesTokenCount\":1}}\n\n",
        "data: {\"promptFeedback\":{\"blockReason\":\"SAFETY\"}}\n\n",
    ];
    let target = Target::new("gemini", 4_000);
    fuzz(target, Framing::Sse, &seeds, || Box::new(GeminiDecoder::new("p")));
}

#[test]
fn fuzz_ollama_answers_are_bounded() {
    let seeds = [
        "{\"message\":{\"role\":\"assistant\",\"content\":\"hi\"},\"done\":false}\n{\"message\":{\"content\":\"\"},\"done\":true,\"done_reason\":\"stop\",\"prompt_eval_count\":1,\"eval_count\":1}\n",
        "{\"message\":{\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":{\"a\":1}}}]},\"done\":true}\n",
        "{\"error\":\"m\"}\n",
    ];
    let target = Target::new("ollama", 4_000);
    fuzz(target, Framing::Lines, &seeds, || {
        Box::new(OllamaDecoder::new("p"))
    });
}
