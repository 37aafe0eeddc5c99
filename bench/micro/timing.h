#pragma once

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <new>
#include <string>
#include <vector>

#include "backend/cpu/simd/simd.h"
#include "base/threads.h"

namespace hearth::bench {

/// Memory as the arena hands it out: on huge pages where they fill.
template <typename T>
struct Aligned {
  static constexpr size_t kHugePage = size_t{2} << 20;
  using value_type = T;
  Aligned() = default;
  template <typename U>
  explicit Aligned(const Aligned<U>&) {}
  T* allocate(size_t n) {
    const size_t bytes = (n * sizeof(T) + kHugePage - 1) / kHugePage * kHugePage;
    void* at = ::operator new (bytes, std::align_val_t{kHugePage});
    madvise(at, bytes, MADV_HUGEPAGE);
    return static_cast<T*>(at);
  }
  void deallocate(T* p, size_t) { ::operator delete (p, std::align_val_t{kHugePage}); }
  bool operator==(const Aligned&) const = default;
};
template <typename T>
using Buffer = std::vector<T, Aligned<T>>;

/// One thread's work is timed by its processor time, which a busy machine does not stretch.
inline double now(bool processor_time) {
  timespec t{};
  clock_gettime(processor_time ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

/// The best of several runs within a second.
inline double best_seconds(int num_threads, const std::function<void()>& run) {
  double best = 1e9;
  const double deadline = now(false) + 1.0;
  for (int i = 0; i < 5 || (i < 200 && now(false) < deadline); ++i) {
    const double start = now(num_threads == 1);
    run();
    best = std::min(best, now(num_threads == 1) - start);
  }
  return best;
}

/// What `report` takes a share of.
inline double peak_gflops = 0;

/// The product of panels that lie in the first-level cache.
inline double measure_peak(ThreadPool& threads) {
  constexpr int64_t kDepth = 128;
  constexpr int64_t kRows = 14;
  constexpr int kRepeats = 2000;
  const size_t floats = (kDepth + kRows) * cpu::kPanel + kRows * kDepth;
  Buffer<float> data(floats * static_cast<size_t>(threads.size()), 1.0F);
  const double seconds = best_seconds(threads.size(), [&] {
    threads.run([&](int thread) {
      float* b = data.data() + static_cast<size_t>(thread) * floats;
      float* c = b + kDepth * cpu::kPanel;
      const float* a = c + kRows * cpu::kPanel;
      for (int i = 0; i < kRepeats; ++i)
        cpu::simd().gemm(kRows, cpu::kPanel, kDepth, a, kDepth, 1, b, cpu::kPanel, c, cpu::kPanel, false);
    });
  });
  return 2e-9 * kRows * cpu::kPanel * kDepth * kRepeats * threads.size() / seconds;
}

/// The command line of a bench: [THREADS [GROUP]], every group where none is named.
struct Settings {
  ThreadPool threads;
  std::string only;

  Settings(int argc, char** argv)
      : threads(argc > 1 ? std::atoi(argv[1]) : num_available_cpus()), only(argc > 2 ? argv[2] : "") {
    peak_gflops = measure_peak(threads);
    fmt::print("{} threads, {}, peak {:.1f} GFLOP/s\n", threads.size(), cpu::simd().isa, peak_gflops);
  }
  bool wants(const char* group) const { return only.empty() || only == group; }
};

/// One line: time, GFLOP/s by the definition and share of the peak.
inline void report(const std::string& name, double flops, double seconds) {
  const double gflops = flops / seconds * 1e-9;
  fmt::print("{:<44} {:>9.3f} ms {:>8.1f} GFLOP/s {:>5.0f}%\n", name, seconds * 1e3, gflops,
             100 * gflops / peak_gflops);
}

}  // namespace hearth::bench
