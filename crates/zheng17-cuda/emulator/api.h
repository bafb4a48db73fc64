// How a host program runs kernels on the emulator.
#pragma once
#include <cstddef>
#include <cstdint>

extern "C" {
enum EmulatorOutcome { EMULATOR_RAN, EMULATOR_BAD_LAUNCH, EMULATOR_NO_KERNEL, EMULATOR_RULE_BROKEN };

// Runs a kernel to its end. `arguments` has a pointer to each argument. With seed 0 warps run in order, each as far as it can;
// other seeds shuffle warps, lanes and blocks. `n_threads` threads of the host share the blocks.
int emulator_launch(const char *kernel, const uint32_t grid[3], const uint32_t block[3], void **arguments, uint64_t seed,
                    int n_threads);

// What went wrong in this thread's last launch.
const char *emulator_error(void);

// What a kernel takes: the size of each argument, and whether it is a pointer. False if there is no such kernel.
bool emulator_kernel(const char *kernel, int *n_arguments, const size_t **sizes, const bool **are_pointers);
}
