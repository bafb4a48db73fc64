//! The committed C header is the one that the Rust layouts give, and a C compiler lays it out in the same way.

use std::mem::{offset_of, size_of};
use std::path::{Path, PathBuf};
use std::process::Command;

use zheng17_plugin_abi::{Chunk, Counts, GeneCounts, GeneMoments, Message, Moments, Plugin, Scaling, Selected, Wide};

fn crate_folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn header() -> PathBuf {
    crate_folder().join("../../plugins/include/zheng17_plugin.h")
}

fn generated() -> String {
    let mut config = cbindgen::Config::from_file(crate_folder().join("cbindgen.toml")).expect("cbindgen.toml");
    config.export.include =
        ["Plugin", "Entry", "Chunk", "Counts", "Moments", "Selected", "Scaling", "Message"].map(str::to_owned).to_vec();
    let source = cbindgen::Builder::new().with_config(config).with_src(crate_folder().join("src/lib.rs"));
    let mut text = Vec::new();
    source.generate().expect("the layouts can be said in C").write(&mut text);
    // The prefix of constants is in capitals, as C has it.
    String::from_utf8(text).expect("UTF-8").replace("#define zheng17_", "#define ZHENG17_")
}

#[test]
fn committed_header_is_the_generated_one() {
    let generated = generated();
    if std::env::var_os("ZHENG17_RENEW_HEADER").is_some() {
        std::fs::write(header(), &generated).expect("written");
    }
    let committed = std::fs::read_to_string(header()).expect("the header");
    assert!(
        committed == generated,
        "renew plugins/include/zheng17_plugin.h with: ZHENG17_RENEW_HEADER=1 cargo test -p zheng17-plugin-abi"
    );
}

#[test]
fn c_compiler_has_the_same_layout() {
    let mut text = format!("#include \"{}\"\n#include <stddef.h>\n", header().display());
    macro_rules! same {
        ($rust:ident as $c:literal: $($field:ident),+) => {
            text += &format!("_Static_assert(sizeof({}) == {}, \"size\");\n", $c, size_of::<$rust>());
            $(text += &format!(
                "_Static_assert(offsetof({}, {}) == {}, \"{1}\");\n", $c, stringify!($field), offset_of!($rust, $field)
            );)+
        };
    }
    same!(Chunk as "zheng17_chunk": first_cell, n_cells, n_genes, n_entries, indptr, indices, values, value_kind);
    same!(Wide as "zheng17_wide": low, high);
    same!(GeneCounts as "zheng17_gene_counts": total, sum, sum_of_squares);
    same!(Counts as "zheng17_counts": excluded, genes, cell_totals, n_entries, n_fractional, largest);
    same!(GeneMoments as "zheng17_gene_moments": sum, sum_of_squares);
    same!(Moments as "zheng17_moments": cell_scale, genes, arithmetic, log, exponent);
    same!(Selected as "zheng17_selected": new_index, n_selected, row_lengths, indices, values);
    same!(Scaling as "zheng17_scaling": cell_scale, mean, inverse_deviation, out, max_value, log);
    same!(Message as "zheng17_message": text, capacity);
    same!(Plugin as "zheng17_plugin": struct_size, abi_major, abi_minor, flags, name, description, create, destroy);
    same!(Plugin as "zheng17_plugin": fold_counts, fold_moments, select, scale);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("layout.c");
    std::fs::write(&file, text).expect("written");
    let flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only"];
    let status = Command::new("cc").args(flags).arg(&file).status().expect("a C compiler");
    assert!(status.success());
}
