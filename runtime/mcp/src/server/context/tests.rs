//! Conversations about resources and prompts.
