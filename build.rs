//! With the feature `header`: makes the C header in `OUT_DIR`, where
//! `tests/header.rs` compares it with the committed one and `make header`
//! finds it. Nothing is ever written to the tree.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "header")]
    header::generate();
}

/// cbindgen writes the declarations, all constants first, then all types, then
/// all functions. A reader wants them by subject: so what each file of `src/ffi`
/// declares becomes a section, with the comment on top of the file as its
/// introduction. What C readers don't need goes: `# Safety` sections, which the
/// rules on the header's first page sum up.
#[cfg(feature = "header")]
mod header {
    use std::collections::HashMap;
    use std::env;
    use std::fs;
    use std::path::{Path, PathBuf};

    /// The files of `src/ffi` that declare something for C, in the order of the header.
    const FILES: [&str; 24] = [
        "status",
        "error",
        "library",
        "clock",
        "policy",
        "shared",
        "limiter",
        "request",
        "verdict",
        "check",
        "all",
        "lane",
        "reservation",
        "conduct",
        "control",
        "assignment",
        "budgets",
        "action",
        "snapshot",
        "agent",
        "offender",
        "event",
        "report",
        "log",
    ];

    /// Lines are at most this long.
    const WIDTH: usize = 100;

    pub(crate) fn generate() {
        println!("cargo::rerun-if-changed=cbindgen.toml");
        println!("cargo::rerun-if-changed=src/ffi");
        let files: Vec<Source> = FILES.iter().copied().map(Source::read).collect();
        let mut config = cbindgen::Config::from_file("cbindgen.toml").expect("a configuration that can be read");
        let first_page = config.header.take().expect("the first page");
        config.export.rename = files.iter().flat_map(|file| file.types.clone()).collect();
        config.export.include = files.iter().flat_map(|file| file.types.iter().map(|(rust, _)| rust.clone())).collect();
        let mut builder = cbindgen::Builder::new().with_config(config);
        for file in &files {
            builder = builder.with_src(&file.path);
        }
        let mut made = Vec::new();
        builder.generate().expect("sources that cbindgen understands").write(&mut made);
        let mut blocks = blocks(&String::from_utf8(made).expect("UTF-8"));
        let sections: Vec<String> = files.iter().map(|file| file.section(&mut blocks)).collect();
        assert!(blocks.is_empty(), "of no section: {:?}", blocks.keys());
        let out = env::var("OUT_DIR").expect("cargo names the directory");
        let header = format!("{}\n\n{}\n{}\n{END}", first_page.trim(), start(), sections.join("\n"));
        fs::write(Path::new(&out).join("tollgate.h"), header).expect("a directory to write to");
    }

    const END: &str = "#ifdef __cplusplus\n} /* extern \"C\" */\n#endif\n\n#endif /* TOLLGATE_H */\n";

    /// What comes before the first section.
    fn start() -> String {
        let part = |part: &str| env::var(format!("CARGO_PKG_VERSION_{part}")).expect("cargo names the version");
        let [major, minor, patch] = ["MAJOR", "MINOR", "PATCH"].map(part);
        format!(
            "#ifndef TOLLGATE_H\n#define TOLLGATE_H\n\n\
             #include <stdbool.h>\n#include <stddef.h>\n#include <stdint.h>\n\n\
             #ifdef __cplusplus\nextern \"C\" {{\n#endif\n\n\
             /** The version this program is compiled with; tollgate_version is the one that runs. */\n\
             #define TOLLGATE_VERSION \"{major}.{minor}.{patch}\"\n\
             #define TOLLGATE_VERSION_MAJOR {major}\n\
             #define TOLLGATE_VERSION_MINOR {minor}\n\
             #define TOLLGATE_VERSION_PATCH {patch}\n\
             #define TOLLGATE_VERSION_NUMBER \\\n  \
             (TOLLGATE_VERSION_MAJOR * 65536 + TOLLGATE_VERSION_MINOR * 256 + TOLLGATE_VERSION_PATCH)\n\n\
             /** The address and the length of a string literal or a char array, as two arguments. */\n\
             #define TOLLGATE_LITERAL(text) (text), (sizeof(text) - 1)\n"
        )
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
        fn read(name: &str) -> Self {
            let path = Path::new("src/ffi").join(name).with_extension("rs");
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
            let (constants, others): (Vec<_>, Vec<_>) =
                self.names.iter().partition(|name| name.starts_with("TOLLGATE"));
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
}
