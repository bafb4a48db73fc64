// The arithmetic of core, operation by operation: fixed points, log1p, sums in twice the digits. Only operations that IEEE 754
// fixes, none of libdevice's functions, and no contraction, so the bits are the CPU's.
#pragma once
#include "device.h"

constexpr double TWO_40 = 1099511627776.0;
constexpr double TWO_46 = 70368744177664.0;
constexpr double TWO_52 = 4503599627370496.0;
constexpr u64 LOW_52 = (1ull << 52) - 1;

// An unsigned number of 128 bits.
struct Wide128 {
    u64 low, high;
    __device__ void add(Wide128 other) {
        low += other.low;
        high += other.high + (low < other.low ? 1 : 0);
    }
};

// x times 2^shift, for 0 < shift < 64.
__device__ static inline Wide128 shifted(u64 x, u32 shift) { return Wide128{x << shift, x >> (64 - shift)}; }

// A number that is not negative and below 2^115, to the nearest integer, ties to even; negative ones and NaN give 0.
__device__ static inline Wide128 to_wide(double x) {
    if (!(x > 0.0)) return Wide128{0, 0};
    if (x < 9007199254740992.0) return Wide128{(u64)__double2ll_rn(x), 0};
    u64 bits = (u64)__double_as_longlong(x);
    u32 shift = (u32)(bits >> 52) - 1075;
    u64 digits = (bits & LOW_52) | (1ull << 52);
    return shift < 64 ? shifted(digits, shift) : Wide128{0, digits << (shift - 64)};
}

// The nearest double.
__device__ static inline double to_double(Wide128 x) {
    if (x.high == 0) return (double)x.low;
    // The top 64 bits decide, but for ties; a sticky last bit keeps what was cut off.
    u32 zeros = (u32)__clzll((i64)x.high);
    u64 top = zeros == 0 ? x.high : (x.high << zeros) | (x.low >> (64 - zeros));
    u64 rest = x.low << zeros;
    double power = __longlong_as_double((i64)((u64)(1023 + 64 - zeros) << 52));
    return (double)(top | (rest != 0 ? 1 : 0)) * power;
}

// A value in units of 2^-40, as totals are summed.
__device__ static inline Wide128 fixed_total(double x) { return to_wide(x * TWO_40); }

__device__ static inline double share_weight(double total) { return total > 0.0 ? TWO_52 / total : 0.0; }

// min(x, most) as a whole number, ties to even; most is at most 2^53.
__device__ static inline u64 to_whole(double x, double most) {
    double y = x < most ? x : most;
    return y > 0.0 ? (u64)__double2ll_rn(y) : 0;
}

__device__ static inline u64 share(double x, double weight) { return to_whole(x * weight, TWO_52); }

// log(1 + x): core's log1p line by line, where the method is told.
__device__ static inline double log_1p(double x) {
    const double LN_2_HIGH = 0x1.62e42fee00000p-1;
    const double LN_2_LOW = 0x1.a39ef35793c76p-33;
    const u64 SQRT_2_HIGH = 0x3ff6a09e;
    const double INFINITE = __longlong_as_double(0x7ff0000000000000ll);
    if (!(x > -1.0 && x < INFINITE)) {
        if (x == -1.0) return -INFINITE;
        return x < -1.0 ? __longlong_as_double(0x7ff8000000000000ll) : x;
    }
    if ((x < 0.0 ? -x : x) < 0x1p-54) return x;
    double u = 1.0 + x;
    u64 bits = (u64)__double_as_longlong(u);
    u64 moved = bits + ((0x3ff00000ull - (SQRT_2_HIGH - 0x00100000ull)) << 32);
    double k = (double)((i64)(moved >> 52) - 1023);
    double f = x, correction = 0.0;
    if (k != 0.0) {
        double lost = x >= 1.0 ? 1.0 - (u - x) : x - (u - 1.0);
        u64 reduced = (moved & LOW_52) + ((SQRT_2_HIGH - 0x00100000ull) << 32);
        f = __longlong_as_double((i64)reduced) - 1.0;
        correction = lost / u;
    }
    double half_square = 0.5 * f * f;
    double s = f / (2.0 + f);
    double z = s * s;
    double r = 2.0 / 23.0;
    r = r * z + 2.0 / 21.0;
    r = r * z + 2.0 / 19.0;
    r = r * z + 2.0 / 17.0;
    r = r * z + 2.0 / 15.0;
    r = r * z + 2.0 / 13.0;
    r = r * z + 2.0 / 11.0;
    r = r * z + 2.0 / 9.0;
    r = r * z + 2.0 / 7.0;
    r = r * z + 2.0 / 5.0;
    r = r * z + 2.0 / 3.0;
    r = r * z;
    return k * LN_2_HIGH - ((half_square - (s * (half_square + r) + (k * LN_2_LOW + correction))) - f);
}

// A sum in twice the digits of a double: core's DoubleSum.
struct DoubleSum {
    double high, low;

    __device__ static DoubleSum two_sum(double a, double b) {
        double sum = a + b;
        double b_in_sum = sum - a;
        return DoubleSum{sum, (a - (sum - b_in_sum)) + (b - b_in_sum)};
    }
    __device__ void add(double x) {
        DoubleSum next = two_sum(high, x);
        *this = two_sum(next.high, low + next.low);
    }
    __device__ void add_square(double x) {
        double square = x * x;
        add(square);
        double error = __fma_rn(x, x, -square);
        if (error != 0.0) add(error);
    }
    __device__ void add(DoubleSum other) {
        add(other.high);
        add(other.low);
    }
};

// How stored values become results: core's OutputPlan.
struct Plan {
    const double *cell_scale;
    u32 log;
    const double *mean;
    const double *inverse_deviation;
    const double *zero_values;
    double max_value;

    __device__ double normalised(double x, double scale) const {
        double y = x * scale;
        return log ? log_1p(y) : y;
    }
    __device__ double scaled(double normalised, u32 gene) const {
        double y = (normalised - mean[gene]) * inverse_deviation[gene] + 0.0;
        if (y < -max_value) return -max_value;
        return y > max_value ? max_value : y;
    }
    __device__ bool clips() const { return max_value < __longlong_as_double(0x7ff0000000000000ll); }
    // What an entry adds to the value that its gene has in a cell without entries.
    __device__ double correction(double x, double scale, u32 gene) const {
        double y = normalised(x, scale);
        return clips() ? scaled(y, gene) - zero_values[gene] : y * inverse_deviation[gene];
    }
};

#define PLAN                                                                                                                  \
    const double *__restrict__ cell_scale, u32 log, const double *__restrict__ mean,                                          \
        const double *__restrict__ inverse_deviation, const double *__restrict__ zero_values, double max_value
#define THE_PLAN (Plan{cell_scale, log, mean, inverse_deviation, zero_values, max_value})
