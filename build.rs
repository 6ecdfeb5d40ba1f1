//! With the feature `header`: makes the C header in `OUT_DIR`, where
//! `tests/header.rs` compares it with the committed one and `make header`
//! finds it. Nothing is ever written to the tree.

#[cfg(feature = "header")]
#[path = "build/header.rs"]
mod header;

/// The files of `src/ffi` that declare something for C, in the order of the header.
#[cfg(feature = "header")]
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

/// Declared in `tollgate_redis.h`; a limiter is only pointed at them.
#[cfg(feature = "header")]
const START: &str = "\
/** How machines share lanes: tollgate_redis.h has its members. */
typedef struct tollgate_cluster_options tollgate_cluster_options;
";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "header")]
    header::Header {
        name: "tollgate",
        includes: "#include <stdbool.h>\n#include <stddef.h>\n#include <stdint.h>\n",
        start: &format!("{}\n{START}", version()),
        files: FILES.map(|file| format!("src/ffi/{file}.rs")).into(),
        types_of_others: &["ClusterOptions"],
        opened: &[],
    }
    .write();
}

/// The version of the crate, for C.
#[cfg(feature = "header")]
fn version() -> String {
    let part = |part: &str| std::env::var(format!("CARGO_PKG_VERSION_{part}")).expect("cargo names the version");
    let [major, minor, patch] = ["MAJOR", "MINOR", "PATCH"].map(part);
    format!(
        "/** The version this program is compiled with; tollgate_version is the one that runs. */\n\
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
