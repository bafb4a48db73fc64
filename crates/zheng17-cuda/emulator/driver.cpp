// A software CUDA driver for tests: the part of the driver's interface that the host code calls, over host memory, with kernels run
// by the emulator. It says so in the name of its devices. It keeps what a real driver keeps and a test wants to see: memory of each
// device within a limit, streams that run late on threads of their own, events, the difference between pinned and pageable memory,
// errors that stay, and counts of bytes and launches. What it refuses: memory of another device, copies beyond an allocation, empty
// grids, kernels whose compiled form takes other arguments than their source.
#include "driver.h"

#include "api.h"
#include "driver_codes.h"
#include "driver_stream.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

typedef uint64_t Address;

struct Device {
    int number;
    DriverCounts counts = {};
    std::atomic<int> lasting_error{SUCCESS};
    Stream default_stream;
    std::vector<Stream *> streams;
};

struct Event {
    std::mutex mutex;
    std::condition_variable changed;
    uint64_t recorded = 0, reached = 0;
    int device;
};
typedef std::shared_ptr<Event> SharedEvent;

struct Function;
struct Module {
    int device;
    std::map<std::string, std::unique_ptr<Function>> functions;
};
struct Function {
    Module *module;
    std::string name;
};

struct Allocation {
    size_t size;
    int device;
};

static std::mutex everything;
static std::vector<std::unique_ptr<Device>> devices;
static std::map<Address, Allocation> allocations;
static std::map<Address, size_t> pinned_memory;
static std::vector<void *> left_memory; // given back after an error, and freed with the next setup
static uint64_t pinned_bytes, managed_calls, n_allocations, n_launches;
static DriverSetup current_setup;
static bool is_set_up = false;
static std::string refused;
static thread_local Device *current_device = nullptr;

static int refuse(int code, const std::string &why) {
    refused = why;
    return code;
}

static int refuse_locked(int code, const std::string &why) {
    std::lock_guard<std::mutex> lock(everything);
    return refuse(code, why);
}

// Pieces of work are late by different times, so that those of two streams that don't wait for each other change places.
static void come_late() {
    static std::atomic<uint32_t> n_pieces;
    if (!current_setup.delay_microseconds) return;
    uint32_t late = (++n_pieces * 2654435761u >> 16) % 4;
    std::this_thread::sleep_for(std::chrono::microseconds(current_setup.delay_microseconds * late));
}

static Stream *stream_of(void *handle) {
    bool is_default = handle == nullptr || handle == (void *)1 || handle == (void *)2;
    return is_default ? &current_device->default_stream : static_cast<Stream *>(handle);
}

// Whether bytes are inside one allocation of a device. `everything` is locked.
static bool is_inside(Address at, size_t size, int device, std::string *why) {
    auto after = allocations.upper_bound(at);
    if (after == allocations.begin()) {
        *why = "an address in no allocation";
        return false;
    }
    auto &[start, allocation] = *std::prev(after);
    if (at + size > start + allocation.size) {
        *why = std::to_string(size) + " bytes at " + std::to_string(at - start) + " of an allocation of " +
               std::to_string(allocation.size);
        return false;
    }
    if (allocation.device != device) {
        *why = "memory of device " + std::to_string(allocation.device) + " used on device " + std::to_string(device);
        return false;
    }
    return true;
}

static bool is_pinned(const void *memory, size_t size) {
    std::lock_guard<std::mutex> lock(everything);
    auto after = pinned_memory.upper_bound((Address)memory);
    if (after == pinned_memory.begin()) return false;
    auto &[start, pinned_size] = *std::prev(after);
    return (Address)memory + size <= start + pinned_size;
}

#define DRIVER extern "C" __attribute__((visibility("default"))) int
#define NEEDS_CONTEXT                                                                                                         \
    if (!current_device) return INVALID_CONTEXT;                                                                              \
    if (int lasting = current_device->lasting_error) return lasting

// What tests call.

extern "C" __attribute__((visibility("default"))) void software_driver_setup(const DriverSetup *setup) {
    for (auto &device : devices) {
        device->default_stream.drain();
        for (Stream *stream : device->streams) stream->drain();
    }
    std::lock_guard<std::mutex> lock(everything);
    current_setup = *setup;
    is_set_up = true;
    // Devices stay where they are, as contexts of the host code point to them.
    while (devices.size() < setup->n_devices) {
        devices.emplace_back(new Device);
        devices.back()->number = (int)devices.size() - 1;
    }
    // What a device had when something failed there went with it; the host code can't give all of it back.
    bool failed = std::any_of(devices.begin(), devices.end(), [](auto &device) { return device->lasting_error != SUCCESS; });
    for (auto it = pinned_memory.begin(); failed && it != pinned_memory.end(); it = pinned_memory.erase(it)) {
        pinned_bytes -= it->second;
        left_memory.push_back((void *)it->first);
    }
    for (auto it = allocations.begin(); it != allocations.end();) {
        Device &device = *devices.at((size_t)it->second.device);
        if (!device.lasting_error) {
            ++it;
            continue;
        }
        device.counts.used -= it->second.size;
        left_memory.push_back((void *)it->first);
        it = allocations.erase(it);
    }
    for (auto &device : devices) device->lasting_error = SUCCESS;
    for (void *memory : left_memory) std::free(memory);
    left_memory.clear();
    n_allocations = n_launches = 0;
    refused.clear();
}

extern "C" __attribute__((visibility("default"))) void software_driver_reset_counts(void) {
    std::lock_guard<std::mutex> lock(everything);
    for (auto &device : devices) {
        uint64_t used = device->counts.used;
        device->counts = DriverCounts{};
        device->counts.used = device->counts.peak = used;
    }
}

extern "C" __attribute__((visibility("default"))) void software_driver_counts(uint32_t device, DriverCounts *counts) {
    std::lock_guard<std::mutex> lock(everything);
    *counts = devices.at(device)->counts;
    counts->pinned = pinned_bytes;
    counts->managed = managed_calls;
}

extern "C" __attribute__((visibility("default"))) const char *software_driver_said(void) { return refused.c_str(); }

static uint64_t setting(const char *name, uint64_t otherwise) {
    const char *text = std::getenv(name);
    return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

static void set_up() {
    if (is_set_up) return;
    DriverSetup setup = {};
    setup.n_devices = (uint32_t)setting("SOFTWARE_DRIVER_DEVICES", 1);
    setup.memory = setting("SOFTWARE_DRIVER_MEMORY", 1ull << 30);
    setup.driver_version = (int)setting("SOFTWARE_DRIVER_VERSION", 12000);
    setup.newest_ptx = 80;
    setup.compute_capability = 75;
    software_driver_setup(&setup);
}

// Start and devices.

DRIVER cuInit(unsigned) {
    set_up();
    if (current_setup.start) return current_setup.start;
    return current_setup.n_devices ? SUCCESS : NO_DEVICE;
}
DRIVER cuDriverGetVersion(int *version) {
    set_up();
    *version = current_setup.driver_version;
    return SUCCESS;
}
DRIVER cuDeviceGetCount(int *n) {
    *n = (int)current_setup.n_devices;
    return SUCCESS;
}
DRIVER cuDeviceGet(int *device, int ordinal) {
    if (ordinal < 0 || ordinal >= (int)current_setup.n_devices) return INVALID_DEVICE;
    *device = ordinal;
    return SUCCESS;
}
DRIVER cuDeviceGetName(char *name, int size, int) {
    std::snprintf(name, (size_t)size, "software emulation (not a GPU)");
    return SUCCESS;
}
DRIVER cuDeviceTotalMem_v2(size_t *bytes, int) {
    *bytes = current_setup.memory;
    return SUCCESS;
}
DRIVER cuDeviceGetUuid_v2(void *uuid, int device) {
    std::memset(uuid, 0, 16);
    std::memcpy(uuid, &device, sizeof device);
    return SUCCESS;
}
DRIVER cuDeviceGetUuid(void *uuid, int device) { return cuDeviceGetUuid_v2(uuid, device); }
DRIVER cuDeviceGetAttribute(int *value, int attribute, int) {
    static const std::map<int, int> attributes = {
        {1, 1024}, {8, 49152}, {10, 32}, {16, 1}, {115, 1}, // threads, shared memory, warp, processors, pools
    };
    enum { COMPUTE_CAPABILITY_MAJOR = 75, COMPUTE_CAPABILITY_MINOR = 76 };
    int capability = (int)current_setup.compute_capability;
    if (attribute == COMPUTE_CAPABILITY_MAJOR || attribute == COMPUTE_CAPABILITY_MINOR) {
        *value = attribute == COMPUTE_CAPABILITY_MAJOR ? capability / 10 : capability % 10;
        return SUCCESS;
    }
    auto known = attributes.find(attribute);
    *value = known == attributes.end() ? 0 : known->second;
    return SUCCESS;
}
DRIVER cuDevicePrimaryCtxRetain(void **context, int device) {
    if (current_setup.device_start) return current_setup.device_start;
    std::lock_guard<std::mutex> lock(everything);
    *context = devices.at((size_t)device).get();
    return SUCCESS;
}
DRIVER cuDevicePrimaryCtxRelease_v2(int) { return SUCCESS; }
DRIVER cuCtxGetCurrent(void **context) {
    *context = current_device;
    return SUCCESS;
}
DRIVER cuCtxSetCurrent(void *context) {
    current_device = static_cast<Device *>(context);
    return SUCCESS;
}
DRIVER cuCtxSynchronize(void) {
    NEEDS_CONTEXT;
    current_device->default_stream.drain();
    std::vector<Stream *> streams;
    {
        std::lock_guard<std::mutex> lock(everything);
        streams = current_device->streams;
    }
    for (Stream *stream : streams) stream->drain();
    return current_device->lasting_error;
}
DRIVER cuGetErrorName(int code, const char **name) {
    auto known = CODE_NAMES.find(code);
    *name = known == CODE_NAMES.end() ? "an error of the software driver" : known->second;
    return SUCCESS;
}
DRIVER cuGetErrorString(int code, const char **text) { return cuGetErrorName(code, text); }

// Memory.

DRIVER cuMemGetInfo_v2(size_t *free, size_t *total) {
    NEEDS_CONTEXT;
    std::lock_guard<std::mutex> lock(everything);
    *total = current_setup.memory;
    *free = current_setup.memory - std::min<uint64_t>(current_device->counts.used, current_setup.memory);
    return SUCCESS;
}
DRIVER cuMemAlloc_v2(Address *address, size_t size) {
    NEEDS_CONTEXT;
    if (!size) return INVALID_VALUE;
    std::lock_guard<std::mutex> lock(everything);
    DriverCounts &counts = current_device->counts;
    counts.allocations++;
    bool fails = ++n_allocations == current_setup.failing_allocation;
    if (fails || counts.used + size > current_setup.memory) return OUT_OF_MEMORY;
    void *memory = std::aligned_alloc(256, (size + 255) / 256 * 256);
    if (!memory) return OUT_OF_MEMORY;
    std::memset(memory, 0xff, size); // no sensible number, for whoever reads before writing
    allocations[(Address)memory] = {size, current_device->number};
    counts.used += size;
    counts.peak = std::max(counts.peak, counts.used);
    *address = (Address)memory;
    return SUCCESS;
}
DRIVER cuMemAllocAsync(Address *address, size_t size, void *) { return cuMemAlloc_v2(address, size); }
DRIVER cuMemAllocManaged(Address *address, size_t size, unsigned) {
    managed_calls++;
    return cuMemAlloc_v2(address, size);
}

// There is one pool for each device, and nothing to keep in it.
DRIVER cuDeviceGetDefaultMemPool(void **pool, int device) {
    if (device < 0 || (size_t)device >= devices.size()) return INVALID_DEVICE;
    *pool = devices[(size_t)device].get();
    return SUCCESS;
}
DRIVER cuMemPoolSetAttribute(void *pool, int attribute, void *) {
    enum { RELEASE_THRESHOLD = 4 };
    return pool && attribute == RELEASE_THRESHOLD ? SUCCESS : INVALID_VALUE;
}

DRIVER cuMemPoolTrimTo(void *pool, size_t) { return pool ? SUCCESS : INVALID_VALUE; }

static int give_back(Address address, void **memory) {
    std::lock_guard<std::mutex> lock(everything);
    auto found = allocations.find(address);
    if (found == allocations.end()) return INVALID_VALUE;
    devices.at((size_t)found->second.device)->counts.used -= found->second.size;
    allocations.erase(found);
    *memory = (void *)address;
    return SUCCESS;
}
// Frees memory, but not where something failed: the host code no longer waits for what is still under way. `everything` is locked.
static void free_or_leave(void *memory) {
    bool failed = std::any_of(devices.begin(), devices.end(), [](auto &device) { return device->lasting_error != SUCCESS; });
    if (failed)
        left_memory.push_back(memory);
    else
        std::free(memory);
}
DRIVER cuMemFree_v2(Address address) {
    void *memory = nullptr;
    int code = address ? give_back(address, &memory) : SUCCESS;
    std::free(memory);
    return code;
}
// The pool may hand the memory to the next who asks on this stream, so it counts as free at once.
DRIVER cuMemFreeAsync(Address address, void *stream) {
    if (!current_device) return INVALID_CONTEXT;
    void *memory = nullptr;
    int code = give_back(address, &memory);
    stream_of(stream)->push([memory] {
        std::lock_guard<std::mutex> lock(everything);
        free_or_leave(memory);
    });
    return code;
}
DRIVER cuMemHostAlloc(void **memory, size_t size, unsigned) {
    NEEDS_CONTEXT;
    std::lock_guard<std::mutex> lock(everything);
    if (++n_allocations == current_setup.failing_allocation) return OUT_OF_MEMORY;
    *memory = std::aligned_alloc(4096, (size + 4095) / 4096 * 4096 + 4096);
    pinned_memory[(Address)*memory] = size;
    pinned_bytes += size;
    return *memory ? SUCCESS : OUT_OF_MEMORY;
}
DRIVER cuMemFreeHost(void *memory) {
    std::lock_guard<std::mutex> lock(everything);
    auto found = pinned_memory.find((Address)memory);
    if (found == pinned_memory.end()) return INVALID_VALUE;
    pinned_bytes -= found->second;
    pinned_memory.erase(found);
    free_or_leave(memory);
    return SUCCESS;
}

// Counts a copy, if its memory is this device's.
static int begin_copy(Address at, size_t size, uint64_t DriverCounts::*count) {
    std::lock_guard<std::mutex> lock(everything);
    std::string why;
    if (!is_inside(at, size, current_device->number, &why)) return refuse(INVALID_VALUE, "a copy: " + why);
    if (count) current_device->counts.*count += size;
    return SUCCESS;
}

DRIVER cuMemcpyHtoDAsync_v2(Address to, const void *from, size_t size, void *stream) {
    NEEDS_CONTEXT;
    if (!size) return SUCCESS;
    if (int code = begin_copy(to, size, &DriverCounts::to_device)) return code;
    if (is_pinned(from, size)) {
        stream_of(stream)->push([=] {
            come_late();
            std::memcpy((void *)to, from, size);
        });
    } else {
        // What is not pinned has been read when the call returns.
        auto copy = std::make_shared<std::vector<char>>((const char *)from, (const char *)from + size);
        stream_of(stream)->push([=] {
            come_late();
            std::memcpy((void *)to, copy->data(), size);
        });
    }
    return SUCCESS;
}
DRIVER cuMemcpyDtoHAsync_v2(void *to, Address from, size_t size, void *stream) {
    NEEDS_CONTEXT;
    if (!size) return SUCCESS;
    if (int code = begin_copy(from, size, &DriverCounts::to_host)) return code;
    stream_of(stream)->push([=] {
        come_late();
        std::memcpy(to, (const void *)from, size);
    });
    if (!is_pinned(to, size)) stream_of(stream)->drain();
    return current_device->lasting_error;
}
DRIVER cuMemcpyDtoDAsync_v2(Address to, Address from, size_t size, void *stream) {
    NEEDS_CONTEXT;
    if (!size) return SUCCESS;
    if (int code = begin_copy(from, size, nullptr)) return code;
    if (int code = begin_copy(to, size, &DriverCounts::within)) return code;
    stream_of(stream)->push([=] {
        come_late();
        std::memcpy((void *)to, (const void *)from, size);
    });
    return SUCCESS;
}
DRIVER cuMemcpyPeerAsync(Address to, void *, Address from, void *, size_t size, void *stream) {
    NEEDS_CONTEXT;
    {
        std::lock_guard<std::mutex> lock(everything);
        current_device->counts.between += size;
    }
    stream_of(stream)->push([=] { std::memcpy((void *)to, (const void *)from, size); });
    return SUCCESS;
}
DRIVER cuMemsetD8Async(Address to, unsigned char byte, size_t size, void *stream) {
    NEEDS_CONTEXT;
    if (!size) return SUCCESS;
    if (int code = begin_copy(to, size, nullptr)) return code;
    stream_of(stream)->push([=] {
        come_late();
        std::memset((void *)to, byte, size);
    });
    return SUCCESS;
}

// Streams and events.

DRIVER cuStreamCreate(void **stream, unsigned) {
    NEEDS_CONTEXT;
    auto *made = new Stream;
    std::lock_guard<std::mutex> lock(everything);
    current_device->streams.push_back(made);
    *stream = made;
    return SUCCESS;
}
DRIVER cuStreamDestroy_v2(void *handle) {
    auto *stream = static_cast<Stream *>(handle);
    stream->drain();
    {
        std::lock_guard<std::mutex> lock(everything);
        for (auto &device : devices) {
            auto &own = device->streams;
            own.erase(std::remove(own.begin(), own.end(), stream), own.end());
        }
    }
    delete stream;
    return SUCCESS;
}
DRIVER cuStreamSynchronize(void *stream) {
    NEEDS_CONTEXT;
    stream_of(stream)->drain();
    return current_device->lasting_error;
}
DRIVER cuEventCreate(void **event, unsigned) {
    NEEDS_CONTEXT;
    auto *made = new SharedEvent(new Event);
    (*made)->device = current_device->number;
    *event = made;
    return SUCCESS;
}
DRIVER cuEventDestroy_v2(void *event) {
    delete static_cast<SharedEvent *>(event);
    return SUCCESS;
}
DRIVER cuEventRecord(void *handle, void *stream) {
    NEEDS_CONTEXT;
    SharedEvent event = *static_cast<SharedEvent *>(handle);
    if (event->device != current_device->number) return refuse_locked(INVALID_HANDLE, "an event of another device");
    uint64_t number;
    {
        std::lock_guard<std::mutex> lock(event->mutex);
        number = ++event->recorded;
    }
    stream_of(stream)->push([event, number] {
        std::lock_guard<std::mutex> lock(event->mutex);
        event->reached = std::max(event->reached, number);
        event->changed.notify_all();
    });
    return SUCCESS;
}
static void wait_for(const SharedEvent &event, uint64_t number) {
    std::unique_lock<std::mutex> lock(event->mutex);
    event->changed.wait(lock, [&] { return event->reached >= number; });
}
static uint64_t last_record(const SharedEvent &event) {
    std::lock_guard<std::mutex> lock(event->mutex);
    return event->recorded;
}
DRIVER cuEventSynchronize(void *handle) {
    SharedEvent event = *static_cast<SharedEvent *>(handle);
    wait_for(event, last_record(event));
    return current_device ? current_device->lasting_error.load() : INVALID_CONTEXT;
}
DRIVER cuEventQuery(void *handle) {
    SharedEvent event = *static_cast<SharedEvent *>(handle);
    std::lock_guard<std::mutex> lock(event->mutex);
    return event->reached >= event->recorded ? SUCCESS : NOT_READY;
}
// There is no time: what is emulated is never timed.
DRIVER cuEventElapsedTime(float *, void *, void *) { return NOT_SUPPORTED; }
DRIVER cuStreamWaitEvent(void *stream, void *handle, unsigned) {
    NEEDS_CONTEXT;
    SharedEvent event = *static_cast<SharedEvent *>(handle);
    if (uint64_t number = last_record(event)) stream_of(stream)->push([event, number] { wait_for(event, number); });
    return SUCCESS;
}

// Modules. The compiled text is what ships; its entry points are compared with the kernels that the emulator has.

static int add_functions(Module *module, const std::string &text) {
    for (size_t at = 0; (at = text.find(".entry ", at)) != std::string::npos;) {
        at += 7;
        size_t open = text.find('(', at), close = text.find(')', open);
        if (close == std::string::npos) return INVALID_PTX;
        std::string name = text.substr(at, open - at), parameters = text.substr(open, close - open);
        std::vector<size_t> sizes;
        for (size_t i = 0; (i = parameters.find(".param .", i)) != std::string::npos;) {
            i = parameters.find_first_of("0123456789", i + 8);
            sizes.push_back((size_t)std::atoi(parameters.c_str() + i) / 8);
        }
        int n;
        const size_t *wanted;
        const bool *are_pointers;
        if (!emulator_kernel(name.c_str(), &n, &wanted, &are_pointers))
            return refuse_locked(INVALID_IMAGE, "the compiled " + name + " has no source");
        if (n != (int)sizes.size() || !std::equal(sizes.begin(), sizes.end(), wanted))
            return refuse_locked(INVALID_IMAGE, "the compiled " + name + " takes other arguments than its source");
        module->functions[name].reset(new Function{module, name});
        at = close;
    }
    return SUCCESS;
}

DRIVER cuModuleLoadData(void **handle, const void *image) {
    NEEDS_CONTEXT;
    std::string text = static_cast<const char *>(image);
    size_t at = text.find(".version ");
    unsigned major, minor;
    if (at == std::string::npos || std::sscanf(text.c_str() + at, ".version %u.%u", &major, &minor) != 2) return INVALID_PTX;
    if (major * 10 + minor > current_setup.newest_ptx) return refuse_locked(UNSUPPORTED_PTX_VERSION, "PTX newer than the driver");
    std::unique_ptr<Module> module(new Module{current_device->number, {}});
    if (int code = add_functions(module.get(), text)) return code;
    *handle = module.release();
    return SUCCESS;
}
DRIVER cuModuleUnload(void *module) {
    delete static_cast<Module *>(module);
    return SUCCESS;
}
DRIVER cuModuleGetFunction(void **function, void *module, const char *name) {
    auto &functions = static_cast<Module *>(module)->functions;
    auto found = functions.find(name);
    if (found == functions.end()) return refuse_locked(NOT_FOUND, std::string("no kernel ") + name);
    *function = found->second.get();
    return SUCCESS;
}
DRIVER cuFuncGetAttribute(int *value, int attribute, void *) {
    *value = attribute == 0 ? 1024 : 0;
    return SUCCESS;
}

extern "C" __attribute__((visibility("default"))) bool software_driver_run(void *stream, const void *const *places,
                                                                          const size_t *sizes, int n_places,
                                                                          void (*work)(void *), void *about) {
    if (!current_device || current_device->lasting_error) return false;
    {
        std::lock_guard<std::mutex> lock(everything);
        for (int i = 0; i < n_places; i++) {
            std::string why;
            if (!is_inside((Address)places[i], sizes[i], current_device->number, &why)) return refuse(false, why);
        }
    }
    Device *device = current_device;
    stream_of(stream)->push([=] {
        come_late();
        if (!device->lasting_error) work(about);
    });
    return true;
}

DRIVER cuLaunchKernel(void *handle, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                      unsigned block_z, unsigned shared, void *stream, void **arguments, void **) {
    NEEDS_CONTEXT;
    auto *function = static_cast<Function *>(handle);
    Device *device = current_device;
    if (function->module->device != device->number) return refuse_locked(INVALID_HANDLE, "a kernel of another device");
    bool is_empty = !grid_x || !grid_y || !grid_z || !block_x || !block_y || !block_z;
    if (is_empty || (uint64_t)block_x * block_y * block_z > 1024 || grid_y > 65535 || grid_z > 65535 || shared > 49152)
        return refuse_locked(INVALID_VALUE, function->name + ": the grid or the block is outside the limits of a launch");
    int n;
    const size_t *sizes;
    const bool *are_pointers;
    emulator_kernel(function->name.c_str(), &n, &sizes, &are_pointers);
    auto copies = std::make_shared<std::vector<std::vector<char>>>();
    bool fails;
    {
        std::lock_guard<std::mutex> lock(everything);
        for (int i = 0; i < n; i++) {
            auto *bytes = static_cast<char *>(arguments[i]);
            copies->emplace_back(bytes, bytes + sizes[i]);
            Address address = 0;
            if (are_pointers[i]) std::memcpy(&address, bytes, sizeof address);
            std::string why;
            // An array without elements may begin where its allocation ends.
            if (address && !is_inside(address, 0, device->number, &why)) {
                device->lasting_error = ILLEGAL_ADDRESS;
                return refuse(SUCCESS, function->name + ", argument " + std::to_string(i) + ": " + why);
            }
        }
        device->counts.launches++;
        fails = ++n_launches == current_setup.failing_launch;
    }
    std::string name = function->name;
    stream_of(stream)->push([=] {
        come_late();
        if (fails) device->lasting_error = LAUNCH_FAILED;
        // What comes after a kernel that failed would work with what that left undone.
        if (device->lasting_error) return;
        std::vector<void *> pointers;
        for (auto &copy : *copies) pointers.push_back(copy.data());
        uint32_t grid[3] = {grid_x, grid_y, grid_z}, block[3] = {block_x, block_y, block_z};
        if (emulator_launch(name.c_str(), grid, block, pointers.data(), current_setup.seed, 1) != EMULATOR_RAN) {
            device->lasting_error = LAUNCH_FAILED;
            refuse_locked(SUCCESS, emulator_error());
        }
    });
    return SUCCESS;
}
