//! Memory cost of the resources of a cell.
//!
//! Most resources are created by the engine's WASI implementation, which does not use a memory account. Each of them
//! has an entry in the cell's resource table, where it is charged: all entries are priced whenever the guest calls the
//! host, and a guest whose entries exceed its limit is stopped. A price is the maximum host memory behind one entry of
//! the kind. Resources without such a bound reserve memory before allocating
//! ([`Reservation`](crate::cell::memory::Reservation)), and their entries have a small price here.

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

/// Price of an entry whose kind is not listed in [`price`], in bytes: the entry itself, and an object of a few machine
/// words.
pub(crate) const SMALL: u64 = 512;

/// Price of a descriptor: its entry, and its path in two forms of at most 4 KiB each.
const DESCRIPTOR: u64 = 9 << 10;

/// Price of headers or trailers. Those that a guest creates have at most 32 KiB of names, values and 40 bytes for each
/// ([`MAX_REQUEST_HEADERS`](crate::egress::MAX_REQUEST_HEADERS)), which is about 450 names or 820 values, and tables of
/// that size take 150 KiB. Those of a response are at most 256 and hold a buffer of 128 KiB.
const FIELDS: u64 = 192 << 10;

/// Price of the unsent part of a request body and its trailers.
const OUTGOING_BODY: u64 = 2 * BODY_CHUNK as u64 + FIELDS;

/// Price of a response body: one received and unread piece, and trailers.
const INCOMING_BODY: u64 = (128 << 10) + FIELDS;

/// Price of a request from when it is sent until its response is read: headers, body and trailers.
pub(crate) const REQUEST: u64 = FIELDS + OUTGOING_BODY;

/// Price of a connection: two buffers of 128 KiB, those of TLS, and the headers of the response.
pub(crate) const CONNECTION: u64 = (256 << 10) + (64 << 10) + FIELDS;

/// Returns the total price of all entries of a table.
pub(crate) fn price_of_all(table: &mut ResourceTable) -> u64 {
    table.iter_mut().map(|entry| price(&*entry)).sum()
}

/// Returns the price of one entry.
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
            // A pending request has reserved its memory; this is the waiting response.
            HostFutureIncomingResponse::Pending(_) | HostFutureIncomingResponse::Ready(_) => FIELDS,
        }
    } else if entry.is::<HostIncomingBody>() || entry.is::<HostFutureTrailers>() {
        INCOMING_BODY
    } else {
        SMALL
    }
}

/// Returns the size of the texts that a guest set on a request. The name of a method is unbounded.
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
    use wasmtime_wasi_http::WasiBody;

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
            price_of_all(&mut table_with(3, || "of an unlisted kind")),
            3 * SMALL
        );
    }

    #[test]
    fn texts_of_a_request_are_priced_by_their_length() {
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

    #[test]
    fn requests_and_their_texts_are_priced_in_full() {
        let request = |body: bool| HostOutgoingRequest {
            method: Method::Other("M".repeat(0x10)),
            scheme: Some(Scheme::Other("s".repeat(0x20))),
            authority: Some("a".repeat(0x40)),
            path_with_query: Some("p".repeat(0x80)),
            headers: FieldMap::new_mutable(1),
            body: body.then(WasiBody::default),
        };
        assert_eq!(price_of_all(&mut table_with(1, || request(false))), FIELDS + 0xf0);
        assert_eq!(
            price_of_all(&mut table_with(1, || request(true))),
            FIELDS + OUTGOING_BODY + 0xf0
        );
        assert_eq!(
            price_of_all(&mut table_with(1, || HostFutureIncomingResponse::Consumed)),
            SMALL
        );
    }

    #[test]
    fn responses_and_bodies_are_priced_in_every_state() {
        let body = || HostIncomingBody::new(WasiBody::default());
        let price = |mut table: ResourceTable| price_of_all(&mut table);
        let sent = |body: Option<WasiBody>| HostOutgoingResponse {
            status: http::StatusCode::OK,
            headers: FieldMap::new_mutable(1),
            body,
        };
        assert_eq!(price(table_with(1, || sent(None))), FIELDS + OUTGOING_BODY);
        let received = |body: Option<HostIncomingBody>| HostIncomingResponse {
            status: 200,
            headers: FieldMap::new_mutable(1),
            body,
        };
        assert_eq!(price(table_with(1, || received(None))), FIELDS);
        assert_eq!(price(table_with(1, body)), INCOMING_BODY);
        assert_eq!(
            price(table_with(1, || HostFutureTrailers::Waiting(body()))),
            INCOMING_BODY
        );
        assert_eq!(
            price(table_with(1, || HostFutureTrailers::Consumed)),
            INCOMING_BODY
        );
        let failed = || HostFutureIncomingResponse::Ready(Err(wasmtime_wasi_http::Error::DnsTimeout));
        assert_eq!(price(table_with(1, failed)), FIELDS);
    }
}
