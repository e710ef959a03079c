//! The life of sandboxes.
