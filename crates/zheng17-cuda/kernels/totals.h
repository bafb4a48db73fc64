// Totals of cells over the genes that count, as core's CountSummary has them. A warp sums a row; every lane gets the total.
#pragma once
#include "numbers.h"

// Whole counts: the sum has no rounding, and neither has its conversion but the last.
template <class Counts> __device__ static inline double row_total(const Narrow &m, u32 row, Counts counts) {
    u64 sum = 0, end = m.row_start[row + 1];
    for (u64 at = m.row_start[row] + lane(); at < end; at += 32)
        if (counts(m.gene(at))) sum += m.count(row, at);
    return (double)warp_sum(sum);
}

template <class Value, class Counts> __device__ static inline double row_total(const Wide<Value> &m, u32 row, Counts counts) {
    Wide128 sum = {0, 0};
    u64 end = m.row_start[row + 1];
    for (u64 at = m.row_start[row] + lane(); at < end; at += 32)
        if (counts(m.gene(at))) sum.add(fixed_total(m.value(row, at)));
    for (int distance = 16; distance > 0; distance >>= 1)
        sum.add(Wide128{__shfl_xor_sync(EVERY_LANE, sum.low, distance), __shfl_xor_sync(EVERY_LANE, sum.high, distance)});
    return to_double(sum) / TWO_40;
}
