// A program that launches kernels as it is told on standard input, for tests: builds with sanitizers are programs of their own,
// and one that ends badly takes nothing else with it. Each buffer is an allocation of exactly its size. Commands, in
// little-endian bytes:
//   B size, bytes                                   makes the next buffer
//   L name, grid x y, block, seed, arguments        launches; an argument is 'b' and a buffer, 'n' for null, or 's', size, bytes
//   R buffer                                        writes the buffer to standard output
// Exit codes: 0 at the end of input, 2 if a launch was refused or broke a rule, with its reason on standard error.
#include "api.h"

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

struct Buffer {
    void *memory;
    uint64_t size;
};

static bool read_bytes(void *to, size_t n) { return std::fread(to, 1, n, stdin) == n; }
template <class T> static T read_number() {
    T x;
    if (!read_bytes(&x, sizeof x)) std::exit(3);
    return x;
}

static void launch(std::vector<Buffer> &buffers) {
    std::string name(read_number<uint32_t>(), '\0');
    read_bytes(&name[0], name.size());
    uint32_t grid[3] = {read_number<uint32_t>(), 0, 1}, block[3] = {1, 1, 1};
    grid[1] = read_number<uint32_t>();
    block[0] = read_number<uint32_t>();
    uint64_t seed = read_number<uint64_t>();
    uint32_t n = read_number<uint32_t>();
    std::vector<uint64_t> values(n, 0);
    std::vector<size_t> sizes(n, sizeof(void *));
    for (uint32_t i = 0; i < n; i++) {
        char kind = read_number<char>();
        if (kind == 'b') {
            values[i] = (uint64_t)buffers.at(read_number<uint32_t>()).memory;
        } else if (kind == 's') {
            sizes[i] = read_number<uint8_t>();
            read_bytes(&values[i], sizes[i]);
        }
    }
    int n_wanted;
    const size_t *wanted;
    const bool *are_pointers;
    if (!emulator_kernel(name.c_str(), &n_wanted, &wanted, &are_pointers)) {
        std::fprintf(stderr, "there is no kernel %s\n", name.c_str());
        std::exit(2);
    }
    bool fits = n_wanted == (int)n;
    for (uint32_t i = 0; fits && i < n; i++) fits = wanted[i] == sizes[i];
    if (!fits) {
        std::fprintf(stderr, "%s takes other arguments\n", name.c_str());
        std::exit(2);
    }
    std::vector<void *> arguments;
    for (auto &value : values) arguments.push_back(&value);
    if (emulator_launch(name.c_str(), grid, block, arguments.data(), seed, 2) != EMULATOR_RAN) {
        std::fprintf(stderr, "%s\n", emulator_error());
        std::exit(2);
    }
}

int main() {
    std::vector<Buffer> buffers;
    for (int command; (command = std::getchar()) != EOF;) {
        if (command == 'B') {
            uint64_t size = read_number<uint64_t>();
            Buffer buffer = {std::malloc(size), size};
            if (size && (!buffer.memory || !read_bytes(buffer.memory, size))) return 3;
            buffers.push_back(buffer);
        } else if (command == 'L') {
            launch(buffers);
        } else {
            const Buffer &buffer = buffers.at(read_number<uint32_t>());
            std::fwrite(buffer.memory, 1, buffer.size, stdout);
            std::fflush(stdout);
        }
    }
    for (auto &buffer : buffers) std::free(buffer.memory);
}
