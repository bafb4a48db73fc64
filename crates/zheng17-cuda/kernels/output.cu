// Values of the selected genes: normalised, scaled, and what PCA sums of them. The matrices are small here (a few hundred
// entries a row), the dense results are what costs: rows of them are written once, in whole lines.
#include "numbers.h"

template <class Matrix>
__device__ static void normalise(const Matrix &m, u32 n_rows, const double *cell_scale, u32 log, float *out) {
    Plan plan = {cell_scale, log, nullptr, nullptr, nullptr, 0.0};
    for (u32 row = warp_of_grid(); row < n_rows; row += warps_of_grid()) {
        u64 end = m.row_start[row + 1];
        for (u64 at = m.row_start[row] + lane(); at < end; at += 32)
            out[at] = (float)plan.normalised(m.value(row, at), cell_scale[row]);
    }
}
FOR_EACH_FORM(normalise, (u32 n_rows, const double *__restrict__ cell_scale, u32 log, float *__restrict__ out),
              (n_rows, cell_scale, log, out))

// A block makes a dense row: first what a cell without entries has, then the entries.
template <class Matrix, class Value, class Zero, class Entry>
__device__ static inline void dense_rows(const Matrix &m, u32 n_rows, u32 n_genes, const Plan &plan, Value *out, Zero zero,
                                         Entry entry) {
    for (u32 row = blockIdx.x; row < n_rows; row += gridDim.x) {
        Value *to = out + (u64)row * n_genes;
        for (u32 gene = threadIdx.x; gene < n_genes; gene += blockDim.x) to[gene] = zero(gene);
        __syncthreads();
        u64 end = m.row_start[row + 1];
        for (u64 at = m.row_start[row] + threadIdx.x; at < end; at += blockDim.x) {
            u32 gene = m.gene(at);
            to[gene] = entry(m.value(row, at), plan.cell_scale[row], gene);
        }
    }
}

template <class Matrix> __device__ static void scale(const Matrix &m, u32 n_rows, u32 n_genes, const Plan &plan, float *out) {
    dense_rows(m, n_rows, n_genes, plan, out, [&](u32 gene) { return (float)plan.zero_values[gene]; },
               [&](double x, double scale, u32 gene) { return (float)plan.scaled(plan.normalised(x, scale), gene); });
}
FOR_EACH_FORM(scale, (u32 n_rows, u32 n_genes, PLAN, float *__restrict__ out), (n_rows, n_genes, THE_PLAN, out))

template <class Matrix>
__device__ static void corrections(const Matrix &m, u32 n_rows, u32 n_genes, const Plan &plan, double *tile) {
    dense_rows(m, n_rows, n_genes, plan, tile, [](u32) { return 0.0; },
               [&](double x, double scale, u32 gene) { return plan.correction(x, scale, gene); });
}
FOR_EACH_FORM(corrections, (u32 n_rows, u32 n_genes, PLAN, double *__restrict__ tile), (n_rows, n_genes, THE_PLAN, tile))

// A block of 256 threads makes 64 × 64 products of genes over all rows of a tile, 4 × 4 in the registers of each thread. Steps
// of 16 rows pass through shared memory, so each number of the tile is loaded n_genes / 64 times instead of n_genes times.
// Lanes read consecutive genes: no two of them the same bank but for broadcasts. Every sum runs over cells in order.
constexpr u32 PRODUCTS = 64, STEP = 16;

__device__ static inline void load_step(const double *tile, u32 n_rows, u32 n_genes, u32 row0, u32 gene0, double *to) {
    for (u32 i = threadIdx.x; i < STEP * PRODUCTS; i += blockDim.x) {
        u32 row = row0 + i / PRODUCTS, gene = gene0 + i % PRODUCTS;
        to[i] = row < n_rows && gene < n_genes ? tile[(u64)row * n_genes + gene] : 0.0;
    }
}

KERNEL gram_products(const double *__restrict__ tile, u32 n_rows, u32 n_genes, double *__restrict__ products) {
    SHARED(double, of_a, STEP * PRODUCTS);
    SHARED(double, of_b, STEP * PRODUCTS);
    u32 a0 = blockIdx.y * PRODUCTS, b0 = blockIdx.x * PRODUCTS;
    if (b0 > a0) return; // above the diagonal
    u32 ta = threadIdx.x / 16, tb = threadIdx.x % 16;
    double sums[4][4] = {};
    for (u32 row0 = 0; row0 < n_rows; row0 += STEP) {
        load_step(tile, n_rows, n_genes, row0, a0, of_a);
        load_step(tile, n_rows, n_genes, row0, b0, of_b);
        __syncthreads();
        for (u32 row = 0; row < STEP; row++) {
            double d[4], e[4];
            for (u32 i = 0; i < 4; i++) {
                d[i] = of_a[row * PRODUCTS + ta + 16 * i];
                e[i] = of_b[row * PRODUCTS + tb + 16 * i];
            }
            for (u32 i = 0; i < 4; i++)
                for (u32 j = 0; j < 4; j++) sums[i][j] += d[i] * e[j];
        }
        __syncthreads();
    }
    for (u32 i = 0; i < 4; i++) {
        for (u32 j = 0; j < 4; j++) {
            u32 a = a0 + ta + 16 * i, b = b0 + tb + 16 * j;
            if (a < n_genes && b <= a) products[(u64)a * n_genes + b] += sums[i][j];
        }
    }
}
EXPORT_KERNEL(gram_products)

// A thread sums one gene over the rows; threads read consecutive genes.
KERNEL gram_sums(const double *__restrict__ tile, u32 n_rows, u32 n_genes, double *__restrict__ sums) {
    for (u32 gene = blockIdx.x * blockDim.x + threadIdx.x; gene < n_genes; gene += gridDim.x * blockDim.x) {
        double sum = 0.0;
        for (u32 row = 0; row < n_rows; row++) sum += tile[(u64)row * n_genes + gene];
        sums[gene] += sum;
    }
}
EXPORT_KERNEL(gram_sums)

// A block makes the scores of a cell. Corrections of 256 entries at a time go to shared memory; then each thread adds them, in
// gene order, to its component. Weights of a gene are read in whole lines.
constexpr u32 ENTRIES = 256;

template <class Matrix>
__device__ static void project(const Matrix &m, u32 n_rows, const Plan &plan, u32 n_components, const double *weights,
                               const double *offset, float *out) {
    SHARED(double, correction, ENTRIES);
    SHARED(u32, gene_of, ENTRIES);
    for (u32 row = blockIdx.x; row < n_rows; row += gridDim.x) {
        u64 begin = m.row_start[row], end = m.row_start[row + 1];
        double scale = plan.cell_scale[row];
        for (u32 first = 0; first < n_components; first += blockDim.x) {
            u32 component = first + threadIdx.x;
            double score = 0.0;
            for (u64 base = begin; base < end; base += ENTRIES) {
                u32 n = (u32)min((u64)ENTRIES, end - base);
                for (u32 i = threadIdx.x; i < n; i += blockDim.x) {
                    gene_of[i] = m.gene(base + i);
                    correction[i] = plan.correction(m.value(row, base + i), scale, gene_of[i]);
                }
                __syncthreads();
                if (component < n_components)
                    for (u32 i = 0; i < n; i++) score += correction[i] * weights[(u64)gene_of[i] * n_components + component];
                __syncthreads();
            }
            if (component < n_components) out[(u64)row * n_components + component] = (float)(score - offset[component]);
        }
    }
}
FOR_EACH_FORM(project,
              (u32 n_rows, PLAN, u32 n_components, const double *__restrict__ weights, const double *__restrict__ offset,
               float *__restrict__ out),
              (n_rows, THE_PLAN, n_components, weights, offset, out))
