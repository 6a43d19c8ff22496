//! Nothing by itself: brings `libfuzzer-sys`, whose build script compiles libFuzzer.
