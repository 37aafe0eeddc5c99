#include "supervise/gpu_board.h"

#include <atomic>
#include <cstring>

namespace hearth::supervise {

struct GpuBoard::Memory {
  struct Name {
    std::atomic<bool> there;
    std::array<char, 24> address;
  };
  /// Incremented before and after `state` is written, so it is odd during a write (seqlock).
  std::atomic<uint64_t> version;
  std::atomic<double> period, idle_share;
  std::atomic<bool> paused;
  std::array<Name, GpuState::kMaxGpus> names;
  GpuState state;
};

GpuBoard::GpuBoard() : bytes_(sizeof(Memory)) {}

GpuBoard::Memory& GpuBoard::memory() const { return *reinterpret_cast<Memory*>(bytes_.data()); }

void GpuBoard::use(int rank, std::string_view pci_address) const {
  if (rank >= static_cast<int>(GpuState::kMaxGpus)) return;
  Memory::Name& name = memory().names[static_cast<size_t>(rank)];
  name.address = system::gpu_address(pci_address);
  name.there = true;
}

void GpuBoard::set_period(double seconds) const { memory().period = seconds; }
double GpuBoard::period() const { return memory().period; }
double GpuBoard::idle_share() const { return memory().idle_share; }
bool GpuBoard::paused() const { return memory().paused; }

void GpuBoard::clear() const {
  for (Memory::Name& name : memory().names) name.there = false;
}

std::vector<std::string> GpuBoard::used(int size) const {
  std::vector<std::string> addresses;
  for (const Memory::Name& name : memory().names) {
    if (std::ssize(addresses) == size) break;
    if (!name.there) return {};
    addresses.emplace_back(name.address.data());
  }
  return addresses;
}

void GpuBoard::publish(const GpuState& state) const {
  Memory& shared = memory();
  shared.version.fetch_add(1, std::memory_order_acquire);
  shared.state = state;
  shared.version.fetch_add(1, std::memory_order_release);
  shared.idle_share = state.idle_share;
  shared.paused = state.paused;
}

GpuState GpuBoard::read() const {
  const Memory& shared = memory();
  GpuState state;
  uint64_t before = 0, after = 0;
  do {
    before = shared.version.load(std::memory_order_acquire);
    std::memcpy(static_cast<void*>(&state), &shared.state, sizeof(state));
    std::atomic_thread_fence(std::memory_order_acquire);
    after = shared.version.load(std::memory_order_relaxed);
  } while (before != after || before % 2 == 1);
  return state;
}

}  // namespace hearth::supervise
