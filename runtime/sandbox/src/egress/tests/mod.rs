//! Requests through the whole path against servers on the loopback device. [`World`] is a network with names and
//! public addresses of its own, all of which lead to those servers.

mod anything;
mod corpus;
mod fuzz;
mod limits;
mod policy;
mod redirects;
mod secrets;
mod tls;
mod world;
