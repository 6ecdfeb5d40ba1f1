//! With the feature `header`: makes `tollgate_redis.h` in `OUT_DIR`, as the
//! `build.rs` at the root makes `tollgate.h`.

#[cfg(feature = "header")]
#[path = "../../../build/header.rs"]
mod header;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "header")]
    header::Header {
        name: "tollgate_redis",
        includes: "#include \"tollgate.h\"\n",
        start: "",
        files: ["../../../src/ffi/cluster.rs", "src/engine.rs", "src/status.rs"].map(str::to_owned).into(),
        types_of_others: &["Error", "Limiter", "Status"],
        opened: &["tollgate_cluster_options"],
    }
    .write();
}
