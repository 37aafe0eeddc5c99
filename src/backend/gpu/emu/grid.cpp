#include "backend/gpu/emu/grid.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/gpu/emu/checker.h"
#include "backend/gpu/emu/fiber.h"
#include "backend/gpu/emu/watchdog.h"
#include "base/asan.h"
#include "base/philox.h"

/// A deterministic scheduler for GPU threads. Each thread of a block is a fiber; it runs until it waits at a
/// barrier or a warp operation, and then the next runnable thread continues, in the order of Settings::order
/// (a seeded random order finds missing barriers). A barrier releases its threads once all have arrived, a
/// warp operation once all lanes have posted their values. If no thread can run, or threads wait at different
/// lines, the kernel is wrong on a GPU too: that is a Fault. The blocks of a grid run one after another.
namespace hearth::emu {
namespace {

constexpr int kMaxWarps = kMaxThreads / kWarpThreads;
/// Unused bytes between variables of a block; any access to them is a fault.
constexpr size_t kGapBytes = 64;

std::string to_string(Site site) {
  const std::string_view path = site.file;
  return fmt::format("{}:{}", path.substr(path.rfind('/') + 1), site.line);
}

/// A set of threads of a block, stored as one word of bits per warp.
class ThreadSet {
 public:
  void clear() { warps_.fill(0); }
  void fill(int count) {
    for (int t = 0; t < count; ++t) add(t);
  }
  void add(int thread) { warps_[index(thread)] |= bit(thread); }
  void remove(int thread) { warps_[index(thread)] &= ~bit(thread); }
  bool contains(int thread) const { return (warps_[index(thread)] & bit(thread)) != 0; }
  uint32_t warp(int number) const { return warps_[static_cast<size_t>(number)]; }

 private:
  static size_t index(int thread) { return static_cast<size_t>(thread / kWarpThreads); }
  static uint32_t bit(int thread) { return uint32_t{1} << (thread % kWarpThreads); }

  std::array<uint32_t, kMaxWarps> warps_{};
};

struct Warp {
  int num_lanes = 0;
  int num_posted = 0;
  int num_ended = 0;
  uint32_t num_syncs = 0;
  Site site;
  size_t side = 0;  ///< index of the table, of two, to which lanes currently write their values
  std::array<std::array<std::byte, kWarpThreads * kSlotBytes>, 2> slots;
};

/// Shared memory of a block: one arena, in which the kernel's variables are looked up by key.
class SharedMemory {
 public:
  SharedMemory() = default;
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory() {
    if (bytes_ != nullptr) resize(0);
  }

  void begin(int64_t limit, int64_t dynamic_bytes) {
    limit_ = static_cast<size_t>(limit);
    if (num_bytes_ != 2 * limit_) resize(2 * limit_);
    mark(bytes_, used_, Checker::State::nobodys);
    poison(bytes_, used_);
    entries_.clear();
    used_ = asked_ = 0;
    dynamic_ = dynamic_bytes == 0 ? nullptr : find(this, static_cast<size_t>(dynamic_bytes));
  }
  /// Returns the variable with that key, allocated on first use; null if it does not fit into the block's
  /// limit.
  void* find(const void* key, size_t size) {
    for (const Entry& entry : entries_) {
      if (entry.key == key) return entry.place;
    }
    asked_ += size;
    const size_t end = used_ + (size + 15) / 16 * 16 + kGapBytes;
    if (asked_ > limit_ || end > num_bytes_) return nullptr;
    std::byte* place = bytes_ + used_;
    used_ = end;
    unpoison(place, size);
    mark(place, size, Checker::State::unset);
    std::memset(place, 0xFF, size);
    entries_.push_back({key, place});
    return place;
  }
  void* dynamic() const { return dynamic_; }
  size_t asked() const { return asked_; }

 private:
  struct Entry {
    const void* key;
    std::byte* place;
  };
  static void mark(const std::byte* place, size_t size, Checker::State state) {
    if (checker != nullptr) checker->mark(place, size, state);
  }
  void resize(size_t size) {
    if (bytes_ != nullptr) {
      unpoison(bytes_, num_bytes_);
      release(bytes_);
    }
    bytes_ = size == 0 ? nullptr : allocate(static_cast<int64_t>(size));
    num_bytes_ = used_ = size;
  }

  std::byte* bytes_ = nullptr;
  size_t num_bytes_ = 0;
  std::vector<Entry> entries_;
  void* dynamic_ = nullptr;
  size_t limit_ = 0, used_ = 0, asked_ = 0;
};

/// Runs the blocks of a grid one after another in one OS thread. When a thread ends, the next thread that has
/// not started runs on the same stack, so that kernels without barriers need no fiber switches.
class Processor {
 public:
  void run_block(const Grid& grid, Dim3 index, FunctionRef<void()> kernel);

  int lane() const { return current_ % kWarpThreads; }
  void barrier(Site site);
  const std::byte* post(const void* value, size_t bytes, Site site);
  void* shared(const void* key, size_t bytes);
  void* dynamic_shared() const { return shared_.dynamic(); }
  /// Ends the grid with a Fault. Takes a function because the text must be built and copied before the
  /// fiber's stack is abandoned: no destructor runs afterwards.
  [[noreturn]] void fail(FunctionRef<std::string()> text);
  [[noreturn]] void fail_here(const char* text);
  void overdue();
  const std::atomic<uint64_t>& progress() const { return progress_; }

 private:
  static void enter(void* processor) { static_cast<Processor*>(processor)->work(); }
  [[noreturn]] void work();
  void begin(const Grid& grid, Dim3 index);
  void end_thread();
  Fiber& idle_fiber();
  Warp& warp_of(int thread) { return warps_[static_cast<size_t>(thread / kWarpThreads)]; }
  int pick();
  void become(int thread);
  void wait();
  [[noreturn]] void report_deadlock();
  std::string where(int thread) const;

  std::vector<std::unique_ptr<Fiber>> fibers_;
  size_t num_fibers_used_ = 0;
  std::vector<Fiber*> idle_;
  Fiber os_thread_;
  std::optional<FunctionRef<void()>> kernel_;
  std::string fault_;
  std::atomic<uint64_t> progress_ = 0;

  std::vector<Fiber*> fiber_of_ = std::vector<Fiber*>(kMaxThreads);
  std::vector<Warp> warps_ = std::vector<Warp>(kMaxWarps);
  ThreadSet fresh_, ready_;
  SharedMemory shared_;
  std::optional<PhiloxSequence> random_;
  Site launched_;
  Site barrier_;
  int num_threads_ = 0, num_warps_ = 0, num_ended_ = 0, num_at_barrier_ = 0;
  int current_ = 0;
};

thread_local Processor* processor = nullptr;

void Processor::begin(const Grid& grid, Dim3 index) {
  num_threads_ = static_cast<int>(grid.threads.x * grid.threads.y * grid.threads.z);
  num_warps_ = (num_threads_ + kWarpThreads - 1) / kWarpThreads;
  for (int w = 0; w < num_warps_; ++w) {
    Warp& warp = warps_[static_cast<size_t>(w)];
    warp.num_lanes = std::min(kWarpThreads, num_threads_ - w * kWarpThreads);
    warp.num_posted = warp.num_ended = 0;
    warp.num_syncs = 0;
  }
  num_ended_ = num_at_barrier_ = 0;
  fresh_.clear();
  fresh_.fill(num_threads_);
  ready_.clear();
  idle_.clear();
  num_fibers_used_ = 0;
  launched_ = grid.launched;
  random_.emplace(settings().seed, uint64_t{index.x} << 32 ^ uint64_t{index.y} << 16 ^ index.z);
  running = {.thread = {}, .block = index, .threads = grid.threads, .blocks = grid.blocks};
  now.block = index.x + grid.blocks.x * (index.y + grid.blocks.y * index.z);
  now.barriers = 0;
}

void Processor::run_block(const Grid& grid, Dim3 index, FunctionRef<void()> kernel) {
  begin(grid, index);
  kernel_.emplace(kernel);
  fault_.clear();
  shared_.begin(settings().shared_bytes, grid.dynamic_shared_bytes);
  if (grid.dynamic_shared_bytes > 0 && shared_.dynamic() == nullptr) {
    throw Fault(fmt::format("the kernel launched at {} requests {} bytes of shared memory, a block has {}",
                            to_string(launched_), grid.dynamic_shared_bytes, settings().shared_bytes));
  }
  become(pick());
  Fiber& first = idle_fiber();
  fiber_of_[static_cast<size_t>(current_)] = &first;
  now.in_kernel = true;
  os_thread_.switch_to(first);
  now.in_kernel = false;
  if (!fault_.empty()) throw Fault(fault_);
}

Fiber& Processor::idle_fiber() {
  if (idle_.empty()) {
    if (num_fibers_used_ == fibers_.size()) fibers_.push_back(std::make_unique<Fiber>(enter, this));
    idle_.push_back(fibers_[num_fibers_used_++].get());
  }
  Fiber& fiber = *idle_.back();
  idle_.pop_back();
  fiber.restart();
  return fiber;
}

/// Returns the next thread that can run, in the order of Settings::order; -1 if none can.
int Processor::pick() {
  const auto going = [&](int warp) { return fresh_.warp(warp) | ready_.warp(warp); };
  const Order order = settings().order;
  if (order == Order::forward) {
    for (int w = 0; w < num_warps_; ++w) {
      if (going(w) != 0) return w * kWarpThreads + std::countr_zero(going(w));
    }
    return -1;
  }
  if (order == Order::reverse) {
    for (int w = num_warps_; w-- > 0;) {
      if (going(w) != 0) return w * kWarpThreads + 31 - std::countl_zero(going(w));
    }
    return -1;
  }
  int count = 0;
  for (int w = 0; w < num_warps_; ++w) count += std::popcount(going(w));
  if (count == 0) return -1;
  auto left = random_->below(static_cast<uint32_t>(count));
  for (int w = 0;; ++w) {
    uint32_t threads = going(w);
    const auto here = static_cast<uint32_t>(std::popcount(threads));
    if (left >= here) {
      left -= here;
      continue;
    }
    for (; left > 0; --left) threads &= threads - 1;
    return w * kWarpThreads + std::countr_zero(threads);
  }
}

void Processor::become(int thread) {
  current_ = thread;
  fresh_.remove(thread);
  ready_.remove(thread);
  const auto number = static_cast<unsigned>(thread);
  const Dim3& size = running.threads;
  running.thread = {number % size.x, number / size.x % size.y, number / (size.x * size.y)};
  now.thread = number;
  now.warp_syncs = warp_of(thread).num_syncs;
  progress_.fetch_add(1, std::memory_order_relaxed);
}

/// Main loop of a fiber: runs the current thread to its end, then continues with a thread that can run.
void Processor::work() {
  for (;;) {
    Fiber& own = *fiber_of_[static_cast<size_t>(current_)];
    (*kernel_)();
    end_thread();
    const int next = pick();
    if (next < 0 && num_ended_ < num_threads_) report_deadlock();
    if (next < 0) {
      own.leave_for(os_thread_);
      continue;
    }
    const bool is_fresh = fresh_.contains(next);
    become(next);
    if (is_fresh) {
      fiber_of_[static_cast<size_t>(next)] = &own;
      continue;
    }
    idle_.push_back(&own);
    own.leave_for(*fiber_of_[static_cast<size_t>(next)]);
  }
}

void Processor::end_thread() {
  ++num_ended_;
  Warp& warp = warp_of(current_);
  ++warp.num_ended;
  if (num_at_barrier_ > 0)
    fail([&] {
      return fmt::format("divergent barrier: {} of {} threads wait at {}, but {} ended without reaching it",
                         num_at_barrier_, num_threads_, to_string(barrier_), where(current_));
    });
  if (warp.num_posted > 0)
    fail([&] {
      return fmt::format("missing lane: the warp operation at {} waits for {}, which has ended",
                         to_string(warp.site), where(current_));
    });
}

/// Suspends the current thread; returns when it is scheduled again.
void Processor::wait() {
  Fiber& own = *fiber_of_[static_cast<size_t>(current_)];
  const int next = pick();
  if (next < 0) report_deadlock();
  if (next == current_) return become(next);
  const bool is_fresh = fresh_.contains(next);
  become(next);
  if (is_fresh) fiber_of_[static_cast<size_t>(next)] = &idle_fiber();
  own.switch_to(*fiber_of_[static_cast<size_t>(next)]);
}

void Processor::barrier(Site site) {
  if (num_ended_ > 0)
    fail([&] {
      return fmt::format("divergent barrier: {} waits at {}, {} of {} threads have ended", where(current_),
                         to_string(site), num_ended_, num_threads_);
    });
  if (num_at_barrier_ > 0 && site != barrier_)
    fail([&] {
      return fmt::format("divergent barrier: {} waits at {}, {} others at {}", where(current_),
                         to_string(site), num_at_barrier_, to_string(barrier_));
    });
  barrier_ = site;
  if (++num_at_barrier_ == num_threads_) {
    num_at_barrier_ = 0;
    ++now.barriers;
    ready_.fill(num_threads_);
  }
  wait();
}

const std::byte* Processor::post(const void* value, size_t bytes, Site site) {
  Warp& warp = warp_of(current_);
  if (warp.num_ended > 0)
    fail([&] {
      return fmt::format("missing lane: {} is at the warp operation at {}, {} lanes have ended",
                         where(current_), to_string(site), warp.num_ended);
    });
  if (warp.num_posted > 0 && site != warp.site)
    fail([&] {
      return fmt::format("divergent warp: {} is at the warp operation at {}, {} lanes at {}", where(current_),
                         to_string(site), warp.num_posted, to_string(warp.site));
    });
  warp.site = site;
  std::byte* slots = warp.slots[warp.side].data();
  if (bytes > 0) std::memcpy(slots + static_cast<size_t>(lane()) * kSlotBytes, value, bytes);
  if (++warp.num_posted == warp.num_lanes) {
    warp.num_posted = 0;
    warp.side = 1 - warp.side;
    if (bytes == 0) ++warp.num_syncs;
    const int first = current_ / kWarpThreads * kWarpThreads;
    for (int t = first; t < first + warp.num_lanes; ++t) ready_.add(t);
  }
  wait();
  return slots;
}

void* Processor::shared(const void* key, size_t bytes) {
  // The checker must not count the emulator's own accesses here as the kernel's.
  now.in_kernel = false;
  void* place = shared_.find(key, bytes);
  now.in_kernel = true;
  if (place == nullptr)
    fail([&] {
      return fmt::format("the kernel launched at {} needs {} bytes of shared memory, a block has {}",
                         to_string(launched_), shared_.asked(), settings().shared_bytes);
    });
  return place;
}

std::string Processor::where(int thread) const {
  const Dim3& b = running.block;
  return fmt::format("thread {} of block ({}, {}, {})", thread, b.x, b.y, b.z);
}

/// Ends the grid with a Fault that names one waiting thread, and another one that waits at a different line.
void Processor::report_deadlock() {
  fail([&] {
    std::string text = "divergent threads:";
    for (int w = 0; w < num_warps_; ++w) {
      const Warp& warp = warps_[static_cast<size_t>(w)];
      if (warp.num_posted > 0)
        text += fmt::format(" {} of {} lanes of warp {} wait at the warp operation at {};", warp.num_posted,
                            warp.num_lanes, w, to_string(warp.site));
    }
    if (num_at_barrier_ > 0)
      text += fmt::format(" {} of {} threads wait at the barrier at {};", num_at_barrier_, num_threads_,
                          to_string(barrier_));
    return text + fmt::format(" {} have ended", num_ended_);
  });
}

void Processor::overdue() {
  if (!now.in_kernel) return;
  fail([&] {
    return fmt::format(
        "a loop without end: {} of the kernel launched at {} neither waited nor ended for {} s",
        where(current_), to_string(launched_), settings().deadline_seconds);
  });
}

void Processor::fail_here(const char* text) {
  now.in_kernel = false;
  fail([&] {
    return fmt::format("{}: {} of the kernel launched at {}", text, where(current_), to_string(launched_));
  });
}

void Processor::fail(FunctionRef<std::string()> text) {
  fault_ = text();
  fiber_of_[static_cast<size_t>(current_)]->leave_for(os_thread_);
  std::abort();
}

}  // namespace

Settings& settings() {
  static Settings all;
  return all;
}

void run(const Grid& grid, FunctionRef<void()> kernel) {
  static thread_local Processor here;
  processor = &here;
  const auto threads = uint64_t{grid.threads.x} * grid.threads.y * grid.threads.z;
  const uint64_t count = uint64_t{grid.blocks.x} * grid.blocks.y * grid.blocks.z;
  if (threads < 1 || threads > kMaxThreads || count < 1) {
    throw Fault(fmt::format("the launch at {} has {} blocks of {} threads; a block has 1 to {}",
                            to_string(grid.launched), count, threads, kMaxThreads));
  }
  const Watch watch(here.progress(), settings().deadline_seconds, [] { processor->overdue(); });
  ++now.kernel;
  const bool forward = settings().order == Order::forward;
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t block = forward ? i : count - 1 - i;
    const uint64_t row = block / grid.blocks.x;
    here.run_block(grid,
                   {static_cast<unsigned>(block % grid.blocks.x), static_cast<unsigned>(row % grid.blocks.y),
                    static_cast<unsigned>(row / grid.blocks.y)},
                   kernel);
  }
}

void fail(const char* text) { processor->fail_here(text); }

int lane() { return processor->lane(); }
void barrier(Site site) { processor->barrier(site); }
const std::byte* post(const void* value, size_t bytes, Site site) {
  return processor->post(value, bytes, site);
}
void* shared(const void* key, size_t bytes) { return processor->shared(key, bytes); }
void* dynamic_shared() { return processor->dynamic_shared(); }

}  // namespace hearth::emu
