// Exact sums over cells: totals of cells and genes, and moments of shares, logarithms or scanpy's 32-bit values. All are
// additions of integers, so no result depends on an order: not on grids, not on the arrival of atomic additions.
#include "totals.h"

// The most rows whose 64-bit sums can't overflow: a term is at most 2^52, and 4,096 of them would be 2^64.
constexpr u32 GROUP_ROWS = 4095;

// The words of a gene's sums, each a row of n_genes. Numbers that may be above 2^52 have a low word of 52 bits and a high one.
enum CountWord { TOTAL_LOW, TOTAL_HIGH, COUNT_SUM, COUNT_SQUARES_LOW, COUNT_SQUARES_HIGH, COUNT_WORDS };
enum MomentWord { SUM, SQUARES_LOW, SQUARES_HIGH, MOMENT_WORDS };

// Additions without a result are single instructions in L2, where the sums of all genes fit. Genes of a row differ, so lanes
// of a warp never meet at an address. High words are mostly zero and then cost nothing.
__device__ static inline void add(u64 *to, u64 x) {
    if (x != 0) atomicAdd(to, x);
}

__device__ static inline void add_parts(u64 *low, u64 *high, Wide128 x) {
    add(low, x.low & LOW_52);
    add(high, (x.low >> 52) | (x.high << 12));
}

__device__ static inline Wide128 square_of(u64 q) { return Wide128{q * q, __umul64hi(q, q)}; }

// The rows of this warp's group that it takes, in turn with the group's other warps.
#define FOR_ROWS_OF_GROUP(row, n_rows)                                                                                        \
    for (u32 row = blockIdx.y * GROUP_ROWS + warp_of_grid(), end_##row = min(n_rows, (blockIdx.y + 1) * GROUP_ROWS);           \
         row < end_##row; row += warps_of_grid())

// A warp visits its row twice, for the total and for the shares in it. The second time the row, some kilobytes, is in L1 or
// L2, so device memory gives each entry once.
template <class Matrix>
__device__ static void fold_counts(const Matrix &m, u32 n_rows, u32 n_genes, const u8 *excluded, double *totals, u64 *partial,
                                   u64 *facts) {
    u64 *words = partial + (u64)blockIdx.y * COUNT_WORDS * n_genes;
    u64 fractional = 0;
    double largest = 0.0;
    FOR_ROWS_OF_GROUP(row, n_rows) {
        double total = row_total(m, row, [=](u32 gene) { return excluded == nullptr || !excluded[gene]; });
        if (lane() == 0) totals[row] = total;
        double weight = share_weight(total);
        u64 end = m.row_start[row + 1];
        for (u64 at = m.row_start[row] + lane(); at < end; at += 32) {
            double x = m.value(row, at);
            u64 *sums = words + m.gene(at);
            add_parts(sums + TOTAL_LOW * n_genes, sums + TOTAL_HIGH * n_genes, fixed_total(x));
            if (excluded == nullptr || !excluded[m.gene(at)]) {
                u64 q = share(x, weight);
                add(sums + COUNT_SUM * n_genes, q);
                add_parts(sums + COUNT_SQUARES_LOW * n_genes, sums + COUNT_SQUARES_HIGH * n_genes, square_of(q));
            }
            fractional += x != trunc(x) ? 1 : 0;
            largest = x > largest ? x : largest;
        }
    }
    fractional = warp_sum(fractional);
    // Doubles that are not negative have the order of their bits.
    u64 bits = (u64)__double_as_longlong(largest);
    for (int distance = 16; distance > 0; distance >>= 1) {
        u64 other = __shfl_xor_sync(EVERY_LANE, bits, distance);
        bits = other > bits ? other : bits;
    }
    if (lane() == 0) {
        add(&facts[0], fractional);
        atomicMax(&facts[1], bits);
    }
}
FOR_EACH_FORM(fold_counts,
              (u32 n_rows, u32 n_genes, const u8 *__restrict__ excluded, double *__restrict__ totals,
               u64 *__restrict__ partial, u64 *__restrict__ facts),
              (n_rows, n_genes, excluded, totals, partial, facts))

// One visit of each row; `terms(x, scale, square)` makes the integers of an entry.
template <class Matrix, class Terms>
__device__ static inline void fold(const Matrix &m, u32 n_rows, u32 n_genes, const double *cell_scale, u64 *partial,
                                   Terms terms) {
    u64 *words = partial + (u64)blockIdx.y * MOMENT_WORDS * n_genes;
    FOR_ROWS_OF_GROUP(row, n_rows) {
        double scale = cell_scale[row];
        u64 end = m.row_start[row + 1];
        for (u64 at = m.row_start[row] + lane(); at < end; at += 32) {
            Wide128 square;
            u64 q = terms(m.value(row, at), scale, square);
            u64 *sums = words + m.gene(at);
            add(sums + SUM * n_genes, q);
            add_parts(sums + SQUARES_LOW * n_genes, sums + SQUARES_HIGH * n_genes, square);
        }
    }
}

template <class Matrix>
__device__ static void fold_shares(const Matrix &m, u32 n_rows, u32 n_genes, const double *cell_scale, u64 *partial) {
    fold(m, n_rows, n_genes, cell_scale, partial, [](double x, double scale, Wide128 &square) {
        u64 q = share(x, scale);
        square = square_of(q);
        return q;
    });
}
FOR_EACH_FORM(fold_shares,
              (u32 n_rows, u32 n_genes, const double *__restrict__ cell_scale, u64 *__restrict__ partial),
              (n_rows, n_genes, cell_scale, partial))

// Logarithms of values that can be are below 64, so q is below 2^52.
template <class Matrix>
__device__ static void fold_logs(const Matrix &m, u32 n_rows, u32 n_genes, const double *cell_scale, u64 *partial) {
    fold(m, n_rows, n_genes, cell_scale, partial, [](double x, double scale, Wide128 &square) {
        u64 q = to_whole(log_1p(x * scale) * TWO_46, TWO_52);
        square = square_of(q);
        return q;
    });
}
FOR_EACH_FORM(fold_logs,
              (u32 n_rows, u32 n_genes, const double *__restrict__ cell_scale, u64 *__restrict__ partial),
              (n_rows, n_genes, cell_scale, partial))

template <class Matrix>
__device__ static void fold_float32(const Matrix &m, u32 n_rows, u32 n_genes, const double *cell_scale, u32 log, float largest,
                                    double unit, double square_unit, u64 *partial) {
    fold(m, n_rows, n_genes, cell_scale, partial, [=](double x, double scale, Wide128 &square) {
        float divisor = (float)scale;
        float value = 0.0f;
        if (divisor != 0.0f) {
            value = (float)x / divisor;
            if (log) value = (float)log_1p((double)value);
        }
        value = value < largest ? value : largest;
        square = to_wide((double)(value * value) * square_unit);
        return to_whole((double)value * unit, TWO_52);
    });
}
FOR_EACH_FORM(fold_float32,
              (u32 n_rows, u32 n_genes, const double *__restrict__ cell_scale, u32 log, float largest, double unit,
               double square_unit, u64 *__restrict__ partial),
              (n_rows, n_genes, cell_scale, log, largest, unit, square_unit, partial))

// Takes a word out of `partial`, leaving zero. A thread takes consecutive genes' words: loads coalesce.
__device__ static inline u64 take(u64 *word) {
    u64 x = *word;
    *word = 0;
    return x;
}

// A thread adds up one gene over all groups; nobody else touches the gene.
KERNEL flush_counts(u64 *__restrict__ partial, u32 groups, u32 n_genes, u64 *__restrict__ sums) {
    Wide128 *to = (Wide128 *)sums;
    for (u32 gene = blockIdx.x * blockDim.x + threadIdx.x; gene < n_genes; gene += gridDim.x * blockDim.x) {
        Wide128 total = to[gene], sum = to[n_genes + gene], squares = to[2 * n_genes + gene];
        for (u32 group = 0; group < groups; group++) {
            u64 *words = partial + (u64)group * COUNT_WORDS * n_genes + gene;
            total.add(Wide128{take(words + TOTAL_LOW * n_genes), 0});
            total.add(shifted(take(words + TOTAL_HIGH * n_genes), 52));
            sum.add(Wide128{take(words + COUNT_SUM * n_genes), 0});
            squares.add(Wide128{take(words + COUNT_SQUARES_LOW * n_genes), 0});
            squares.add(shifted(take(words + COUNT_SQUARES_HIGH * n_genes), 52));
        }
        to[gene] = total;
        to[n_genes + gene] = sum;
        to[2 * n_genes + gene] = squares;
    }
}
EXPORT_KERNEL(flush_counts)

KERNEL flush_moments(u64 *__restrict__ partial, u32 groups, u32 n_genes, u64 *__restrict__ sums) {
    Wide128 *to = (Wide128 *)sums;
    for (u32 gene = blockIdx.x * blockDim.x + threadIdx.x; gene < n_genes; gene += gridDim.x * blockDim.x) {
        Wide128 sum = to[gene], squares = to[n_genes + gene];
        for (u32 group = 0; group < groups; group++) {
            u64 *words = partial + (u64)group * MOMENT_WORDS * n_genes + gene;
            sum.add(Wide128{take(words + SUM * n_genes), 0});
            squares.add(Wide128{take(words + SQUARES_LOW * n_genes), 0});
            squares.add(shifted(take(words + SQUARES_HIGH * n_genes), 52));
        }
        to[gene] = sum;
        to[n_genes + gene] = squares;
    }
}
EXPORT_KERNEL(flush_moments)
