//! How one connection after another is carried over a pair of pipes.
