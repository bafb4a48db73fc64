// How tests set up the software driver and see what it did.
#pragma once
#include <cstddef>
#include <cstdint>

struct DriverSetup {
    uint32_t n_devices;
    uint32_t delay_microseconds; // up to three times as much before each piece of work on a stream
    uint64_t memory;             // of each device
    uint64_t seed;               // order of threads, see api.h
    int32_t driver_version;      // as cuDriverGetVersion has it
    uint32_t newest_ptx;         // 80 for ISA 8.0
    uint64_t failing_allocation; // the number of the one that fails, from 1; 0 for none
    uint64_t compute_capability; // of the devices, 75 for 7.5
    uint64_t failing_launch;     // likewise: of the one whose kernel fails, some time after the call
    int32_t start;               // what cuInit returns, 0 for success
    int32_t device_start;        // what a device's context returns, 0 for success
};

struct DriverCounts {
    uint64_t used, peak;           // bytes of device memory
    uint64_t to_device, to_host;   // bytes copied
    uint64_t within, between;      // bytes copied within the device, and from another one to it
    uint64_t launches, allocations;
    uint64_t pinned;               // bytes of pinned memory in use, of all devices
    uint64_t managed;              // calls that ask for managed memory, of all devices
};

extern "C" {
// Begins anew with other devices. What was allocated before must have been freed.
void software_driver_setup(const DriverSetup *setup);
// Sets all counts but those of memory in use to zero, and the peak to what is in use.
void software_driver_reset_counts(void);
void software_driver_counts(uint32_t device, DriverCounts *counts);
// What was refused last, and why.
const char *software_driver_said(void);
// For libraries over the driver: puts work on a stream; false if one of the places is outside of the device's memory.
bool software_driver_run(void *stream, const void *const *places, const size_t *sizes, int n_places, void (*work)(void *), void *about);
}
