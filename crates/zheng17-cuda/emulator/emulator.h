// The device's language for a host compiler: enough of CUDA C++ to compile the kernel sources and run them thread by thread.
// For tests only. What is checked while kernels run: barriers that not all threads of a block reach, warp operations that not
// all lanes of their mask reach, limits of launches; and, in builds with sanitizers, places outside of memory, undefined
// arithmetic, and accesses of two threads to a place without order between them.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#define __global__
#define __device__
#define __launch_bounds__(...)

namespace emulator {
struct Index {
    unsigned x, y, z;
};

// What a running kernel knows of its own thread.
struct Thread {
    Index thread, block, block_size, grid_size;
};
extern __thread Thread *current; // not thread_local, whose wrapper UBSan misreads

// Where a collective operation stands in the source, to say so when not everybody comes.
#define EMULATOR_TEXT_(x) #x
#define EMULATOR_TEXT(x) EMULATOR_TEXT_(x)
#define EMULATOR_HERE __FILE__ ":" EMULATOR_TEXT(__LINE__)

void block_barrier(const char *where);
enum WarpOperation { SHUFFLE_XOR, SHUFFLE_UP, SHUFFLE_DOWN, BALLOT };
uint64_t warp_operation(WarpOperation operation, unsigned mask, uint64_t value, int argument, const char *where);
void *shared_memory(int site, size_t bytes);

template <class T> inline T shuffle(WarpOperation operation, unsigned mask, T value, int argument, const char *where) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "the device shuffles 4 or 8 bytes");
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    bits = warp_operation(operation, mask, bits, argument, where);
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

// A kernel by its name, with what it takes.
struct Kernel {
    const char *name;
    void (*call)(void **arguments);
    int n_arguments;
    const size_t *sizes;
    const bool *are_pointers;
    const Kernel *next;
};
void add_kernel(Kernel *kernel);

template <class... A> struct Signature {
    static constexpr size_t sizes[sizeof...(A) + 1] = {sizeof(A)..., 0};
    static constexpr bool are_pointers[sizeof...(A) + 1] = {std::is_pointer<A>::value..., false};
    template <size_t... I> static void call(void (*kernel)(A...), void **arguments, std::index_sequence<I...>) {
        kernel(*static_cast<A *>(arguments[I])...);
    }
};
template <auto kernel> struct Registered;
template <class... A, void (*kernel)(A...)> struct Registered<kernel> {
    Kernel record;
    explicit Registered(const char *name) {
        using S = Signature<A...>;
        auto call = [](void **arguments) { S::call(kernel, arguments, std::index_sequence_for<A...>{}); };
        record = {name, call, sizeof...(A), S::sizes, S::are_pointers, nullptr};
        add_kernel(&record);
    }
};
} // namespace emulator

#define threadIdx (emulator::current->thread)
#define blockIdx (emulator::current->block)
#define blockDim (emulator::current->block_size)
#define gridDim (emulator::current->grid_size)

#define SHARED(type, name, n) type *name = static_cast<type *>(emulator::shared_memory(__COUNTER__, sizeof(type) * (n)))
#define EXPORT_KERNEL(name) static emulator::Registered<&name> registered_##name(#name);

#define __syncthreads() emulator::block_barrier(EMULATOR_HERE)
#define __shfl_xor_sync(mask, value, by) emulator::shuffle(emulator::SHUFFLE_XOR, mask, value, (int)(by), EMULATOR_HERE)
#define __shfl_up_sync(mask, value, by) emulator::shuffle(emulator::SHUFFLE_UP, mask, value, (int)(by), EMULATOR_HERE)
#define __shfl_down_sync(mask, value, by) emulator::shuffle(emulator::SHUFFLE_DOWN, mask, value, (int)(by), EMULATOR_HERE)
#define __ballot_sync(mask, p) ((unsigned)emulator::warp_operation(emulator::BALLOT, mask, (p) ? 1 : 0, 0, EMULATOR_HERE))

// Relaxed, as the device's are. A plain access to the same place is a race.
template <class T> inline T atomicAdd(T *to, T x) {
    static_assert(std::is_integral<T>::value, "sums of floats depend on the order of threads");
    return __atomic_fetch_add(to, x, __ATOMIC_RELAXED);
}
template <class T> inline T atomicMax(T *to, T x) {
    T old = __atomic_load_n(to, __ATOMIC_RELAXED);
    while (old < x && !__atomic_compare_exchange_n(to, &old, x, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    return old;
}

template <class T> inline T min(T a, T b) { return b < a ? b : a; }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __clzll(long long x) { return x == 0 ? 64 : __builtin_clzll((unsigned long long)x); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
inline double __fma_rn(double a, double b, double c) { return std::fma(a, b, c); }
inline long long __double_as_longlong(double x) {
    long long bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
}
inline double __longlong_as_double(long long bits) {
    double x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}
// To the nearest, ties to even; beyond the range the device gives its ends.
inline long long __double2ll_rn(double x) {
    if (!(x >= -9223372036854775808.0)) return INT64_MIN;
    return x < 9223372036854775808.0 ? std::llrint(x) : INT64_MAX;
}
