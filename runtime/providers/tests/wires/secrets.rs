//! A planted key is looked for in everything that comes out of a provider.

use serde_json::json;
use toolcell_core::Provider;
use toolcell_providers::{ApiKey, HttpOptions, anthropic, gemini, ollama, openai, responses};

use crate::conversation::*;
use crate::loopback::{Reply, Server};

const KEY: &str = "sk-planted-0123456789";
const HEADER: &str = "planted-header-value";

fn options() -> HttpOptions {
    let mut options = http();
    options.retry.retries = 1;
    options.headers.push(("x-gateway".into(), HEADER.into()));
    options
}

/// Every provider that speaks HTTP, with what its settings show of themselves.
fn providers(url: &str) -> Vec<(Box<dyn Provider>, String)> {
    macro_rules! provider {
        ($options:expr, $provider:path) => {{
            let mut options = $options;
            options.base_url = url.into();
            options.api_key = Some(ApiKey::new(KEY));
            options.http = self::options();
            let shown = format!("{options:?}");
            let provider = $provider(options).unwrap();
            let shown = format!("{shown}{provider:?}");
            (Box::new(provider) as Box<dyn Provider>, shown)
        }};
    }
    vec![
        provider!(openai::Options::new("m"), openai::OpenAi::new),
        provider!(responses::Options::new("m"), responses::OpenAiResponses::new),
        provider!(anthropic::Options::new("m"), anthropic::Anthropic::new),
        provider!(gemini::Options::new("m"), gemini::Gemini::new),
        provider!(ollama::Options::new("m"), ollama::Ollama::new),
    ]
}

#[tokio::test]
async fn no_error_no_delta_and_no_debug_output_holds_a_key() {
    let told = format!("you sent {KEY} and {HEADER}");
    let error = json!({"type": "error", "error": {"type": "e", "message": told}}).to_string();
    let replies = [
        Reply::json(401, error.clone()),
        Reply::new(500, "text/html", format!("<h1>{told}</h1>")),
        Reply::new(200, "text/html", told.clone()),
        Reply::events(&[&error]),
        Reply::new(200, "application/x-ndjson", format!("{error}\n")),
        Reply::json(
            400,
            json!({"error": {"message": format!("{}{KEY}", "x".repeat(485))}}).to_string(),
        ),
        Reply::sse(format!("data: {told}\n\n")),
        Reply::sse(format!("data: {{\"{told}\":1}}\n\n")),
    ];
    for reply in replies {
        for number in 0..5 {
            let server = Server::start([reply.clone(), reply.clone()]).await;
            let (provider, shown) = providers(&server.url("")).swap_remove(number);
            let (deltas, end) = play(&*provider, hello()).await;
            let error = end.unwrap_err();
            let everything = format!("{shown} {deltas:?} {error:?} {error} {}", json!(error));
            assert!(!everything.contains("planted"), "{everything}");
            let sent = server.received()[0]
                .headers
                .iter()
                .filter(|(_, v)| v.contains("planted"))
                .count();
            assert_eq!(sent, 2, "the server itself got both");
        }
    }
}
