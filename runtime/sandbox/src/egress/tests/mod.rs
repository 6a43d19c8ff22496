//! Requests through the complete egress against servers on the loopback device. [`FakeNetwork`] is a network with its own
//! names and public addresses, all of which lead to those servers.

mod anything;
mod corpus;
mod fake_network;
mod fuzz;
mod limits;
mod policy;
mod redirects;
mod secrets;
mod tls;
