// What every kernel source shares: names of types, the forms of a matrix, and sums over a warp. Under the CUDA compiler shared
// memory and entry points are CUDA's own; under a host compiler the emulator stands in for them. Nothing else differs.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define SHARED(type, name, n) __shared__ type name[n]
#define EXPORT_KERNEL(name)
#else
#include "emulator.h"
#endif

// Four blocks of 256 threads on a processor leave each thread 64 registers.
#define KERNEL extern "C" __global__ void __launch_bounds__(256, 4)

constexpr u32 EVERY_LANE = 0xffffffffu;
constexpr u32 NOT_SELECTED = 0xffffffffu;

// Threads of a warp take 32 consecutive entries of one row, so that loads coalesce: 32 bytes of counts, 64 of narrow genes,
// 128 or 256 of wide ones. Warps take rows in turn.
__device__ static inline u32 lane() { return threadIdx.x & 31u; }
__device__ static inline u32 warp_of_grid() { return (blockIdx.x * blockDim.x + threadIdx.x) >> 5; }
__device__ static inline u32 warps_of_grid() { return (gridDim.x * blockDim.x) >> 5; }

// Escape of a count byte: the count is in the list of large ones.
constexpr u8 LARGE = 255;

// Entries of three bytes. Escapes are rare, so finding one may take a few loads.
struct Narrow {
    const u64 *row_start;
    const u16 *genes;
    const u8 *counts;
    const u64 *large_start;
    const u32 *large_at;
    const u32 *large_counts;

    __device__ u32 gene(u64 at) const { return genes[at]; }
    __device__ u32 count(u32 row, u64 at) const {
        u8 count = counts[at];
        return count == LARGE ? large_count(row, (u32)(at - row_start[row])) : count;
    }
    __device__ double value(u32 row, u64 at) const { return (double)count(row, at); }

    // The count of the row's entry at `place`, by bisection: places increase.
    __device__ u32 large_count(u32 row, u32 place) const {
        u64 low = large_start[row], high = large_start[row + 1];
        while (low + 1 < high) {
            u64 middle = low + (high - low) / 2;
            if (large_at[middle] <= place) low = middle; else high = middle;
        }
        return large_counts[low];
    }
};

// Entries of 32-bit genes and floats.
template <class Value> struct Wide {
    const u64 *row_start;
    const u32 *genes;
    const Value *values;

    __device__ u32 gene(u64 at) const { return genes[at]; }
    __device__ double value(u32, u64 at) const { return (double)values[at]; }
};

#define NARROW(p)                                                                                                             \
    const u64 *__restrict__ p##row_start, const u16 *__restrict__ p##genes, const u8 *__restrict__ p##counts,                  \
        const u64 *__restrict__ p##large_start, const u32 *__restrict__ p##large_at, const u32 *__restrict__ p##large_counts
#define WIDE(p, Value)                                                                                                        \
    const u64 *__restrict__ p##row_start, const u32 *__restrict__ p##genes, const Value *__restrict__ p##values
#define THE_NARROW(p) (Narrow{p##row_start, p##genes, p##counts, p##large_start, p##large_at, p##large_counts})
#define THE_WIDE(p, Value) (Wide<Value>{p##row_start, p##genes, p##values})

// The entry points of a template `name(matrix, ...)`, one for each form. Parameters and arguments stand in brackets.
#define UNPACK(...) __VA_ARGS__
#define FOR_EACH_FORM(name, parameters, arguments)                                                                            \
    KERNEL name##_narrow(NARROW(), UNPACK parameters) { name(THE_NARROW(), UNPACK arguments); }                                \
    EXPORT_KERNEL(name##_narrow)                                                                                              \
    FOR_EACH_WIDE_FORM(name, parameters, arguments)
#define FOR_EACH_WIDE_FORM(name, parameters, arguments)                                                                       \
    KERNEL name##_f32(WIDE(, float), UNPACK parameters) { name(THE_WIDE(, float), UNPACK arguments); }                         \
    EXPORT_KERNEL(name##_f32)                                                                                                 \
    KERNEL name##_f64(WIDE(, double), UNPACK parameters) { name(THE_WIDE(, double), UNPACK arguments); }                       \
    EXPORT_KERNEL(name##_f64)

// The sum over a warp's lanes, in every lane.
__device__ static inline u64 warp_sum(u64 x) {
    for (int distance = 16; distance > 0; distance >>= 1) x += __shfl_xor_sync(EVERY_LANE, x, distance);
    return x;
}

// Lanes before this one that are set in a ballot.
__device__ static inline u32 lanes_before(u32 ballot) { return (u32)__popc(ballot & ((1u << lane()) - 1u)); }

// Writes what remains of a row, in order: `next(at, &gene, &value)` says whether the entry at a position stays. One warp.
// All lanes go through the loop as often, as the ballot needs every one of them.
template <class Next, class Gene, class Value>
__device__ static inline void write_kept(u64 begin, u64 end, u64 to, Gene *genes, Value *values, Next next) {
    for (u64 base = begin; base < end; base += 32) {
        u64 at = base + lane();
        u32 gene = 0;
        Value value = 0;
        bool stays = at < end && next(at, gene, value);
        u32 ballot = __ballot_sync(EVERY_LANE, stays);
        if (stays) {
            genes[to + lanes_before(ballot)] = (Gene)gene;
            values[to + lanes_before(ballot)] = value;
        }
        to += (u64)__popc(ballot);
    }
}
