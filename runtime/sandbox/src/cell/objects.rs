//! What the resources of a cell cost.
//!
//! Most resources are made by the implementations of WASI that come with the engine, which know nothing of an account.
//! Each of them stands in the cell's resource table, so that is where they are charged: all entries are priced whenever
//! the guest enters the host, and a guest whose entries come to more than it may have gets no further. A price is the
//! most that the host holds behind one entry of the kind. What has no such bound reserves memory before it allocates
//! ([`Reservation`](crate::cell::memory::Reservation)), and its entry has a small price here.

use std::any::Any;

use wasmtime::component::ResourceTable;
use wasmtime_wasi::filesystem::Descriptor;
use wasmtime_wasi_http::FieldMap;
use wasmtime_wasi_http::p2::bindings::http::types::{Method, Scheme};
use wasmtime_wasi_http::p2::body::{HostFutureTrailers, HostIncomingBody};
use wasmtime_wasi_http::p2::types::{
    HostFutureIncomingResponse, HostIncomingResponse, HostOutgoingRequest, HostOutgoingResponse,
};

use crate::egress::BODY_CHUNK;

/// Bytes of an entry whose kind is not named in [`price`]: the entry itself, and an object of some machine words.
pub(crate) const SMALL: u64 = 512;

/// Bytes of a descriptor: its entry, and its path in two spellings of at most 4 KiB each.
const DESCRIPTOR: u64 = 9 << 10;

/// Bytes of headers or trailers. Those that a guest makes have at most 32 KiB of names, values and 40 bytes for each
/// ([`MAX_REQUEST_HEADERS`](crate::egress::MAX_REQUEST_HEADERS)), which is some 450 names or 820 values, and tables for
/// as many take 150 KiB. Those of a response are 256 at most and hold a buffer of 128 KiB.
const FIELDS: u64 = 192 << 10;

/// Bytes of a request body that wait to be sent, and of trailers behind them.
const OUTGOING_BODY: u64 = 2 * BODY_CHUNK as u64 + FIELDS;

/// Bytes of the body of a response: one piece that was received and not read, and trailers.
const INCOMING_BODY: u64 = (128 << 10) + FIELDS;

/// Bytes that a request takes from when it is sent until its response is read: headers, body and trailers.
pub(crate) const REQUEST: u64 = FIELDS + OUTGOING_BODY;

/// Bytes that a connection takes: two buffers of 128 KiB, those of TLS, and the headers of the response.
pub(crate) const CONNECTION: u64 = (256 << 10) + (64 << 10) + FIELDS;

/// Bytes behind all entries of a table.
pub(crate) fn price_of_all(table: &mut ResourceTable) -> u64 {
    table.iter_mut().map(|entry| price(&*entry)).sum()
}

/// Bytes behind one entry.
fn price(entry: &(dyn Any + Send)) -> u64 {
    if entry.is::<Descriptor>() {
        DESCRIPTOR
    } else if entry.is::<FieldMap>() {
        FIELDS
    } else if let Some(request) = entry.downcast_ref::<HostOutgoingRequest>() {
        FIELDS + request.body.as_ref().map_or(0, |_| OUTGOING_BODY) + strings(request)
    } else if entry.is::<HostOutgoingResponse>() {
        FIELDS + OUTGOING_BODY
    } else if entry.is::<HostIncomingResponse>() {
        FIELDS
    } else if let Some(future) = entry.downcast_ref::<HostFutureIncomingResponse>() {
        match future {
            HostFutureIncomingResponse::Consumed => SMALL,
            // What is under way has reserved its memory; this is the answer that waits.
            HostFutureIncomingResponse::Pending(_) | HostFutureIncomingResponse::Ready(_) => FIELDS,
        }
    } else if entry.is::<HostIncomingBody>() || entry.is::<HostFutureTrailers>() {
        INCOMING_BODY
    } else {
        SMALL
    }
}

/// Bytes of the texts that a guest gave a request. Nothing bounds the name of a method.
fn strings(request: &HostOutgoingRequest) -> u64 {
    let method = match &request.method {
        Method::Other(name) => name.capacity(),
        _ => 0,
    };
    let scheme = match &request.scheme {
        Some(Scheme::Other(name)) => name.capacity(),
        _ => 0,
    };
    let authority = request.authority.as_ref().map_or(0, String::capacity);
    let path = request.path_with_query.as_ref().map_or(0, String::capacity);
    (method + scheme + authority + path) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table_with<T: Send + 'static>(count: usize, make: impl Fn() -> T) -> ResourceTable {
        let mut table = ResourceTable::new();
        for _ in 0..count {
            table.push(make()).unwrap();
        }
        table
    }

    #[test]
    fn each_entry_of_a_table_has_a_price() {
        assert_eq!(price_of_all(&mut ResourceTable::new()), 0);
        assert_eq!(
            price_of_all(&mut table_with(3, || FieldMap::new_mutable(1))),
            3 * FIELDS
        );
        assert_eq!(
            price_of_all(&mut table_with(3, || "of a kind that is not named")),
            3 * SMALL
        );
    }

    #[test]
    fn the_texts_of_a_request_have_their_length_as_price() {
        let request = |length| HostOutgoingRequest {
            method: Method::Other("M".repeat(length)),
            scheme: None,
            authority: None,
            path_with_query: Some("p".repeat(length)),
            headers: FieldMap::new_mutable(1),
            body: None,
        };
        assert_eq!(price_of_all(&mut table_with(1, || request(0))), FIELDS);
        assert_eq!(
            price_of_all(&mut table_with(1, || request(1_000))),
            FIELDS + 2_000
        );
    }
}
