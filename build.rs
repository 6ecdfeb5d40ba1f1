//! With the feature `header`: makes the C header in `OUT_DIR`, where
//! `tests/header.rs` compares it with the committed one and `make header`
//! finds it. Nothing is ever written to the tree.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "header")]
    header::generate();
}

#[cfg(feature = "header")]
mod header {
    use std::env;
    use std::path::Path;

    /// The files of `src/ffi` that have something to say to C, in the order of the header.
    const FILES: [&str; 19] = [
        "status.rs",
        "error.rs",
        "version.rs",
        "policy_builder.rs",
        "policy.rs",
        "clock.rs",
        "limiter.rs",
        "check.rs",
        "agent.rs",
        "all.rs",
        "held.rs",
        "reservation.rs",
        "budgets.rs",
        "conduct.rs",
        "control.rs",
        "assignment.rs",
        "action.rs",
        "observe.rs",
        "default.rs",
    ];

    pub(crate) fn generate() {
        println!("cargo::rerun-if-changed=cbindgen.toml");
        println!("cargo::rerun-if-changed=src/ffi");
        let mut config = cbindgen::Config::from_file("cbindgen.toml").expect("a configuration that can be read");
        config.after_includes = Some(version());
        let mut builder = cbindgen::Builder::new().with_config(config);
        for file in FILES {
            builder = builder.with_src(Path::new("src/ffi").join(file));
        }
        let out = env::var("OUT_DIR").expect("cargo names the directory");
        builder
            .generate()
            .expect("sources that cbindgen understands")
            .write_to_file(Path::new(&out).join("tollgate.h"));
    }

    /// The version as macros, for those who compile.
    fn version() -> String {
        let part = |part: &str| env::var(format!("CARGO_PKG_VERSION_{part}")).expect("cargo names the version");
        let [major, minor, patch] = ["MAJOR", "MINOR", "PATCH"].map(part);
        format!(
            "\n/** The version that a program was compiled with; tollgate_version tells what it runs with. */\n\
             #define TOLLGATE_VERSION \"{major}.{minor}.{patch}\"\n\
             #define TOLLGATE_VERSION_MAJOR {major}\n\
             #define TOLLGATE_VERSION_MINOR {minor}\n\
             #define TOLLGATE_VERSION_PATCH {patch}\n\
             #define TOLLGATE_VERSION_NUMBER \\\n  \
             (TOLLGATE_VERSION_MAJOR * 65536 + TOLLGATE_VERSION_MINOR * 256 + TOLLGATE_VERSION_PATCH)\n\n\
             /** The address and the length of a string literal, as two arguments. */\n\
             #define TOLLGATE_LITERAL(text) (text), (sizeof(text) - 1)"
        )
    }
}
