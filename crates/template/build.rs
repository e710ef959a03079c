//! Embeds the interpreter's Python and JavaScript files, so that one binary holds everything a template needs.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
};

const PACKAGE: &str = "../../guest/interpreter/pandastack_interpreter";

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed={PACKAGE}");
    println!("cargo::rerun-if-changed=../../guest/templates");
    let mut files = Vec::new();
    if Path::new(PACKAGE).is_dir() {
        collect(Path::new(PACKAGE), &mut files)?;
    }
    files.sort();
    let root = Path::new(PACKAGE).parent().expect("the package has a parent");
    let mut table = String::from("pub(crate) static INTERPRETER_FILES: &[(&str, &[u8])] = &[\n");
    for file in &files {
        let name = file.strip_prefix(root).expect("collected below the root").display();
        let include = format!("include_bytes!(concat!(env!(\"CARGO_MANIFEST_DIR\"), \"/{}\"))", file.display());
        table.push_str(&format!("    (\"{name}\", {include}),\n"));
    }
    table.push_str("];\n");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    fs::write(out.join("interpreter_files.rs"), table)
}

fn collect(dir: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let (path, kind) = (entry.path(), entry.file_type()?);
        if kind.is_dir() && entry.file_name() != "__pycache__" && entry.file_name() != "tests" {
            println!("cargo::rerun-if-changed={}", path.display());
            collect(&path, files)?;
        } else if kind.is_file() && path.extension().is_some_and(|extension| extension == "py" || extension == "cjs") {
            files.push(path);
        }
    }
    Ok(())
}
