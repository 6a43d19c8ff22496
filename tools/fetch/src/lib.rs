//! The tools `fetch`, which reads a web page as Markdown of its main content, and `fetch_send`, which sends any request.

mod charset;
mod coding;
mod fetch;
mod html;
mod indent;
mod page;
mod pdf;
mod redirect;
mod response;
mod send;
mod wire;

toolcell_sdk::export!(fetch::fetch, send::fetch_send);
