#include "machine.h"

#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <random>
#include <unordered_map>

namespace machine_code {
namespace {

/// Which block of the launch that runs has met a word or byte of global memory: one more than its index;
/// several: ~0. Atomics may meet each other.
struct Visit {
  uint32_t launch = 0;
  uint32_t reader = 0, writer = 0, atomic = 0;
};
struct Allocation {
  uint64_t end = 0;
  uint64_t grain = 4;         ///< bytes of a visit; 1 from the first access to less than a word on
  std::vector<Visit> visits;  ///< once one is met
};
std::map<uint64_t, Allocation> allocations;
uint32_t launch_number = 0;
constexpr uint32_t kSeveral = ~uint32_t{0};

void watch_bytes(Allocation& all) {
  std::vector<Visit> of_bytes;
  of_bytes.reserve(all.visits.size() * all.grain);
  for (const Visit& visit : all.visits) of_bytes.insert(of_bytes.end(), all.grain, visit);
  all.visits = std::move(of_bytes);
  all.grain = 1;
}

/// The block that meets a visit which it must not, or 0.
uint32_t conflict(const Visit& visit, uint32_t me, bool writes, bool atomic) {
  for (const uint32_t other : {visit.writer, writes ? visit.reader : 0, atomic ? 0 : visit.atomic}) {
    if (other != 0 && other != me) return other;
  }
  return 0;
}

Allocation* find_allocation(uint64_t address, uint64_t bytes, uint64_t& begin) {
  static thread_local std::map<uint64_t, Allocation>::iterator last = allocations.end();
  static thread_local uint32_t of_launch = 0;
  if (of_launch == launch_number && last != allocations.end() && address >= last->first &&
      address + bytes <= last->second.end) {
    begin = last->first;
    return &last->second;
  }
  auto at = allocations.upper_bound(address);
  if (at == allocations.begin()) return nullptr;
  --at;
  if (address + bytes > at->second.end) return nullptr;
  last = at;
  of_launch = launch_number;
  begin = at->first;
  return &at->second;
}

std::map<uint64_t, Allocation>::iterator allocation_with(uint64_t line) {
  auto at = allocations.upper_bound((line + 1) * kLineBytes - 1);
  if (at == allocations.begin()) return allocations.end();
  --at;
  return line * kLineBytes < at->second.end ? at : allocations.end();
}

std::string at_bytes(uint32_t bytes, uint64_t address) {
  return std::to_string(bytes) + " bytes at " + hex(address);
}

}  // namespace

Settings& settings() {
  static Settings all;
  return all;
}
Counts& counts() {
  static Counts all;
  return all;
}

void allow(uint64_t address, size_t bytes) {
  allocations[address].end = address + bytes;
  ++launch_number;
}
void forbid(uint64_t address) {
  allocations.erase(address);
  ++launch_number;
}

Block::Block(const Kernel& kernel, Size threads, size_t dynamic_lds_bytes)
    : kernel_(kernel),
      threads_(threads),
      shared_(kernel.lds_bytes + dynamic_lds_bytes),
      met_(shared_.size()) {
  for (uint64_t i = 0; i < (threads.count() + 31) / 32; ++i) {
    waves_.push_back(std::make_unique<Wave>());
    waves_.back()->number = static_cast<int>(i);
    waves_.back()->block = this;
  }
}

void Block::start(Wave& wave, const std::byte* packet, const std::byte* arguments, const uint32_t id[3]) {
  const uint32_t poison = settings().poison;
  std::ranges::fill(wave.v, poison);
  std::ranges::fill(wave.s, poison);
  wave.scratch.assign(size_t{kernel_.scratch_bytes} * 32, std::byte{0xcd});
  wave.done = wave.at_barrier = false;
  wave.loads.clear();
  std::ranges::fill(wave.under_way, 0);
  wave.scc = poison & 1;
  wave.clock = 0;
  wave.pc = kernel_.entry;
  const auto first = static_cast<uint32_t>(wave.number) * 32;
  const auto lanes = std::min<uint32_t>(32, static_cast<uint32_t>(threads_.count()) - first);
  wave.s[kExec] = lanes == 32 ? ~0u : (1u << lanes) - 1;
  wave.s[kExec + 1] = 0;
  // The registers that the kernel's properties ask for, in this order (LLVM's AMDGPU usage, "Initial Kernel
  // Execution State").
  uint32_t next = 0;
  auto give = [&](int bit, uint64_t value, uint32_t words) {
    if ((kernel_.properties >> bit & 1) == 0) return;
    for (uint32_t k = 0; k < words; ++k) wave.s[next++] = k < 2 ? static_cast<uint32_t>(value >> 32 * k) : 0;
  };
  give(0, 0, 4);                                   // private segment buffer
  give(1, reinterpret_cast<uint64_t>(packet), 2);  // dispatch packet
  give(2, 0, 2);                                   // queue
  give(3, reinterpret_cast<uint64_t>(arguments), 2);
  give(4, 0, 2);  // dispatch id
  give(5, 0, 2);  // flat scratch
  give(6, kernel_.scratch_bytes, 1);
  next = kernel_.rsrc2 >> 1 & 31;
  constexpr uint16_t kTtmp7 = 115, kTtmp9 = 117;
  if (generation() >= 12) {
    wave.s[kTtmp9] = id[0];
    wave.s[kTtmp7] = id[1] | id[2] << 16;
  } else {
    for (int axis = 0; axis < 3; ++axis) {
      if (kernel_.rsrc2 >> (7 + axis) & 1) wave.s[next++] = id[axis];
    }
  }
  const uint32_t axes = kernel_.rsrc2 >> 11 & 3;
  for (uint32_t lane = 0; lane < lanes; ++lane) {
    const uint32_t t = first + lane;
    const uint32_t y = axes > 0 ? t / threads_.x % threads_.y : 0,
                   z = axes > 1 ? t / threads_.x / threads_.y : 0;
    wave.v[lane] = t % threads_.x | y << 10 | z << 20;
  }
}

void Block::run(Wave& wave) {
  constexpr uint64_t kEndless = 4'000'000'000;
  const CodeObject& object = *kernel_.object;
  uint64_t executed = 0, pc = wave.pc;
  const Instruction* in = nullptr;
  try {
    while (!wave.done && !wave.at_barrier) {
      pc = wave.pc;
      in = &object.at(pc);
      wave.pc = pc + static_cast<uint64_t>(in->bytes);
      wave.clock += in->cycles;
      counters_.executed[static_cast<size_t>(in->unit)] += 1;
      execute(wave, *in);
      if (++executed == kEndless) throw Fault{"does not end"};
    }
  } catch (const Fault& fault) {
    const std::string name = in != nullptr && in->op != nullptr ? in->name() : "?";
    throw Fault{kernel_.name + " +" + hex(pc - kernel_.entry) + " (" + name + "), wave " +
                std::to_string(wave.number) + ": " + fault.what};
  }
  executed_ += executed;
}

void Block::run(const std::byte* packet, const std::byte* arguments, const uint32_t id[3], uint64_t index,
                uint64_t seed) {
  index_ = index;
  argument_begin_ = reinterpret_cast<uint64_t>(packet);
  // Compilers load past the last argument, within its line of 64 bytes, which the runtime allocates whole.
  argument_end_ = reinterpret_cast<uint64_t>(arguments) + (kernel_.argument_bytes + 63) / 64 * 64;
  const uint32_t poison = settings().poison;
  for (size_t i = 0; i < shared_.size(); ++i) shared_[i] = static_cast<std::byte>(poison >> 8 * (i % 4));
  ++epoch_;
  for (const auto& wave : waves_) start(*wave, packet, arguments, id);
  std::vector<Wave*> order;
  for (const auto& wave : waves_) order.push_back(wave.get());
  if (settings().order == Settings::Order::reverse) std::ranges::reverse(order);
  std::mt19937_64 random(seed);
  while (std::ranges::any_of(order, [](const Wave* wave) { return !wave->done; })) {
    if (settings().order == Settings::Order::random) std::ranges::shuffle(order, random);
    for (Wave* wave : order) {
      wave->at_barrier = false;
      if (!wave->done) run(*wave);
    }
    meet();
  }
  counters_.blocks += 1;
  counters_.waves += static_cast<double>(waves_.size());
  for (const auto& wave : waves_) counters_.wave_cycles += static_cast<double>(wave->clock);
  counters_.lds_bytes = static_cast<double>(shared_.size());
  for (size_t way = 0; way < lines_.size(); ++way) {
    counters_.block_lines += static_cast<double>(lines_[way].size());
    for (const uint64_t line : lines_[way]) {
      if (const auto at = allocation_with(line); at != allocations.end()) traffic_[at->first][way] += 1;
    }
    lines_[way].clear();
  }
}

double Block::least_traffic(double times) const {
  double sum = 0;
  for (const auto& [begin, lines] : traffic_) {
    const double all = static_cast<double>(allocations.at(begin).end - begin) / kLineBytes;
    for (const double of_way : lines) sum += std::min(times * of_way, std::ceil(all));
  }
  return sum;
}

/// The waves leave a barrier together.
void Block::meet() {
  ++epoch_;
  uint64_t last = 0;
  for (const auto& wave : waves_) last = std::max(last, wave->at_barrier ? wave->clock : 0);
  for (const auto& wave : waves_) {
    if (wave->at_barrier) wave->clock = last;
  }
}

void Block::count_lines(uint32_t on, const uint64_t* address, uint32_t bytes, Way way) {
  std::array<uint64_t, 128> found;
  const Lines lines = lines_of(on, address, bytes, found);
  counters_.lines += lines.touched;
  counters_.least_lines += lines.least;
  if (way.read) lines_[0].insert(found.begin(), found.begin() + lines.touched);
  if (way.written) lines_[1].insert(found.begin(), found.begin() + lines.touched);
}
void Block::count_passes(uint32_t on, const uint64_t* address, uint32_t bytes) {
  const Passes passes = passes_of(on, address, bytes);
  counters_.passes += passes.taken;
  counters_.least_passes += passes.least;
}

std::byte* Block::shared(const Wave& wave, uint64_t address, uint32_t bytes, bool writes, bool atomic) {
  if (address + bytes > shared_.size())
    throw Fault{at_bytes(bytes, address) + " of " + std::to_string(shared_.size()) + " of shared memory"};
  if (address % std::min(bytes, 4u) != 0)
    throw Fault{at_bytes(bytes, address) + " of shared memory are not aligned"};
  const uint32_t others = ~(1u << wave.number);
  for (uint64_t i = address; i < address + bytes; ++i) {
    Met& met = met_[i];
    if (met.epoch != epoch_) met = {.epoch = epoch_};
    const uint32_t found = met.writers | (writes ? met.readers : 0) | (atomic ? 0 : met.atomics);
    if ((found & others) != 0)
      throw Fault{"a race at " + hex(address) +
                  " of shared memory: another wave was here since the last barrier"};
    (atomic ? met.atomics : writes ? met.writers : met.readers) |= ~others;
  }
  return shared_.data() + address;
}

std::byte* Block::global(uint64_t address, uint32_t bytes, bool writes, bool atomic) {
  uint64_t begin = 0;
  Allocation* found = find_allocation(address, bytes, begin);
  if (found == nullptr) {
    const bool arguments = address >= argument_begin_ && address + bytes <= argument_end_;
    if (!writes && (arguments || kernel_.object->contains(address, bytes)))
      return reinterpret_cast<std::byte*>(address);
    throw Fault{(writes ? "writes " : "reads ") + at_bytes(bytes, address) + ", which are in no allocation"};
  }
  if (address % std::min(bytes, 4u) != 0) throw Fault{at_bytes(bytes, address) + " are not aligned"};
  if (settings().max_blocks != 0) return reinterpret_cast<std::byte*>(address);
  if (bytes < found->grain) watch_bytes(*found);
  if (found->visits.empty()) found->visits.resize((found->end - begin) / found->grain + 1);
  const auto me = static_cast<uint32_t>(index_ + 1);
  for (uint64_t i = (address - begin) / found->grain; i * found->grain < address + bytes - begin; ++i) {
    Visit& visit = found->visits[i];
    if (visit.launch != launch_number) visit = {.launch = launch_number};
    if (const uint32_t other = conflict(visit, me, writes, atomic)) {
      throw Fault{"a race at " + hex(address) + ": " +
                  (other == kSeveral ? "other blocks were" : "block " + std::to_string(other - 1) + " was") +
                  " here too"};
    }
    uint32_t& mine = atomic ? visit.atomic : writes ? visit.writer : visit.reader;
    mine = mine == 0 || mine == me ? me : kSeveral;
  }
  return reinterpret_cast<std::byte*>(address);
}

const std::byte* Block::readable(uint64_t address, uint32_t bytes) {
  if (address % 4 != 0 && bytes >= 4)
    throw Fault{"a scalar load of " + at_bytes(bytes, address) + " is not aligned"};
  uint64_t begin = 0;
  const bool arguments = address >= argument_begin_ && address + bytes <= argument_end_;
  if (!arguments && !kernel_.object->contains(address, bytes) &&
      find_allocation(address, bytes, begin) == nullptr)
    throw Fault{"a scalar load of " + at_bytes(bytes, address) + ", which are in no allocation"};
  return reinterpret_cast<const std::byte*>(address);
}

std::byte* locate_shared(Access& x, int, uint64_t address, uint32_t bytes, bool writes) {
  const Wave& wave = *static_cast<Wave*>(x.context);
  return wave.block->shared(wave, address & 0xffffffff, bytes, writes, x.atomic);
}
std::byte* locate_scratch(Access& x, int lane, uint64_t address, uint32_t bytes, bool) {
  Wave& wave = *static_cast<Wave*>(x.context);
  const uint64_t each = wave.scratch.size() / 32;
  if (address + bytes > each)
    throw Fault{at_bytes(bytes, address) + " of " + std::to_string(each) + " of scratch memory"};
  return wave.scratch.data() + static_cast<uint64_t>(lane) * each + address;
}
std::byte* locate_global(Access& x, int lane, uint64_t address, uint32_t bytes, bool writes) {
  if (address >> 32 == kSharedAperture) return locate_shared(x, lane, address, bytes, writes);
  if (address >> 32 == kScratchAperture) return locate_scratch(x, lane, address & 0xffffffff, bytes, writes);
  return static_cast<Wave*>(x.context)->block->global(address, bytes, writes, x.atomic);
}
const std::byte* readable(Wave& wave, uint64_t address, uint32_t bytes) {
  return wave.block->readable(address, bytes);
}

namespace {

/// A line of the cache.
struct alignas(128) Line {
  std::byte bytes[128];
};
constexpr size_t kPacketBytes = 64;

/// The dispatch packet, at the end of a line, and after it the kernel's arguments, as the runtime would lay
/// them out. Where they begin in a line is always the same, and so is the number of lines that are read.
std::vector<Line> packet_of(const Kernel& kernel, Size blocks, Size threads, void** arguments,
                            size_t dynamic_lds_bytes) {
  std::vector<Line> memory(2 + (kernel.argument_bytes + sizeof(Line) - 1) / sizeof(Line));
  std::byte* const packet = reinterpret_cast<std::byte*>(memory.data()) + sizeof(Line) - kPacketBytes;
  const uint16_t sizes[] = {0,
                            3,
                            static_cast<uint16_t>(threads.x),
                            static_cast<uint16_t>(threads.y),
                            static_cast<uint16_t>(threads.z),
                            0};
  const uint32_t more[] = {blocks.x * threads.x, blocks.y * threads.y, blocks.z * threads.z,
                           kernel.scratch_bytes, static_cast<uint32_t>(kernel.lds_bytes + dynamic_lds_bytes)};
  std::memcpy(packet, sizes, sizeof sizes);
  std::memcpy(packet + sizeof sizes, more, sizeof more);
  const std::map<std::string, uint64_t> hidden{
      {"hidden_block_count_x", blocks.x},
      {"hidden_block_count_y", blocks.y},
      {"hidden_block_count_z", blocks.z},
      {"hidden_group_size_x", threads.x},
      {"hidden_group_size_y", threads.y},
      {"hidden_group_size_z", threads.z},
      {"hidden_remainder_x", 0},
      {"hidden_remainder_y", 0},
      {"hidden_remainder_z", 0},
      {"hidden_global_offset_x", 0},
      {"hidden_global_offset_y", 0},
      {"hidden_global_offset_z", 0},
      {"hidden_none", 0},
      {"hidden_dynamic_lds_size", dynamic_lds_bytes},
      {"hidden_grid_dims", uint64_t{blocks.z} * threads.z > 1   ? 3
                           : uint64_t{blocks.y} * threads.y > 1 ? 2
                                                                : 1}};
  for (const Argument& argument : kernel.arguments) {
    std::byte* to = packet + kPacketBytes + argument.offset;
    if (!argument.kind.starts_with("hidden_")) {
      std::memcpy(to, *arguments++, static_cast<size_t>(argument.size));
    } else {
      const auto value = hidden.find(argument.kind);
      if (value == hidden.end()) throw Fault{kernel.name + ": an argument of the kind " + argument.kind};
      std::memcpy(to, &value->second, static_cast<size_t>(argument.size));
    }
  }
  return memory;
}

/// One of each of `count` equal parts of [0, all), at golden sections of theirs: no axis of a grid keeps
/// step.
uint64_t sample(uint64_t i, uint64_t count, uint64_t all) {
  constexpr double kGolden = 0.6180339887498949;
  const double place = (static_cast<double>(i) + 0.5) * kGolden;
  const uint64_t begin = i * all / count, end = (i + 1) * all / count;
  return begin + static_cast<uint64_t>((place - std::floor(place)) * static_cast<double>(end - begin));
}

/// What the kernel's descriptor asks of the hardware beyond what is modelled.
void check_modes(const Kernel& kernel) {
  const uint32_t rounding = kernel.rsrc1 >> 12 & 15, denormals = kernel.rsrc1 >> 16 & 15;
  if ((kernel.properties >> 10 & 1) == 0) throw Fault{kernel.name + " is for waves of 64 lanes"};
  if (rounding != 0) throw Fault{kernel.name + " does not round to nearest"};
  if (denormals != 15) throw Fault{kernel.name + " flushes denormal numbers"};
}

}  // namespace

void launch(const Kernel& kernel, Size blocks, Size threads, void** arguments, size_t dynamic_lds_bytes) {
  static std::mutex one;
  const std::lock_guard lock(one);
  check_modes(kernel);
  ++launch_number;
  constexpr size_t kMostShared = 65536;
  if (kernel.lds_bytes + dynamic_lds_bytes > kMostShared)
    throw Fault{kernel.name + " asks for more than 64 KiB of shared memory"};
  const std::vector<Line> memory = packet_of(kernel, blocks, threads, arguments, dynamic_lds_bytes);
  const auto* const given = reinterpret_cast<const std::byte*>(memory.data()) + sizeof(Line);
  const std::byte* const packet = given - kPacketBytes;
  const uint32_t saved = _mm_getcsr();
  constexpr uint32_t kFlushes = 0x8040;
  _mm_setcsr(saved & ~kFlushes);
  const uint64_t most = settings().max_blocks, all = blocks.count();
  std::vector<uint64_t> order(most == 0 ? all : std::min(most, all));
  for (uint64_t i = 0; i < order.size(); ++i) order[i] = sample(i, order.size(), all);
  if (settings().order == Settings::Order::reverse) std::ranges::reverse(order);
  std::mt19937_64 random(settings().seed);
  if (settings().order == Settings::Order::random) std::ranges::shuffle(order, random);
  Block block(kernel, threads, dynamic_lds_bytes);
  try {
    for (const uint64_t i : order) {
      const uint32_t id[3] = {static_cast<uint32_t>(i % blocks.x),
                              static_cast<uint32_t>(i / blocks.x % blocks.y),
                              static_cast<uint32_t>(i / blocks.x / blocks.y)};
      block.run(packet, given, id, i, settings().seed + i);
    }
  } catch (...) {
    _mm_setcsr(saved);
    throw;
  }
  _mm_setcsr(saved);
  counts().by_kernel[kernel.name] += block.executed();
  Counters counters = block.take_counters();
  counters.launches = 1;
  counters.traffic_lines = block.least_traffic(static_cast<double>(all) / static_cast<double>(order.size()));
  // GRANULATED_WORKITEM_VGPR_COUNT and WGP_MODE of compute_pgm_rsrc1 (LLVM's AMDGPU usage).
  counters.scratch_bytes = kernel.scratch_bytes;
  counters.vgprs = 8 * ((kernel.rsrc1 & 63) + 1);
  counters.wgp_mode = (kernel.rsrc1 >> 29 & 1) != 0;
  counts().counters[kernel.name].add(counters, static_cast<double>(all) / static_cast<double>(order.size()));
}

}  // namespace machine_code
