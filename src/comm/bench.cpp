#include "comm/bench.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/error.h"
#include "base/function_ref.h"
#include "comm/probe.h"
#include "comm/shm.h"

namespace hearth::comm {
namespace {

constexpr int kTries = 7;
/// What is moved in one try, of small arrays by repeating.
constexpr int64_t kTryBytes = int64_t{32} << 20;
constexpr int64_t kMostRepeats = 1000;
/// Beyond any processor's caches.
constexpr int64_t kCopyBytes = int64_t{256} << 20;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Seconds of one call, which every rank makes, in the middle of kTries tries.
double time(Transport& transport, int64_t num_bytes, FunctionRef<void()> call) {
  const int64_t repeats = std::clamp<int64_t>(kTryBytes / num_bytes, 1, kMostRepeats);
  std::vector<double> seconds;
  call();
  for (int i = 0; i < kTries; ++i) {
    transport.barrier();
    const double before = now();
    for (int64_t r = 0; r < repeats; ++r) call();
    transport.barrier();
    seconds.push_back((now() - before) / static_cast<double>(repeats));
  }
  std::ranges::sort(seconds);
  return seconds[kTries / 2];
}

/// One rank's part in all of it.
class Rank {
 public:
  Rank(Transport& transport, const CommBenchOptions& options)
      : transport_(transport),
        options_(options),
        data_(static_cast<size_t>(std::max(options.most_bytes, kCopyBytes)) / sizeof(float), 1.0F),
        other_(data_.size(), 0.0F) {}

  CommBenchResult run() {
    CommBenchResult result;
    result.copy_bytes_per_second =
        static_cast<double>(kCopyBytes) / time(transport_, kCopyBytes, [&] {
          std::memcpy(other_.data(), data_.data(), static_cast<size_t>(kCopyBytes));
        });
    for (const char* collective : {"all_reduce", "reduce_scatter", "all_gather", "send"}) {
      for (int64_t bytes = options_.least_bytes; bytes <= options_.most_bytes; bytes *= 4)
        result.timings.push_back({collective, bytes, time_collective(collective, bytes)});
    }
    return result;
  }

 private:
  double time_collective(std::string_view name, int64_t num_bytes) {
    const auto count = static_cast<size_t>(num_bytes) / sizeof(float);
    const std::span<float> all(data_.data(), count), out(other_.data(), count);
    const size_t part = count / static_cast<size_t>(transport_.size());
    const std::span<float> whole = all.first(part * static_cast<size_t>(transport_.size()));
    return time(transport_, num_bytes, [&] {
      if (name == "all_reduce") transport_.all_reduce(all, options_.wire);
      if (name == "reduce_scatter") transport_.reduce_scatter(whole, out.first(part), options_.wire);
      if (name == "all_gather")
        transport_.all_gather(std::as_bytes(all.first(part)),
                              std::as_writable_bytes(out.first(whole.size())));
      if (name == "send") send(std::as_writable_bytes(all));
    });
  }
  /// From the first rank to the last.
  void send(std::span<std::byte> bytes) {
    const int last = transport_.size() - 1;
    if (transport_.rank() == 0) transport_.send(bytes, last);
    if (transport_.rank() == last) transport_.receive(bytes, 0);
  }

  Transport& transport_;
  const CommBenchOptions& options_;
  std::vector<float> data_, other_;
};

}  // namespace

double CommTiming::bus_bytes_per_second(int num_ranks) const {
  const double others = static_cast<double>(num_ranks - 1) / num_ranks;
  if (collective == "all_reduce") return 2 * others * bytes_per_second();
  return collective == "send" ? bytes_per_second() : others * bytes_per_second();
}

CommBenchResult bench_transport(Transport& transport, const CommBenchOptions& options) {
  if (const std::string fault = find_fault(transport); !fault.empty())
    user_error("expected processes that add up and copy alike, got: {}", fault);
  return Rank(transport, options).run();
}

CommBenchResult bench_shm(int num_ranks, const CommBenchOptions& options) {
  CommBenchResult result;
  run_ranks(num_ranks, [&](Transport& transport) { result = bench_transport(transport, options); });
  return result;
}

}  // namespace hearth::comm
