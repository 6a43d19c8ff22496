//! Misbehaving tool: allocates memory without end. Its cell enforces the memory limit.

use toolcell_sdk::tool;

/// Remember everything.
#[tool]
fn hog() -> usize {
    let mut everything = Vec::new();
    loop {
        everything.push(std::hint::black_box(vec![1_u8; 1 << 20]));
    }
}

toolcell_sdk::export!(hog);
