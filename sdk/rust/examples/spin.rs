//! Misbehaving tool: never returns. Its cell ends it when its fuel or time is used up.

use toolcell_sdk::tool;

/// Think about a question for ever.
#[tool]
fn spin(question: String) -> String {
    let mut thought = question.len() as u64;
    while thought != 42 || std::hint::black_box(true) {
        thought = thought.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    }
    question
}

toolcell_sdk::export!(spin);
