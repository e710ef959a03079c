//! The surface over a manager without machines: everything that needs no sandbox.

mod auth;
mod bad_input;
mod envelope;
mod server;
mod streams;
mod support;
mod unbuilt;
