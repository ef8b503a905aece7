//! The source files of a crate, found by the declarations of modules.

use std::path::{Path, PathBuf};

/// A source file of a crate, which is a module.
pub struct SourceFile {
    /// The name of the module; empty for the first file of a crate.
    pub module: String,
    /// True if this module and all modules around it are `pub`.
    pub is_public: bool,
    /// The path of the file.
    pub path: PathBuf,
    /// The content of the file.
    pub text: String,
}

/// A declaration of a module, such as `pub mod store;`.
pub struct ModuleDeclaration<'a> {
    /// The name of the module.
    pub name: &'a str,
    /// True for `pub mod`.
    pub is_public: bool,
    /// The attributes of the declaration, a line each.
    pub attributes: Vec<&'a str>,
}

/// Returns the files of a crate: the first one, and those of the declarations that `follows` accepts.
///
/// # Panics
///
/// When a file is missing.
pub fn source_files(root: &Path, follows: impl Fn(&ModuleDeclaration<'_>) -> bool) -> Vec<SourceFile> {
    let mut files = Vec::new();
    let folder = root.parent().expect("it is in a folder").to_owned();
    let mut rest = vec![(String::new(), true, folder, root.to_owned())];
    while let Some((module, is_public, folder, path)) = rest.pop() {
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        for found in module_declarations(&text).into_iter().filter(&follows) {
            let file = found.file(&path, &folder);
            rest.push((found.name.to_owned(), is_public && found.is_public, folder.join(found.name), file));
        }
        files.push(SourceFile { module, is_public, path, text });
    }
    files
}

/// Returns the modules that a file declares and that have a file of their own.
pub fn module_declarations(text: &str) -> Vec<ModuleDeclaration<'_>> {
    let (mut found, mut attributes) = (Vec::new(), Vec::new());
    for line in text.lines() {
        if line.starts_with("#[") {
            attributes.push(line);
            continue;
        }
        let name = line.rsplit_once("mod ").and_then(|(before, name)| {
            let is_declaration = before.is_empty() || before.starts_with("pub");
            name.strip_suffix(';').filter(|_| is_declaration)
        });
        let attributes = std::mem::take(&mut attributes);
        found.extend(name.map(|name| ModuleDeclaration { name, is_public: line.starts_with("pub mod "), attributes }));
    }
    found
}

impl ModuleDeclaration<'_> {
    /// Returns the file of the module. `path` is the file with the declaration, `folder` the folder of its modules.
    pub fn file(&self, path: &Path, folder: &Path) -> PathBuf {
        let named = self.attributes.iter().find_map(|line| line.strip_prefix("#[path = \"")?.strip_suffix("\"]"));
        match named {
            Some(file) => path.parent().expect("it is in a folder").join(file),
            None => folder.join(format!("{}.rs", self.name)),
        }
    }
}
