// Sums of values and of their squares in twice the digits of a double, along both axes, for sums, means and variances of any
// values. Nothing here is atomic: the order of additions is fixed by the matrix and the number of groups.
#include "numbers.h"

__device__ static inline void add_value(DoubleSum *sums, double x) {
    sums[0].add(x);
    sums[1].add_square(x);
}

// A warp sums a row, each lane every 32nd entry, then the lanes by halves.
template <class Matrix> __device__ static void reduce_cells(const Matrix &m, u32 n_rows, double *out) {
    for (u32 row = warp_of_grid(); row < n_rows; row += warps_of_grid()) {
        DoubleSum sums[2] = {};
        u64 end = m.row_start[row + 1];
        for (u64 at = m.row_start[row] + lane(); at < end; at += 32) add_value(sums, m.value(row, at));
        for (int distance = 16; distance > 0; distance >>= 1)
            for (int i = 0; i < 2; i++)
                sums[i].add(DoubleSum{__shfl_down_sync(EVERY_LANE, sums[i].high, distance),
                                      __shfl_down_sync(EVERY_LANE, sums[i].low, distance)});
        if (lane() == 0) {
            for (int i = 0; i < 2; i++) {
                out[4 * (u64)row + 2 * i] = sums[i].high;
                out[4 * (u64)row + 2 * i + 1] = sums[i].low;
            }
        }
    }
}
FOR_EACH_FORM(reduce_cells, (u32 n_rows, double *__restrict__ sums), (n_rows, sums))

__device__ static inline DoubleSum load(const double *sums, u32 n_genes, int i) {
    return DoubleSum{sums[(u64)(2 * i) * n_genes], sums[(u64)(2 * i + 1) * n_genes]};
}
__device__ static inline void store(double *sums, u32 n_genes, int i, DoubleSum sum) {
    sums[(u64)(2 * i) * n_genes] = sum.high;
    sums[(u64)(2 * i + 1) * n_genes] = sum.low;
}

// A block takes the rows of a group one after another and adds each to the group's sums of its genes. Genes of a row differ, so
// threads never meet; the barrier ends a row before the next may have the same gene.
template <class Matrix>
__device__ static void reduce_genes(const Matrix &m, u32 n_rows, u32 n_genes, u32 groups, double *partial) {
    u32 rows = n_rows / groups + (n_rows % groups != 0 ? 1 : 0);
    for (u32 group = blockIdx.x; group < groups; group += gridDim.x) {
        u64 first = (u64)group * rows, last = min(first + rows, (u64)n_rows);
        for (u32 row = (u32)first; row < last; row++) {
            u64 end = m.row_start[row + 1];
            for (u64 at = m.row_start[row] + threadIdx.x; at < end; at += blockDim.x) {
                double *of_gene = partial + (u64)group * 4 * n_genes + m.gene(at);
                DoubleSum sums[2] = {load(of_gene, n_genes, 0), load(of_gene, n_genes, 1)};
                add_value(sums, m.value(row, at));
                store(of_gene, n_genes, 0, sums[0]);
                store(of_gene, n_genes, 1, sums[1]);
            }
            __syncthreads();
        }
    }
}
FOR_EACH_FORM(reduce_genes, (u32 n_rows, u32 n_genes, u32 groups, double *partial), (n_rows, n_genes, groups, partial))

// A thread adds up one gene over the groups, in order.
KERNEL merge_genes(double *__restrict__ partial, u32 groups, u32 n_genes, double *__restrict__ sums) {
    for (u32 gene = blockIdx.x * blockDim.x + threadIdx.x; gene < n_genes; gene += gridDim.x * blockDim.x) {
        for (int i = 0; i < 2; i++) {
            DoubleSum sum = load(sums + gene, n_genes, i);
            for (u32 group = 0; group < groups; group++) {
                double *of_gene = partial + (u64)group * 4 * n_genes + gene;
                sum.add(load(of_gene, n_genes, i));
                store(of_gene, n_genes, i, DoubleSum{0.0, 0.0});
            }
            store(sums + gene, n_genes, i, sum);
        }
    }
}
EXPORT_KERNEL(merge_genes)
