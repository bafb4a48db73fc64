//! Faults put into the kernels on purpose, one at a time: each is found by wrong numbers, by the emulator's rules, or by a
//! sanitizer. A check that misses one checks nothing.

use crate::programs::Build;
use crate::session::{Check, Launch, Session};
use crate::{output, reduce, select, summaries, transform};

/// A fault, and what finds it.
pub(crate) struct Fault {
    /// The source whose kernels are launched.
    pub(crate) source: &'static str,
    /// The file, a text of it, and what takes the text's first place.
    pub(crate) file: &'static str,
    pub(crate) from: &'static str,
    pub(crate) to: &'static str,
    build: Build,
    check: Check,
    /// A part of what is reported.
    found: &'static str,
}

impl Fault {
    /// Fails unless the fault is found, in one of a few orders of threads where the order decides whether it shows.
    fn must_be_found(&self, test: &str) {
        let Some(program) = self.build.program_with(test, self) else { return };
        let mut outcomes = Vec::new();
        for seed in 0..4 {
            let mut session = Session::start(&program, Launch { blocks: 3, threads: 64, seed });
            let checked = (self.check)(&mut session);
            let ended = session.finish();
            let report = [checked, ended].into_iter().filter_map(Result::err).collect::<String>();
            if report.contains(self.found) {
                return;
            }
            outcomes.push(report);
        }
        panic!("{test}: \"{}\" was not reported: {outcomes:?}", self.found);
    }
}

macro_rules! faults {
    ($($name:ident: $source:ident, $file:literal, $from:literal => $to:literal, $build:ident, $check:expr, $found:literal;)*) => {$(
        #[test]
        fn $name() {
            let (build, check) = (Build::$build, $check);
            let source = stringify!($source);
            let fault = Fault { source, file: $file, from: $from, to: $to, build, check, found: $found };
            fault.must_be_found(stringify!($name));
        }
    )*};
}

faults! {
    // Numbers that are wrong.
    groups_of_one_row_too_many_overflow:
        summaries, "summaries.cu", "GROUP_ROWS = 4095" => "GROUP_ROWS = 4096",
        Plain, summaries::check_full_groups, "instead of";
    shares_are_cut_instead_of_rounded:
        summaries, "numbers.h", "(u64)__double2ll_rn(y)" => "(u64)y",
        Plain, summaries::check_counts, "sums: ";
    excluded_genes_count_in_totals:
        summaries, "summaries.cu", "return excluded == nullptr || !excluded[gene];" => "return true;",
        Plain, summaries::check_counts, "totals: ";
    a_flush_forgets_the_high_words:
        summaries, "summaries.cu", "squares.add(shifted(take(words + COUNT_SQUARES_HIGH * n_genes), 52));" => "",
        Plain, summaries::check_counts, "partial sums after flushing";
    logarithms_lose_what_rounding_lost:
        summaries, "numbers.h", "correction = lost / u;" => "",
        Plain, summaries::check_logs, "fold_logs: sums";
    scanpys_squares_are_formed_in_64_bits:
        summaries, "summaries.cu", "(double)(value * value)" => "(double)value * (double)value",
        Plain, summaries::check_moments, "fold_float32: sums of squares";
    escapes_are_taken_for_counts:
        summaries, "device.h", "return count == LARGE ? large_count(row, (u32)(at - row_start[row])) : count;" => "return count;",
        Plain, summaries::check_counts, "totals: ";
    a_tile_forgets_those_before_it:
        select, "select.cu", "starts[i] + tile_sums[i / 1024]" => "starts[i]",
        Plain, select::check_scan, "running sums";
    large_counts_keep_their_old_places:
        select, "select.cu", "place + lanes_before(all_kept)" => "(u32)(at - begin)",
        Plain, select::check_select, "large_at";
    zeros_after_rounding_are_kept:
        transform, "transform.cu", "(to_f32 ? (double)(float)y : y) != 0.0" => "y != 0.0",
        Plain, transform::check_transform, "entries kept";
    half_is_rounded_away_from_zero:
        transform, "transform.cu", "return rint(x);" => "return round(x);",
        Plain, transform::check_transform, "Round";
    squares_lose_their_error:
        reduce, "numbers.h", "if (error != 0.0) add(error);" => "",
        Plain, reduce::check_reduce, "sums of ";
    values_are_not_clipped:
        output, "output.cu", "(float)plan.scaled(" => "(float)Plan{nullptr, 0, plan.mean, plan.inverse_deviation, nullptr, 1e300}.scaled(",
        Plain, output::check_dense, "scaled values";
    products_skip_the_last_rows:
        output, "output.cu", "row0 < n_rows; row0 += STEP" => "row0 + STEP <= n_rows; row0 += STEP",
        Plain, output::check_gram, "products";
    shared_memory_is_read_before_it_is_written:
        select, "select.cu", "if (lane() == 31) sums[warp] = sum;" => "",
        Plain, select::check_scan, "running sums";

    // Rules of the device that are broken.
    a_barrier_that_some_threads_skip:
        output, "output.cu", "__syncthreads();\n                if (component" => "if (threadIdx.x < n) __syncthreads();\n                if (component",
        Plain, output::check_project, "output.cu:1";
    a_ballot_that_some_lanes_skip:
        select, "device.h", "for (u64 base = begin; base < end; base += 32) {\n        u64 at = base + lane();" =>
            "for (u64 base = begin + lane(); base < end; base += 32) {\n        u64 at = base;",
        Plain, select::check_select, "lanes of a warp meet at different operations";

    // Places outside of memory.
    the_entry_behind_the_last_is_read:
        summaries, "summaries.cu", "at < end; at += 32" => "at <= end; at += 32",
        Address, summaries::check_counts, "heap-buffer-overflow";
    shared_memory_is_one_too_short:
        output, "output.cu", "SHARED(double, correction, ENTRIES)" => "SHARED(double, correction, ENTRIES - 1)",
        Address, output::check_project, "heap-buffer-overflow";
    the_last_gene_of_a_tile_is_not_looked_at:
        output, "output.cu", "row < n_rows && gene < n_genes ?" => "row < n_rows ?",
        Address, output::check_gram, "heap-buffer-overflow";

    // Undefined arithmetic.
    a_shift_by_more_bits_than_there_are:
        select, "device.h", "(1u << lane()) - 1u" => "(1u << threadIdx.x) - 1u",
        Address, select::check_select, "shift exponent 32 is too large";

    // Races.
    sums_without_atomic_additions:
        summaries, "summaries.cu", "if (x != 0) atomicAdd(to, x);" => "*to += x;",
        Thread, summaries::check_counts, "data race";
    no_barrier_before_shared_memory_is_read:
        output, "output.cu", "load_step(tile, n_rows, n_genes, row0, b0, of_b);\n        __syncthreads();" =>
            "load_step(tile, n_rows, n_genes, row0, b0, of_b);",
        Thread, output::check_gram, "data race";
    no_barrier_before_shared_memory_is_written_again:
        output, "output.cu", "        }\n        __syncthreads();\n    }" => "        }\n    }",
        Thread, output::check_gram, "data race";
    no_barrier_between_zeros_and_entries:
        output, "output.cu", "to[gene] = zero(gene);\n        __syncthreads();" => "to[gene] = zero(gene);",
        Thread, output::check_dense, "data race";
    no_barrier_between_rows_of_a_group:
        reduce, "reduce.cu", "            __syncthreads();\n" => "",
        Thread, reduce::check_reduce, "data race";
}
