//! Rebuilds the crate when a migration is added: the macro embeds the directory.

fn main() {
    println!("cargo::rerun-if-changed=migrations");
}
