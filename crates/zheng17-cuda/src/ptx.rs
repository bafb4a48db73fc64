//! The compiled kernels. `cargo xtask codegen` makes them from `kernels/*.cu`; nothing compiles them where the program runs.

/// One source of kernels in compiled form.
#[derive(Debug, Clone, Copy)]
pub struct PtxModule {
    /// The source's name without its ending.
    pub name: &'static str,
    /// The compiled text.
    pub text: &'static str,
}

macro_rules! ptx_module {
    ($name:literal) => {
        PtxModule { name: $name, text: include_str!(concat!("../ptx/", $name, ".ptx")) }
    };
}

/// Totals and exact moments.
pub const SUMMARIES: PtxModule = ptx_module!("summaries");
/// Choosing cells and genes.
pub const SELECT: PtxModule = ptx_module!("select");
/// Changing values, elementwise products.
pub const TRANSFORM: PtxModule = ptx_module!("transform");
/// Sums, means, variances.
pub const REDUCE: PtxModule = ptx_module!("reduce");
/// Dense results and what PCA sums.
pub const OUTPUT: PtxModule = ptx_module!("output");

/// All of them.
pub const MODULES: [PtxModule; 5] = [SUMMARIES, SELECT, TRANSFORM, REDUCE, OUTPUT];

/// The most rows of a group, of the kernels in [`SUMMARIES`]: as many as 64-bit sums have room for.
pub const GROUP_ROWS: usize = 4095;

/// The words of a gene's sums over a group of rows: `fold_counts`.
pub const COUNT_WORDS: usize = 5;

/// The words of a gene's sums over a group of rows: `fold_shares`, `fold_logs`, `fold_float32`.
pub const MOMENT_WORDS: usize = 3;

/// The counts that a block of `scan_tiles` sums.
pub const SCAN_TILE: usize = 1024;

/// The genes that a block of `gram_products` multiplies with as many others.
pub const GRAM_TILE: usize = 64;

/// The threads of a block.
pub const BLOCK_THREADS: u32 = 256;

#[cfg(test)]
mod tests {
    #[test]
    fn kernels_are_compiled_for_the_oldest_device() {
        let (major, minor) = crate::error::OLDEST_DEVICE;
        for module in super::MODULES {
            assert!(module.text.contains(&format!(".target sm_{major}{minor}\n")), "{}", module.name);
        }
    }
}
