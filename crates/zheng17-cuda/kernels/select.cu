// Choosing cells and genes: count what each row keeps, sum the counts to positions, fill. Rows keep their order, and so do the
// entries of a row, as a ballot of the warp gives each its place.
#include "totals.h"

__device__ static inline bool is_large(const Narrow &m, u64 at) { return m.counts[at] == LARGE; }
template <class Value> __device__ static inline bool is_large(const Wide<Value> &, u64) { return false; }

// A warp for each chosen row. The map of genes is read at random, but is small enough for L2.
template <class Matrix>
__device__ static void select_count(const Matrix &m, const u32 *cells, u32 n_cells, const u32 *new_gene, u32 *kept,
                                    u32 *kept_large, double *totals) {
    for (u32 i = warp_of_grid(); i < n_cells; i += warps_of_grid()) {
        u32 row = cells[i];
        u64 end = m.row_start[row + 1], n = 0, n_large = 0;
        for (u64 at = m.row_start[row] + lane(); at < end; at += 32) {
            bool keeps = new_gene[m.gene(at)] != NOT_SELECTED;
            n += keeps ? 1 : 0;
            n_large += keeps && is_large(m, at) ? 1 : 0;
        }
        n = warp_sum(n);
        n_large = warp_sum(n_large);
        double total = row_total(m, row, [=](u32 gene) { return new_gene[gene] != NOT_SELECTED; });
        if (lane() == 0) {
            kept[i] = (u32)n;
            if (kept_large != nullptr) kept_large[i] = (u32)n_large;
            totals[i] = total;
        }
    }
}
FOR_EACH_FORM(select_count,
              (const u32 *__restrict__ cells, u32 n_cells, const u32 *__restrict__ new_gene, u32 *__restrict__ kept,
               u32 *__restrict__ kept_large, double *__restrict__ totals),
              (cells, n_cells, new_gene, kept, kept_large, totals))

KERNEL select_fill_narrow(NARROW(), const u32 *__restrict__ cells, u32 n_cells, const u32 *__restrict__ new_gene,
                          const u64 *__restrict__ out_row_start, u16 *__restrict__ out_genes, u8 *__restrict__ out_counts,
                          const u64 *__restrict__ out_large_start, u32 *__restrict__ out_large_at,
                          u32 *__restrict__ out_large_counts) {
    Narrow m = THE_NARROW();
    for (u32 i = warp_of_grid(); i < n_cells; i += warps_of_grid()) {
        u32 row = cells[i];
        u64 begin = m.row_start[row], end = m.row_start[row + 1], to = out_row_start[i];
        write_kept(begin, end, to, out_genes, out_counts, [=](u64 at, u32 &gene, u8 &count) {
            gene = new_gene[m.gene(at)];
            count = m.counts[at];
            return gene != NOT_SELECTED;
        });
        // Again for the large counts alone, where the row has any: the place of each is its rank among all kept entries.
        if (large_start[row] == large_start[row + 1]) continue;
        u64 to_large = out_large_start[i];
        u32 place = 0;
        for (u64 base = begin; base < end; base += 32) {
            u64 at = base + lane();
            bool keeps = at < end && new_gene[m.gene(at)] != NOT_SELECTED;
            bool large = keeps && is_large(m, at);
            u32 all_kept = __ballot_sync(EVERY_LANE, keeps);
            u32 all_large = __ballot_sync(EVERY_LANE, large);
            if (large) {
                out_large_at[to_large + lanes_before(all_large)] = place + lanes_before(all_kept);
                out_large_counts[to_large + lanes_before(all_large)] = m.large_count(row, (u32)(at - begin));
            }
            place += (u32)__popc(all_kept);
            to_large += (u64)__popc(all_large);
        }
    }
}
EXPORT_KERNEL(select_fill_narrow)

template <class Value>
__device__ static void select_fill(const Wide<Value> &m, const u32 *cells, u32 n_cells, const u32 *new_gene,
                                   const u64 *out_row_start, u32 *out_genes, Value *out_values) {
    for (u32 i = warp_of_grid(); i < n_cells; i += warps_of_grid()) {
        u32 row = cells[i];
        write_kept(m.row_start[row], m.row_start[row + 1], out_row_start[i], out_genes, out_values,
                   [=](u64 at, u32 &gene, Value &value) {
                       gene = new_gene[m.gene(at)];
                       value = m.values[at];
                       return gene != NOT_SELECTED;
                   });
    }
}

KERNEL select_fill_f32(WIDE(, float), const u32 *__restrict__ cells, u32 n_cells, const u32 *__restrict__ new_gene,
                       const u64 *__restrict__ out_row_start, u32 *__restrict__ out_genes, float *__restrict__ out_values) {
    select_fill(THE_WIDE(, float), cells, n_cells, new_gene, out_row_start, out_genes, out_values);
}
EXPORT_KERNEL(select_fill_f32)

KERNEL select_fill_f64(WIDE(, double), const u32 *__restrict__ cells, u32 n_cells, const u32 *__restrict__ new_gene,
                       const u64 *__restrict__ out_row_start, u32 *__restrict__ out_genes, double *__restrict__ out_values) {
    select_fill(THE_WIDE(, double), cells, n_cells, new_gene, out_row_start, out_genes, out_values);
}
EXPORT_KERNEL(select_fill_f64)

// The sum of x over the threads of a block before this one; `all` is the sum over the block. `sums` has a place for each of the
// at most 8 warps and is free again after the next barrier.
__device__ static inline u64 block_sum_before(u64 x, u64 *sums, u64 *all) {
    u64 sum = x;
    for (int distance = 1; distance < 32; distance <<= 1) {
        u64 other = __shfl_up_sync(EVERY_LANE, sum, distance);
        if (lane() >= (u32)distance) sum += other;
    }
    u32 warp = threadIdx.x >> 5;
    if (lane() == 31) sums[warp] = sum;
    __syncthreads();
    u64 before = 0;
    *all = 0;
    for (u32 w = 0; w < blockDim.x >> 5; w++) {
        if (w == warp) before = *all;
        *all += sums[w];
    }
    return before + sum - x;
}

// A block sums a tile of 1,024 counts, four a thread.
KERNEL scan_tiles(const u32 *__restrict__ counts, u32 n, u64 *__restrict__ starts, u64 *__restrict__ tile_sums) {
    SHARED(u64, warp_sums, 8);
    u64 first = (u64)blockIdx.x * 1024 + threadIdx.x * 4;
    u64 own[4], all;
    u64 sum = 0;
    for (u32 i = 0; i < 4; i++) {
        own[i] = sum;
        sum += first + i < n ? counts[first + i] : 0;
    }
    u64 before = block_sum_before(sum, warp_sums, &all);
    for (u32 i = 0; i < 4; i++)
        if (first + i < n) starts[first + i] = before + own[i];
    if (threadIdx.x == 0) tile_sums[blockIdx.x] = all;
}
EXPORT_KERNEL(scan_tiles)

// One block; a million rows are a thousand tiles.
KERNEL scan_sums(u64 *__restrict__ tile_sums, u32 n_tiles) {
    SHARED(u64, warp_sums, 8);
    u64 carried = 0;
    for (u32 base = 0; base < n_tiles; base += blockDim.x) {
        u32 tile = base + threadIdx.x;
        u64 own = tile < n_tiles ? tile_sums[tile] : 0, all;
        u64 before = block_sum_before(own, warp_sums, &all);
        if (tile < n_tiles) tile_sums[tile] = carried + before;
        carried += all;
        __syncthreads();
    }
}
EXPORT_KERNEL(scan_sums)

KERNEL scan_finish(u64 *__restrict__ starts, u32 n, const u32 *__restrict__ counts, const u64 *__restrict__ tile_sums) {
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        u64 start = starts[i] + tile_sums[i / 1024];
        starts[i] = start;
        if (i == n - 1) starts[n] = start + counts[i];
    }
}
EXPORT_KERNEL(scan_finish)
