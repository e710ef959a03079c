//! The agent as a process, spoken to over FIFOs through the library that the server uses.

mod contexts;
mod exec;
mod files;
mod harness;
mod hostile;
mod timings;
