//! The faults. A text stands once in its file; if it changes there, it changes here.

use super::Mutation;

macro_rules! mutations {
    ($($name:ident: $file:literal, $from:literal => $to:literal, $test:literal;)*) => {
        /// All of them.
        pub(super) const MUTATIONS: &[Mutation] = &[$(Mutation {
            name: stringify!($name),
            file: $file,
            from: $from,
            to: $to,
            test: $test,
        },)*];
    };
}

// Those whose tests take longest come first, so that no thread waits for another at the end.
mutations! {
    // Kernels, as the host sees them: the software driver is compiled again.
    escapes_are_taken_for_counts:
        "kernels/device.h", "return count == LARGE ? large_count(row, (u32)(at - row_start[row])) : count;" => "return count;",
        "run::any_number_of_devices_gives_the_same_bits";
    shares_are_cut_instead_of_rounded:
        "kernels/numbers.h", "(u64)__double2ll_rn(y)" => "(u64)y",
        "run::any_number_of_devices_gives_the_same_bits";
    products_skip_the_last_rows:
        "kernels/output.cu", "row0 < n_rows; row0 += STEP" => "row0 + STEP <= n_rows; row0 += STEP",
        "run::any_number_of_devices_gives_the_same_bits";

    // Several chunks and devices.
    a_launch_sums_its_first_group_only:
        "src/sums.rs", "write(&mut facts);\n        launch.run_on((device.blocks(n.min(ptx::GROUP_ROWS), BLOCK_ROWS), groups(n) as u32))?;" =>
            "write(&mut facts);\n        launch.run_on((device.blocks(n.min(ptx::GROUP_ROWS), BLOCK_ROWS), 1))?;",
        "run::chunks_of_several_groups_and_blocks_on_several_devices";
    products_of_a_block_are_added_to_the_next:
        "src/products.rs", "Device::clear(stream, &mut self.products)?;" => "",
        "run::chunks_of_several_groups_and_blocks_on_several_devices";
    only_the_last_block_of_products_counts:
        "src/products.rs", "total.add(&sums);" => "total = sums;",
        "run::chunks_of_several_groups_and_blocks_on_several_devices";
    a_block_begins_with_the_first_rows_of_a_chunk:
        "src/products.rs", "give_matrix(&mut launch, present, rows.start);" => "give_matrix(&mut launch, present, 0);",
        "run::chunks_of_several_groups_and_blocks_on_several_devices";
    cells_of_another_device_are_taken_for_own:
        "src/products.rs", "if chunk.device == self.at {" => "if chunk.device < matrix.devices.len() {",
        "run::chunks_of_several_groups_and_blocks_on_several_devices";
    the_first_devices_moments_are_dropped:
        "src/sums.rs", "for (at, sums) in sums.iter().enumerate() {" => "for (at, sums) in sums.iter().enumerate().skip(1) {",
        "run::any_number_of_devices_gives_the_same_bits";
    the_last_devices_double_sums_are_dropped:
        "src/sums.rs", "in sums.iter().filter(|_| of_genes)" => "in sums.iter().rev().skip(1).filter(|_| of_genes)",
        "run::any_number_of_devices_gives_the_same_bits";
    shares_overlap_by_a_cell:
        "src/matrix.rs", "((units[piece] + 1) * step).min(n_cells)" => "((units[piece] + 1) * step + 1).min(n_cells)",
        "run::any_number_of_devices_gives_the_same_bits";
    cells_of_a_device_come_one_after_another:
        "src/matrix.rs", "chunks.sort_by_key(|(unit, _)| *unit);" => "",
        "run::any_number_of_devices_gives_the_same_bits";
    new_chunks_of_a_device_come_one_after_another:
        "src/steps.rs", "made.sort_by_key(|(place, _)| *place);" => "",
        "run::any_number_of_devices_gives_the_same_bits";
    devices_are_taken_in_the_drivers_order:
        "src/matrix.rs", "Device::open(ordinal, times as u64, memory)" => "Device::open(n_devices - 1 - ordinal, times as u64, memory)",
        "run::devices_are_taken_as_asked";
    chunks_of_as_many_cells_are_taken_for_the_same:
        "src/steps.rs", "if (first..first + chunk.layout.n_rows) == cells &&" => "if chunk.layout.n_rows == cells.len() &&",
        "order::matrices_of_other_chunks_and_other_devices_meet";
    chunks_of_other_devices_are_taken_for_own:
        "src/steps.rs", "if Arc::ptr_eq(&part.devices, &devices) {" => "if chunk.device < devices.len() {",
        "order::matrices_of_other_chunks_and_other_devices_meet";

    // Memory.
    memory_that_is_given_back_counts_as_used:
        "src/device.rs", "self.account.used.fetch_sub(self.bytes, Ordering::Relaxed);" => "",
        "run::devices_of_little_memory_and_late_streams_give_the_same_bits";
    memory_that_was_not_there_counts_as_used:
        "src/device.rs", "self.account.used.fetch_sub(bytes as u64, Ordering::Relaxed);" => "",
        "failures::memory_that_the_driver_did_not_have_is_not_counted";
    the_limit_of_memory_is_ignored:
        "src/device.rs", "used.checked_add(bytes).filter(|&used| used <= self.limit)" => "used.checked_add(bytes)",
        "failures::a_limit_that_is_too_small_is_a_clear_error";
    cells_may_fill_a_device:
        "src/device.rs", "+ bytes <= self.limit() / 2" => "+ bytes <= self.limit()",
        "sizes::each_entry_crosses_once_if_it_can_stay_and_once_a_pass_if_not";
    new_matrices_stay_without_room:
        "src/steps.rs", "if device.may_keep_new()" => "if device.may_keep_new() || layout.n_rows > 0",
        "run::devices_of_little_memory_and_late_streams_give_the_same_bits";
    sums_begin_with_what_memory_has:
        "src/device.rs", "Self::clear(stream, &mut buffer)?;" => "",
        "run::any_number_of_devices_gives_the_same_bits";

    // Order between streams, and between host and device.
    pinned_memory_is_written_again_before_it_was_read:
        "src/device.rs", "memory.as_mut_slice()?[..bytes.len()]" =>
            "unsafe { memory.stream_synced_mut_slice(stream) }.0[..bytes.len()]",
        "order::chunks_that_pass_by_late_are_not_taken_for_one_another";
    a_write_is_noted_before_it_is_on_its_stream:
        "src/launch.rs", "let (address, held) = buffer.slice_mut().device_ptr_mut(self.stream);" =>
            "let (address, held) = (buffer.slice_mut().device_ptr_mut(self.stream).0, SyncOnDrop::Sync(None));",
        "order::products_are_not_taken_home_before_they_are_there";

    // What kernels are given.
    two_arguments_of_a_kernel_are_swapped:
        "src/outputs.rs", "read(&self.inverse_deviation).read(&self.zero_values)" => "read(&self.zero_values).read(&self.inverse_deviation)",
        "run::any_number_of_devices_gives_the_same_bits";
    an_argument_of_a_kernel_is_of_another_type:
        "src/outputs.rs", "f64(self.max_value)" => "f32(self.max_value as f32)",
        "run::any_number_of_devices_gives_the_same_bits";
    every_gene_counts_in_totals:
        "src/sums.rs", "read_or_null(flags.as_ref())" => "null()",
        "run::any_number_of_devices_gives_the_same_bits";
    totals_of_a_chunk_take_the_place_of_others:
        "src/sums.rs", "write_at(&mut totals, &[8 * before])" => "write_at(&mut totals, &[0])",
        "run::any_number_of_devices_gives_the_same_bits";
    the_scales_of_the_first_cells_serve_all_sums:
        "src/sums.rs", "&plan.cell_scale[matrix.cells(at)]" => "&plan.cell_scale[..chunk.layout.n_rows]",
        "run::any_number_of_devices_gives_the_same_bits";
    the_scales_of_the_first_rows_serve_all_rows:
        "src/outputs.rs", "prepared.plan.give(&mut launch, &scales, first_row);" => "prepared.plan.give(&mut launch, &scales, 0);",
        "run::chunks_of_several_groups_and_blocks_on_several_devices";
    factors_of_the_first_cells_serve_all:
        "src/steps.rs", "&factors[matrix.cells(at)]" => "&factors[..present.layout.n_rows]",
        "order::matrices_of_other_chunks_and_other_devices_meet";
    rows_begin_at_the_first:
        "src/matrix.rs", "start(Array::RowStart) + 8 * first_row" => "start(Array::RowStart)",
        "run::chunks_of_several_groups_and_blocks_on_several_devices";
    large_counts_begin_at_the_first_row:
        "src/matrix.rs", "start(Array::LargeStart) + 8 * first_row" => "start(Array::LargeStart)",
        "run::chunks_of_several_groups_and_blocks_on_several_devices";
    partial_sums_are_not_flushed:
        "src/sums.rs", "flush(device, stream, \"flush_moments\", &mut partial, groups(n), n_genes, &mut sums)?;" => "",
        "run::any_number_of_devices_gives_the_same_bits";
    the_largest_byte_is_a_count:
        "src/chunk.rs", "if x >= f32::from(LARGE) {" => "if x > f32::from(LARGE) {",
        "run::any_number_of_devices_gives_the_same_bits";

    // Errors.
    a_want_of_memory_is_any_error:
        "src/error.rs", "error.0 as u32 == OUT_OF_MEMORY" => "error.0 as u32 == NO_DEVICE",
        "failures::an_allocation_that_fails_is_a_clear_error_and_leaves_no_leak";
    an_error_of_a_thread_is_swallowed:
        "src/pass.rs", "if let Err(error) = work() {" => "if let (Err(error), 0) = (work(), worker) {",
        "failures::an_allocation_that_fails_is_a_clear_error_and_leaves_no_leak";
    a_device_that_fails_is_left_out:
        "src/pass.rs", "std::panic::resume_unwind(panic))).collect()" =>
            "std::panic::resume_unwind(panic))).filter(|outcome: &Result<T>| outcome.is_ok()).collect()",
        "failures::a_kernel_that_fails_is_one_line";
    nobody_asks_whether_the_run_was_cancelled:
        "src/pass.rs", "ctx.check_cancelled()?;" => "",
        "failures::a_cancelled_run_ends_and_leaves_no_leak";
    old_drivers_will_do:
        "src/device.rs", "if version < OLDEST_DRIVER_VERSION {" => "if version < 11_000 {",
        "failures::devices_that_are_not_there_and_drivers_that_are_too_old";
}
