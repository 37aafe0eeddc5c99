// Executes kernels of gfx11 and gfx12 on the host: block after block, the waves of a block in turn up to its
// barriers.
//
// What a GPU would do by chance is named instead: an access outside every allocation, a register that is read
// before the wait for its load, two waves that meet in shared memory, or two blocks in global memory, without
// what orders them. Registers, shared memory and new allocations hold poison, and waves and blocks run in an
// order that a seed chooses.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "code_object.h"
#include "wave.h"

namespace machine_code {

struct Settings {
  enum class Order { forward, reverse, random };
  Order order = Order::forward;  ///< of blocks, and of a block's waves between barriers
  uint64_t seed = 1;
  uint32_t poison = 0x7fbadbad;
  bool counts = false;      ///< fills Counts::counters
  uint64_t max_blocks = 0;  ///< of a launch that run, spread over it; 0: all. The rest writes nothing.
};
Settings& settings();

/// What kernels may read and write. An address that was released is nobody's.
void allow(uint64_t address, size_t bytes);
void forbid(uint64_t address);

struct Size {
  uint32_t x = 1, y = 1, z = 1;
  uint64_t count() const { return uint64_t{x} * y * z; }
};
/// Runs a kernel to its end; `arguments` in order, as hipLaunchKernel takes them. Throws Fault.
void launch(const Kernel& kernel, Size blocks, Size threads, void** arguments, size_t dynamic_lds_bytes);

struct Counts {
  std::map<std::string, uint64_t> by_kernel;  ///< instructions
  std::map<std::string, Counters> counters;   ///< by kernel as well
};
Counts& counts();

/// A block that runs: its waves and its shared memory.
class Block {
 public:
  Block(const Kernel& kernel, Size threads, size_t dynamic_lds_bytes);
  /// Runs the block with that index to its end.
  void run(const std::byte* packet, const std::byte* arguments, const uint32_t id[3], uint64_t index,
           uint64_t seed);
  int generation() const { return kernel_.object->generation(); }
  uint64_t executed() const { return executed_; }

  std::byte* shared(const Wave& wave, uint64_t address, uint32_t bytes, bool writes, bool atomic);
  std::byte* global(uint64_t address, uint32_t bytes, bool writes, bool atomic);
  const std::byte* readable(uint64_t address, uint32_t bytes);

  struct Way {
    bool read, written;
  };
  void count_lines(uint32_t on, const uint64_t* address, uint32_t bytes, Way way);
  void count_passes(uint32_t on, const uint64_t* address, uint32_t bytes);
  /// Of the blocks that have run, and from here on of the next ones.
  Counters take_counters() { return std::exchange(counters_, {}); }
  /// Lines that a launch reads and writes at least, when `times` as many blocks run as have: of an allocation
  /// no more than it has.
  double least_traffic(double times) const;

 private:
  void start(Wave& wave, const std::byte* packet, const std::byte* arguments, const uint32_t id[3]);
  void run(Wave& wave);
  void meet();

  /// Who has met a byte of shared memory since the barrier that began an epoch, a bit for each wave.
  struct Met {
    uint32_t epoch = 0, readers = 0, writers = 0, atomics = 0;
  };
  const Kernel& kernel_;
  Size threads_;
  std::vector<std::unique_ptr<Wave>> waves_;
  std::vector<std::byte> shared_;
  std::vector<Met> met_;
  uint32_t epoch_ = 0;
  uint64_t index_ = 0;
  uint64_t argument_begin_ = 0, argument_end_ = 0;
  uint64_t executed_ = 0;  ///< instructions
  Counters counters_;
  std::array<std::unordered_set<uint64_t>, 2>
      lines_;  ///< of global memory that the block has read, and written
  std::map<uint64_t, std::array<double, 2>> traffic_;  ///< of all blocks, in each allocation
};

// For Access::locate, whose context is the wave.
std::byte* locate_shared(Access& x, int lane, uint64_t address, uint32_t bytes, bool writes);
std::byte* locate_scratch(Access& x, int lane, uint64_t address, uint32_t bytes, bool writes);
std::byte* locate_global(Access& x, int lane, uint64_t address, uint32_t bytes, bool writes);
/// Constants: allocations, a kernel's arguments, the code object's own data.
const std::byte* readable(Wave& wave, uint64_t address, uint32_t bytes);

}  // namespace machine_code
