// Runs kernels: every thread of the device is a fiber, the fibers of a block share a thread of the host, and blocks are handed
// round. This file is never compiled with a sanitizer itself; it tells them of fibers, barriers and launches through hooks that
// are weak, and absent in other builds.
#include "emulator.h"

#include "api.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>
#include <new>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <vector>

extern "C" {
__attribute__((weak)) void *__tsan_get_current_fiber();
__attribute__((weak)) void *__tsan_create_fiber(unsigned);
__attribute__((weak)) void __tsan_destroy_fiber(void *);
__attribute__((weak)) void __tsan_switch_to_fiber(void *, unsigned);
__attribute__((weak)) void __tsan_acquire(void *);
__attribute__((weak)) void __tsan_release(void *);
__attribute__((weak)) void __sanitizer_start_switch_fiber(void **, const void *, size_t);
__attribute__((weak)) void __sanitizer_finish_switch_fiber(void *, const void **, size_t *);
}

#if !defined(__x86_64__)
#error "the emulator knows how to switch stacks on x86-64 only"
#endif
// void emulator_switch(void **save_stack, void *to_stack): saves what a call must keep, and goes on where the other left off.
asm(R"(
.text
.globl emulator_switch
.hidden emulator_switch
.type emulator_switch,@function
emulator_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size emulator_switch,.-emulator_switch
.section .note.GNU-stack,"",@progbits
.text
)");
extern "C" void emulator_switch(void **save_stack, void *to_stack);

namespace emulator {
__thread Thread *current = nullptr;

static const Kernel *kernels = nullptr;
void add_kernel(Kernel *kernel) {
    kernel->next = kernels;
    kernels = kernel;
}
static const Kernel *find_kernel(const char *name) {
    const Kernel *kernel = kernels;
    while (kernel && std::strcmp(kernel->name, name)) kernel = kernel->next;
    return kernel;
}

static const size_t STACK = 64 * 1024, SHARED_LIMIT = 48 * 1024;
static bool looks_for_races() { return __tsan_create_fiber != nullptr; }

// Memory orders that TSan is told of. One tag for the beginning and one for the end, so that blocks are not ordered among each
// other.
static char launch_begins, launch_ends;
static void acquire(char *tag) {
    if (__tsan_acquire) __tsan_acquire(tag);
}
static void release(char *tag) {
    if (__tsan_release) __tsan_release(tag);
}

struct RuleBroken {
    std::string what;
};

enum State { READY, AT_BARRIER, AT_WARP_OPERATION, WANTS_SHARED, DONE };
struct Block;

struct Fiber {
    Thread thread;
    Block *block;
    State state;
    const char *where;
    // The warp operation it waits for.
    WarpOperation operation;
    unsigned mask;
    uint64_t value;
    int argument;
    // The shared memory it asks for.
    int site;
    size_t bytes;
    void *shared;
    unsigned barriers;
    void *stack_pointer, *asan_stack;
    // What it keeps for the next thread that it becomes.
    char *stack;
    void *tsan_fiber;
};

struct Block {
    const Kernel *kernel;
    void **arguments;
    std::vector<Fiber *> fibers;
    std::map<int, void *> shared; // by the place in the source that asks
    char *shared_space = nullptr; // where races are looked for
    size_t shared_used = 0;
    char barrier_tags[2]; // in turn, so that nobody sees who is already at the next
    void *scheduler_pointer = nullptr, *tsan_scheduler = nullptr, *asan_scheduler = nullptr;
    const void *scheduler_stack = nullptr;
    size_t scheduler_stack_size = 0;
};

static thread_local Fiber *running = nullptr;

static void to_scheduler(Fiber *fiber, bool for_ever = false) {
    Block *block = fiber->block;
    if (__sanitizer_start_switch_fiber)
        __sanitizer_start_switch_fiber(for_ever ? nullptr : &fiber->asan_stack, block->scheduler_stack,
                                       block->scheduler_stack_size);
    if (__tsan_switch_to_fiber) __tsan_switch_to_fiber(block->tsan_scheduler, 1); // 1: this orders no memory
    emulator_switch(&fiber->stack_pointer, block->scheduler_pointer);
    if (__sanitizer_finish_switch_fiber) __sanitizer_finish_switch_fiber(fiber->asan_stack, nullptr, nullptr);
}

static void fiber_main() {
    Fiber *fiber = running;
    Block *block = fiber->block;
    if (__sanitizer_finish_switch_fiber)
        __sanitizer_finish_switch_fiber(nullptr, &block->scheduler_stack, &block->scheduler_stack_size);
    acquire(&launch_begins);
    block->kernel->call(block->arguments);
    release(&launch_ends);
    fiber->state = DONE;
    to_scheduler(fiber, true);
    std::abort();
}

static void resume(Fiber *fiber) {
    Block *block = fiber->block;
    current = &fiber->thread;
    running = fiber;
    if (__sanitizer_start_switch_fiber) __sanitizer_start_switch_fiber(&block->asan_scheduler, fiber->stack, STACK);
    if (__tsan_switch_to_fiber) __tsan_switch_to_fiber(fiber->tsan_fiber, 1);
    emulator_switch(&block->scheduler_pointer, fiber->stack_pointer);
    if (__sanitizer_finish_switch_fiber) __sanitizer_finish_switch_fiber(block->asan_scheduler, nullptr, nullptr);
    current = nullptr;
}

void block_barrier(const char *where) {
    Fiber *fiber = running;
    char *tag = &fiber->block->barrier_tags[fiber->barriers++ % 2];
    fiber->where = where;
    fiber->state = AT_BARRIER;
    release(tag);
    to_scheduler(fiber);
    acquire(tag);
}

// Values meet here, but memory is not ordered: the device promises that of barriers only.
uint64_t warp_operation(WarpOperation operation, unsigned mask, uint64_t value, int argument, const char *where) {
    Fiber *fiber = running;
    fiber->operation = operation;
    fiber->mask = mask;
    fiber->value = value;
    fiber->argument = argument;
    fiber->where = where;
    fiber->state = AT_WARP_OPERATION;
    to_scheduler(fiber);
    return fiber->value;
}

void *shared_memory(int site, size_t bytes) {
    Fiber *fiber = running;
    fiber->site = site;
    fiber->bytes = bytes;
    fiber->state = WANTS_SHARED;
    to_scheduler(fiber);
    return fiber->shared;
}

static char *new_pages(size_t bytes) {
    void *pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) std::abort();
    return static_cast<char *>(pages);
}

// Each block's shared memory is new and full of ones, so that what was never written shows as NaN or a huge number. It comes
// from malloc, which ASan watches; but where races are looked for, malloc and memset would count as writes of whoever runs, so
// the bytes come from the block's own pages and are set one by one.
static void *get_shared(Block *block, int site, size_t bytes) {
    void *&memory = block->shared[site];
    if (memory) return memory;
    if (block->shared_used + bytes > SHARED_LIMIT) throw RuleBroken{"more shared memory than a block may have"};
    memory = looks_for_races() ? block->shared_space + block->shared_used : std::malloc(bytes);
    if (!memory) std::abort();
    block->shared_used += (bytes + 63) / 64 * 64;
    for (size_t i = 0; i < bytes; i++) static_cast<volatile unsigned char *>(memory)[i] = 0xff;
    return memory;
}

// The lanes that a shuffle or ballot joins, once all of them have come.
static void finish_warp_operation(Fiber **lanes, int n_lanes, unsigned mask) {
    uint64_t values[32];
    unsigned ballot = 0;
    for (int i = 0; i < n_lanes; i++) {
        values[i] = lanes[i]->value;
        if ((mask >> i & 1) && values[i]) ballot |= 1u << i;
    }
    for (int i = 0; i < n_lanes; i++) {
        if (!(mask >> i & 1)) continue;
        Fiber *fiber = lanes[i];
        int from = i;
        switch (fiber->operation) {
        case SHUFFLE_XOR: from = i ^ fiber->argument; break;
        case SHUFFLE_UP: from = i - fiber->argument; break;
        case SHUFFLE_DOWN: from = i + fiber->argument; break;
        case BALLOT: break;
        }
        if (from < 0 || from > 31) from = i;
        if (from >= n_lanes || !(mask >> from & 1))
            throw RuleBroken{std::string("a shuffle takes the value of a lane that does not take part, at ") + fiber->where};
        fiber->value = fiber->operation == BALLOT ? ballot : values[from];
        fiber->state = READY;
    }
}

static void try_warp_operation(Fiber **lanes, int n_lanes) {
    for (int i = 0; i < n_lanes; i++) {
        Fiber *fiber = lanes[i];
        if (fiber->state != AT_WARP_OPERATION) continue;
        unsigned mask = n_lanes < 32 ? fiber->mask & ((1u << n_lanes) - 1) : fiber->mask;
        if (!(mask >> i & 1))
            throw RuleBroken{std::string("a lane takes part in what its mask leaves it out of, at ") + fiber->where};
        bool all = true;
        for (int j = 0; j < n_lanes; j++) {
            if (!(mask >> j & 1)) continue;
            Fiber *other = lanes[j];
            if (other->state == DONE)
                throw RuleBroken{std::string("a lane of the mask has ended before the warp operation at ") + fiber->where};
            if (other->state != AT_WARP_OPERATION) {
                all = false;
            } else if (std::strcmp(other->where, fiber->where)) {
                throw RuleBroken{std::string("lanes of a warp meet at different operations: ") + fiber->where + " and " +
                                 other->where};
            }
        }
        if (all) finish_warp_operation(lanes, n_lanes, mask);
    }
}

// Random numbers; 0 stays 0, which means no shuffling.
struct Random {
    uint64_t state;
    uint64_t below(uint64_t n) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        return state % n;
    }
};

// Lets each lane of a warp run until it waits; false if none could.
static bool run_warp(Block *block, int warp, Random *random) {
    Fiber **lanes = block->fibers.data() + warp * 32;
    int n_lanes = std::min(32, (int)block->fibers.size() - warp * 32), start = random->state ? (int)random->below(32) : 0;
    bool ran = false;
    for (int i = 0; i < 32; i++) {
        int lane = random->state ? (start + i * 5) % 32 : i; // 5 and 32 have no common factor
        if (lane >= n_lanes) continue;
        while (lanes[lane]->state == READY) {
            resume(lanes[lane]);
            ran = true;
            if (lanes[lane]->state == WANTS_SHARED) {
                lanes[lane]->shared = get_shared(block, lanes[lane]->site, lanes[lane]->bytes);
                lanes[lane]->state = READY;
            }
        }
    }
    try_warp_operation(lanes, n_lanes);
    return ran;
}

static bool can_run(const Block *block, int warp) {
    size_t end = std::min(block->fibers.size(), (size_t)warp * 32 + 32);
    return std::any_of(block->fibers.begin() + warp * 32, block->fibers.begin() + (long)end,
                       [](const Fiber *fiber) { return fiber->state == READY; });
}

// Lets warps run as far as they come, one at a time; now and then one is left for another.
static bool run_warps(Block *block, Random *random) {
    int n_warps = ((int)block->fibers.size() + 31) / 32;
    bool ran = false;
    std::vector<int> ready;
    for (int warp = 0; warp < n_warps; warp++)
        if (can_run(block, warp)) ready.push_back(warp);
    while (!ready.empty()) {
        size_t i = random->state ? random->below(ready.size()) : 0;
        do ran |= run_warp(block, ready[i], random);
        while (can_run(block, ready[i]) && !(random->state && random->below(8) == 0));
        if (!can_run(block, ready[i])) ready.erase(ready.begin() + (long)i);
    }
    return ran;
}

// All warps wait or are done: a barrier that all have reached opens, and what can never open is an error. False at the end.
static bool pass_barrier(Block *block, bool ran) {
    size_t waiting = 0, done = 0;
    const char *where = nullptr;
    for (const Fiber *fiber : block->fibers) {
        done += fiber->state == DONE;
        if (fiber->state != AT_BARRIER) continue;
        waiting++;
        if (where && std::strcmp(where, fiber->where))
            throw RuleBroken{std::string("threads of a block wait at different barriers: ") + where + " and " + fiber->where};
        where = fiber->where;
    }
    size_t all = block->fibers.size();
    if (done == all) return false;
    if (waiting == all) {
        for (Fiber *fiber : block->fibers) fiber->state = READY;
    } else if (waiting > 0 && waiting + done == all) {
        throw RuleBroken{"the barrier is not reached by " + std::to_string(done) + " of " + std::to_string(all) +
                         " threads, at " + where};
    } else if (!ran) {
        for (const Fiber *fiber : block->fibers)
            if (fiber->state == AT_WARP_OPERATION)
                throw RuleBroken{std::string("lanes of the mask never reach the warp operation at ") + fiber->where};
    }
    return true;
}

struct Grid {
    const Kernel *kernel;
    void **arguments;
    Index grid, block;
    uint64_t seed, n_blocks;
    std::atomic<uint64_t> next{0};
    std::mutex mutex;
    std::string error;
    std::vector<Fiber *> used;
};

// Fibers that are no thread at the moment. Making one takes long, for TSan above all.
static std::vector<Fiber *> idle;
static std::mutex idle_mutex;

// A fiber lies in pages of its own, below its stack: TSan would take malloc for a write of whoever runs.
static Fiber *take_fiber() {
    {
        std::lock_guard<std::mutex> lock(idle_mutex);
        if (!idle.empty()) {
            Fiber *fiber = idle.back();
            idle.pop_back();
            return fiber;
        }
    }
    char *pages = new_pages(4096 + STACK);
    Fiber *fiber = new (pages) Fiber;
    fiber->stack = pages + 4096;
    fiber->tsan_fiber = __tsan_create_fiber ? __tsan_create_fiber(0) : nullptr;
    return fiber;
}

static void give_back(const std::vector<Fiber *> &fibers) {
    std::lock_guard<std::mutex> lock(idle_mutex);
    idle.insert(idle.end(), fibers.begin(), fibers.end());
}

// A fiber as if it had been switched away from just before the first instruction of a thread.
static Fiber *start_fiber(Block *block, const Grid &grid, uint64_t id, unsigned i) {
    Fiber *fiber = take_fiber();
    Index size = grid.block, blocks = grid.grid;
    fiber->block = block;
    fiber->state = READY;
    fiber->barriers = 0;
    fiber->asan_stack = nullptr;
    fiber->thread = {{i % size.x, i / size.x % size.y, i / (size.x * size.y)},
                     {(unsigned)(id % blocks.x), (unsigned)(id / blocks.x % blocks.y),
                      (unsigned)(id / ((uint64_t)blocks.x * blocks.y))},
                     size,
                     blocks};
    void **top = reinterpret_cast<void **>(fiber->stack + STACK - 64);
    *--top = nullptr;
    *--top = reinterpret_cast<void *>(&fiber_main);
    for (int kept = 0; kept < 6; kept++) *--top = nullptr;
    fiber->stack_pointer = top;
    return fiber;
}

static void run_block(Grid &grid, uint64_t id) {
    unsigned n = grid.block.x * grid.block.y * grid.block.z;
    Block block;
    block.kernel = grid.kernel;
    block.arguments = grid.arguments;
    if (__tsan_get_current_fiber) block.tsan_scheduler = __tsan_get_current_fiber();
    for (unsigned i = 0; i < n; i++) block.fibers.push_back(start_fiber(&block, grid, id, i));
    if (looks_for_races()) block.shared_space = new_pages(SHARED_LIMIT);
    release(&launch_begins); // new pages, and what this thread of the host has of its own, come before the fibers
    Random random{grid.seed ? grid.seed * 0x9e3779b97f4a7c15ull + id + 1 : 0};
    std::string error;
    try {
        while (pass_barrier(&block, run_warps(&block, &random))) {
        }
    } catch (const RuleBroken &rule) {
        error = std::string(grid.kernel->name) + ", block " + std::to_string(id) + ": " + rule.what;
    }
    if (looks_for_races()) {
        munmap(block.shared_space, SHARED_LIMIT);
    } else {
        for (auto &site : block.shared) std::free(site.second);
        give_back(block.fibers);
    }
    std::lock_guard<std::mutex> lock(grid.mutex);
    if (grid.error.empty()) grid.error = error;
    // Where races are looked for, a fiber becomes another thread only when all threads of the launch have ended: TSan takes the
    // two for one, in which the first comes before the second.
    if (looks_for_races()) grid.used.insert(grid.used.end(), block.fibers.begin(), block.fibers.end());
}

static void run_blocks(Grid &grid) {
    for (uint64_t i; (i = grid.next++) < grid.n_blocks;) {
        {
            std::lock_guard<std::mutex> lock(grid.mutex);
            if (!grid.error.empty()) return;
        }
        run_block(grid, grid.seed % 2 ? grid.n_blocks - 1 - i : i);
    }
}
} // namespace emulator

static thread_local std::string last_error;

const char *emulator_error(void) { return last_error.c_str(); }

bool emulator_kernel(const char *name, int *n_arguments, const size_t **sizes, const bool **are_pointers) {
    const emulator::Kernel *kernel = emulator::find_kernel(name);
    if (!kernel) return false;
    *n_arguments = kernel->n_arguments;
    *sizes = kernel->sizes;
    *are_pointers = kernel->are_pointers;
    return true;
}

int emulator_launch(const char *name, const uint32_t grid[3], const uint32_t block[3], void **arguments, uint64_t seed,
                    int n_threads) {
    using namespace emulator;
    const Kernel *kernel = find_kernel(name);
    if (!kernel) {
        last_error = std::string("there is no kernel ") + name;
        return EMULATOR_NO_KERNEL;
    }
    uint64_t n_blocks = (uint64_t)grid[0] * grid[1] * grid[2], size = (uint64_t)block[0] * block[1] * block[2];
    if (!n_blocks || grid[0] > 0x7fffffffu || grid[1] > 65535 || grid[2] > 65535 || !size || size > 1024 || block[2] > 64) {
        last_error = std::string(name) + ": the grid or the block is outside the limits of a launch";
        return EMULATOR_BAD_LAUNCH;
    }
    Grid run;
    run.kernel = kernel;
    run.arguments = arguments;
    run.grid = {grid[0], grid[1], grid[2]};
    run.block = {block[0], block[1], block[2]};
    run.seed = seed;
    run.n_blocks = n_blocks;
    release(&launch_begins);
    std::vector<std::thread> threads;
    for (uint64_t i = 1; i < std::min((uint64_t)std::max(n_threads, 1), n_blocks); i++)
        threads.emplace_back([&run] { run_blocks(run); });
    run_blocks(run);
    for (auto &thread : threads) thread.join();
    acquire(&launch_ends);
    give_back(run.used);
    last_error = run.error;
    return run.error.empty() ? EMULATOR_RAN : EMULATOR_RULE_BROKEN;
}
