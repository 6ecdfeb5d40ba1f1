//! Makes a C header of Rust sources, for `build.rs` here and in `bindings/c/redis`.
//!
//! cbindgen writes the declarations, all constants first, then all types, then
//! all functions. A reader wants them by subject: so what each source declares
//! becomes a section, with the comment on top of the file as its introduction.
//! What C readers don't need goes: `# Safety` sections, which the rules on the
//! header's first page sum up.

use std::collections::HashMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// Lines are at most this long.
const WIDTH: usize = 100;

/// A header to be made.
pub(crate) struct Header<'a> {
    /// Its name, without the ending.
    pub(crate) name: &'a str,
    /// What it includes.
    pub(crate) includes: &'a str,
    /// What comes before the first section.
    pub(crate) start: &'a str,
    /// The sources, in the order of their sections.
    pub(crate) files: Vec<String>,
    /// Types that another header declares.
    pub(crate) types_of_others: &'a [&'a str],
    /// Structs whose names another header has declared, under the names of C.
    pub(crate) opened: &'a [&'a str],
}

impl Header<'_> {
    /// Writes it to `OUT_DIR`.
    pub(crate) fn write(self) {
        println!("cargo::rerun-if-changed=cbindgen.toml");
        self.files.iter().for_each(|file| println!("cargo::rerun-if-changed={file}"));
        let files: Vec<Source> = self.files.iter().map(|file| Source::read(Path::new(file))).collect();
        let mut config = cbindgen::Config::from_file("cbindgen.toml").expect("a configuration that can be read");
        let first_page = config.header.take().expect("the first page");
        config.export.include = files.iter().flat_map(|file| file.types.iter().map(|(rust, _)| rust.clone())).collect();
        config.export.rename = files.iter().flat_map(|file| file.types.clone()).collect();
        let of_others = self.types_of_others.iter().map(|name| ((*name).to_owned(), name_in_c(name)));
        config.export.rename.extend(of_others);
        let mut builder = cbindgen::Builder::new().with_config(config);
        for file in &files {
            builder = builder.with_src(&file.path);
        }
        let mut made = Vec::new();
        builder.generate().expect("sources that cbindgen understands").write(&mut made);
        let mut blocks = blocks(&String::from_utf8(made).expect("UTF-8"));
        for name in self.opened {
            // A second typedef of a name is an error in C99.
            let block = blocks.get_mut(*name).expect("a struct of this name");
            *block = block.replacen("typedef struct", "struct", 1).replacen(&format!("}} {name};"), "};", 1);
        }
        let sections: Vec<String> = files.iter().map(|file| file.section(&mut blocks)).collect();
        assert!(blocks.is_empty(), "of no section: {:?}", blocks.keys());
        let guard = format!("{}_H", self.name.to_uppercase());
        let header = format!(
            "{}\n\n#ifndef {guard}\n#define {guard}\n\n{}\n#ifdef __cplusplus\nextern \"C\" {{\n#endif\n\n{}\n{}\n\
             #ifdef __cplusplus\n}} /* extern \"C\" */\n#endif\n\n#endif /* {guard} */\n",
            first_page.trim(),
            self.includes,
            self.start,
            sections.join("\n")
        );
        let out = env::var("OUT_DIR").expect("cargo names the directory");
        fs::write(Path::new(&out).join(self.name).with_extension("h"), header).expect("a directory to write to");
    }
}

/// A file of `src/ffi`.
struct Source {
    path: PathBuf,
    introduction: String,
    /// What it declares, under the names of C, in its order.
    names: Vec<String>,
    /// Its types, under the names of Rust and of C.
    types: Vec<(String, String)>,
}

impl Source {
    fn read(path: &Path) -> Self {
        let path = path.to_owned();
        let text = fs::read_to_string(&path).expect("a source that can be read");
        let introduction = text.lines().map_while(|line| line.strip_prefix("//!"));
        let introduction = introduction.filter(|line| !line.starts_with(" ```"));
        let introduction = introduction.map(|line| format!(" *{line}\n")).collect();
        let (mut names, mut types) = (Vec::new(), Vec::new());
        for line in text.lines() {
            let name_after = |keyword: &str| {
                let rest = line.strip_prefix(keyword)?;
                Some(rest.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).next()?.to_owned())
            };
            let of_type = name_after("pub struct ").or_else(|| name_after("pub enum "));
            if let Some(name) = of_type {
                names.push(name_in_c(&name));
                types.push((name.clone(), name_in_c(&name)));
            }
            let functions = [r#"pub unsafe extern "C" fn "#, r#"pub extern "C" fn "#];
            names.extend(name_after("pub const "));
            names.extend(functions.iter().find_map(|keyword| name_after(keyword)));
        }
        Self { path, introduction, names, types }
    }

    /// Takes what it declares out of the blocks: constants first, the rest in its order.
    fn section(&self, blocks: &mut HashMap<String, String>) -> String {
        let rule = "-".repeat(WIDTH - 3);
        let mut section = format!("/* {rule}\n{} */\n\n", self.introduction);
        let (constants, others): (Vec<_>, Vec<_>) = self.names.iter().partition(|name| name.starts_with("TOLLGATE"));
        for name in constants {
            section += &blocks.remove(name).ok_or(name).expect("a name that cbindgen has declared");
        }
        section += if section.ends_with("*/\n\n") { "" } else { "\n" };
        for name in others {
            section += &blocks.remove(name).ok_or(name).expect("a name that cbindgen has declared");
            section += "\n";
        }
        section
    }
}

/// `LaneState` is `tollgate_lane_state`.
fn name_in_c(name: &str) -> String {
    let words = name.chars().map(|c| match c.is_ascii_uppercase() {
        true => format!("_{}", c.to_ascii_lowercase()),
        false => c.to_string(),
    });
    format!("tollgate{}", words.collect::<String>())
}

/// Each declaration with its comment, by name. Between two is an empty line.
fn blocks(made: &str) -> HashMap<String, String> {
    let named = made.split("\n\n").filter_map(|block| {
        let block = block.trim();
        let code = block.rsplit_once("*/").map_or(block, |(_, code)| code).trim_start();
        let is_ours = code.contains("tollgate_") || code.starts_with("#define TOLLGATE_");
        is_ours.then(|| (name_of(block), polished(block)))
    });
    named.collect()
}

/// The name that a block declares.
fn name_of(block: &str) -> String {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let code = block.lines().find(|line| !line.starts_with([' ', '/'])).expect("a declaration");
    let name = match code.split_once('(') {
        Some((front, _)) => front.rsplit(|c| !is_name(c)).next(),
        None => code.split(|c| !is_name(c)).find(|word| word.to_ascii_lowercase().starts_with("tollgate_")),
    };
    name.expect("a name").to_owned()
}

/// A block as it stands in the header.
fn polished(block: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut is_safety = false;
    for line in block.lines() {
        let comment = line.trim_start();
        is_safety = (is_safety || comment == "* # Safety") && comment != "*/";
        if is_safety {
            continue;
        }
        if comment == "*/" {
            while lines.last().is_some_and(|last| last.trim() == "*") {
                lines.pop();
            }
            if let Some(short) = on_one_line(&lines) {
                lines.truncate(lines.len() - 2);
                lines.push(short);
                continue;
            }
        }
        let is_definition = line.starts_with("typedef struct ");
        lines.push(if is_definition { line.to_owned() } else { line.replace("struct tollgate_", "tollgate_") });
    }
    plain_enum(lines.join("\n")) + "\n"
}

/// A comment of one line, which ends here, if there is room.
fn on_one_line(lines: &[String]) -> Option<String> {
    let [.., start, text] = lines else { return None };
    let (indent, text) = (start.strip_suffix("/**")?, text.trim_start().strip_prefix("* ")?);
    let line = format!("{indent}/** {text} */");
    (line.len() <= WIDTH).then_some(line)
}

/// An enum that C and C++ agree on: a number, and names for it.
fn plain_enum(block: String) -> String {
    let Some((comment, rest)) = block.split_once("enum tollgate_") else { return block };
    let (name, rest) = rest.split_once('\n').expect("a body");
    let (_, body) = rest.split_once(" {\n").expect("a body");
    let (body, _) = body.split_once("\n};").expect("an end");
    format!("{comment}typedef int32_t tollgate_{name};\nenum {{\n{body}\n}};")
}
