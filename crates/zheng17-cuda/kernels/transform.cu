// Changing stored values, and elementwise products. Values that become zero are dropped, so rows are counted first and filled
// after their positions were summed. Each value is computed in 64 bits and rounded once.
#include "numbers.h"

enum Operation { CAST, SCALE_CELLS, SCALE_GENES, TIMES, LOG1P, SQUARE, SQRT, ABS, SIGN, ROUND, FLOOR, CEIL };

__device__ static inline double changed(u32 operation, double x, u32 row, u32 gene, const double *factors, double factor) {
    switch (operation) {
    case SCALE_CELLS: return x * factors[row];
    case SCALE_GENES: return x * factors[gene];
    case TIMES: return x * factor;
    case LOG1P: return log_1p(x);
    case SQUARE: return x * x;
    case SQRT: return sqrt(x);
    case ABS: return x < 0.0 ? -x : x;
    case SIGN: return x > 0.0 ? 1.0 : x < 0.0 ? -1.0 : x;
    case ROUND: return rint(x);
    case FLOOR: return floor(x);
    case CEIL: return ceil(x);
    default: return x;
    }
}

template <class Matrix>
__device__ static void transform_count(const Matrix &m, u32 n_rows, u32 operation, const double *factors, double factor,
                                       u32 to_f32, u32 *kept) {
    for (u32 row = warp_of_grid(); row < n_rows; row += warps_of_grid()) {
        u64 end = m.row_start[row + 1], n = 0;
        for (u64 at = m.row_start[row] + lane(); at < end; at += 32) {
            double y = changed(operation, m.value(row, at), row, m.gene(at), factors, factor);
            n += (to_f32 ? (double)(float)y : y) != 0.0 ? 1 : 0;
        }
        n = warp_sum(n);
        if (lane() == 0) kept[row] = (u32)n;
    }
}
FOR_EACH_FORM(transform_count,
              (u32 n_rows, u32 operation, const double *__restrict__ factors, double factor, u32 to_f32,
               u32 *__restrict__ kept),
              (n_rows, operation, factors, factor, to_f32, kept))

template <class Matrix, class Value>
__device__ static void transform_fill(const Matrix &m, u32 n_rows, u32 operation, const double *factors, double factor,
                                      const u64 *out_row_start, u32 *out_genes, Value *out_values) {
    for (u32 row = warp_of_grid(); row < n_rows; row += warps_of_grid())
        write_kept(m.row_start[row], m.row_start[row + 1], out_row_start[row], out_genes, out_values,
                   [=](u64 at, u32 &gene, Value &value) {
                       gene = m.gene(at);
                       value = (Value)changed(operation, m.value(row, at), row, gene, factors, factor);
                       return value != 0;
                   });
}
#define TRANSFORM_FILL(from, to, Value, PARAMETERS, MATRIX)                                                                   \
    KERNEL transform_fill_##from##_to_##to(PARAMETERS, u32 n_rows, u32 operation, const double *__restrict__ factors,          \
                                           double factor, const u64 *__restrict__ out_row_start,                               \
                                           u32 *__restrict__ out_genes, Value *__restrict__ out_values) {                      \
        transform_fill(MATRIX, n_rows, operation, factors, factor, out_row_start, out_genes, out_values);                      \
    }                                                                                                                         \
    EXPORT_KERNEL(transform_fill_##from##_to_##to)
TRANSFORM_FILL(narrow, f32, float, UNPACK(NARROW()), THE_NARROW())
TRANSFORM_FILL(narrow, f64, double, UNPACK(NARROW()), THE_NARROW())
TRANSFORM_FILL(f32, f32, float, UNPACK(WIDE(, float)), THE_WIDE(, float))
TRANSFORM_FILL(f32, f64, double, UNPACK(WIDE(, float)), THE_WIDE(, float))
TRANSFORM_FILL(f64, f32, float, UNPACK(WIDE(, double)), THE_WIDE(, double))
TRANSFORM_FILL(f64, f64, double, UNPACK(WIDE(, double)), THE_WIDE(, double))

// The rounded product of an entry of a with b's of the same cell and gene, found by bisection; 0 where b has none. Lanes look
// for neighbouring genes, so they mostly load the same lines.
template <class Value>
__device__ static inline Value product(const Wide<Value> &a, u64 at, const Wide<Value> &b, u32 row) {
    u32 gene = a.genes[at];
    u64 low = b.row_start[row], high = b.row_start[row + 1], end = high;
    while (low < high) {
        u64 middle = low + (high - low) / 2;
        if (b.genes[middle] < gene) low = middle + 1; else high = middle;
    }
    bool found = low < end && b.genes[low] == gene;
    return found ? (Value)((double)a.values[at] * (double)b.values[low]) : 0;
}

template <class Value>
__device__ static void multiply_count(const Wide<Value> &a, const Wide<Value> &b, u32 n_rows, u32 *kept) {
    for (u32 row = warp_of_grid(); row < n_rows; row += warps_of_grid()) {
        u64 end = a.row_start[row + 1], n = 0;
        for (u64 at = a.row_start[row] + lane(); at < end; at += 32) n += product(a, at, b, row) != 0 ? 1 : 0;
        n = warp_sum(n);
        if (lane() == 0) kept[row] = (u32)n;
    }
}

template <class Value>
__device__ static void multiply_fill(const Wide<Value> &a, const Wide<Value> &b, u32 n_rows, const u64 *out_row_start,
                                     u32 *out_genes, Value *out_values) {
    for (u32 row = warp_of_grid(); row < n_rows; row += warps_of_grid())
        write_kept(a.row_start[row], a.row_start[row + 1], out_row_start[row], out_genes, out_values,
                   [=](u64 at, u32 &gene, Value &value) {
                       gene = a.genes[at];
                       value = product(a, at, b, row);
                       return value != 0;
                   });
}
#define MULTIPLY(form, Value)                                                                                                 \
    KERNEL multiply_count_##form(WIDE(a_, Value), WIDE(b_, Value), u32 n_rows, u32 *__restrict__ kept) {                       \
        multiply_count(THE_WIDE(a_, Value), THE_WIDE(b_, Value), n_rows, kept);                                                \
    }                                                                                                                         \
    EXPORT_KERNEL(multiply_count_##form)                                                                                      \
    KERNEL multiply_fill_##form(WIDE(a_, Value), WIDE(b_, Value), u32 n_rows, const u64 *__restrict__ out_row_start,           \
                                u32 *__restrict__ out_genes, Value *__restrict__ out_values) {                                 \
        multiply_fill(THE_WIDE(a_, Value), THE_WIDE(b_, Value), n_rows, out_row_start, out_genes, out_values);                 \
    }                                                                                                                         \
    EXPORT_KERNEL(multiply_fill_##form)
MULTIPLY(f32, float)
MULTIPLY(f64, double)
