#include "distributed/bench.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "backend/gpu/device.h"
#include "base/error.h"
#include "base/function_ref.h"
#include "distributed/nccl/nccl.h"
#include "distributed/probe.h"
#include "distributed/shm/shm.h"

namespace hearth::distributed {
namespace {

constexpr int kTries = 7;
/// Bytes moved in one measurement: collectives on small arrays are repeated until this many bytes have been
/// moved.
constexpr int64_t kTryBytes = int64_t{32} << 20;
constexpr int64_t kMaxRepeats = 1000;
/// Size of the copies whose rate is measured; larger than any processor's caches.
constexpr int64_t kCopyBytes = int64_t{256} << 20;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// A rank of the benchmark, which measures every collective at every size.
class Rank {
 public:
  Rank(ProcessGroup& group, const CommBenchOptions& options) : group_(group), options_(options) {}
  virtual ~Rank() = default;

  CommBenchResult run() {
    CommBenchResult result;
    result.copy_bytes_per_second = static_cast<double>(kCopyBytes) / time(kCopyBytes, [&] { copy(); });
    for (const char* collective : {"all_reduce", "reduce_scatter", "all_gather", "send"}) {
      for (int64_t bytes = options_.min_bytes; bytes <= options_.max_bytes; bytes *= 4)
        result.timings.push_back({collective, bytes, time(bytes, [&] { call(collective, bytes); })});
    }
    return result;
  }

 protected:
  /// Returns the size in bytes of each of a rank's two arrays.
  int64_t array_bytes() const { return std::max(options_.max_bytes, kCopyBytes); }
  /// Copies kCopyBytes from one array to another.
  virtual void copy() = 0;
  /// Calls the collective named `collective`. `send` sends from the first rank to the last.
  virtual void call(std::string_view collective, int64_t num_bytes) = 0;
  /// Waits until queued work is done.
  virtual void finish() {}

  ProcessGroup& group_;
  const CommBenchOptions& options_;

 private:
  /// Returns the median time of a call of `once`, in seconds, over kTries measurements. Collective call.
  double time(int64_t num_bytes, FunctionRef<void()> once) {
    const int64_t repeats = std::clamp<int64_t>(kTryBytes / num_bytes, 1, kMaxRepeats);
    std::vector<double> seconds;
    once();
    finish();
    for (int i = 0; i < kTries; ++i) {
      group_.barrier();
      const double before = now();
      for (int64_t r = 0; r < repeats; ++r) once();
      finish();
      group_.barrier();
      seconds.push_back((now() - before) / static_cast<double>(repeats));
    }
    std::ranges::sort(seconds);
    return seconds[kTries / 2];
  }
};

class HostRank : public Rank {
 public:
  HostRank(ProcessGroup& group, const CommBenchOptions& options)
      : Rank(group, options),
        data_(static_cast<size_t>(array_bytes()) / sizeof(float), 1.0F),
        other_(data_.size(), 0.0F) {}

 private:
  void copy() override { std::memcpy(other_.data(), data_.data(), static_cast<size_t>(kCopyBytes)); }
  void call(std::string_view name, int64_t num_bytes) override {
    const auto count = static_cast<size_t>(num_bytes) / sizeof(float);
    const std::span<float> all(data_.data(), count), out(other_.data(), count);
    const size_t part = count / static_cast<size_t>(group_.size());
    const std::span<float> whole = all.first(part * static_cast<size_t>(group_.size()));
    if (name == "all_reduce") group_.all_reduce(all, options_.wire);
    if (name == "reduce_scatter") group_.reduce_scatter(whole, out.first(part), options_.wire);
    if (name == "all_gather")
      group_.all_gather(std::as_bytes(all.first(part)), std::as_writable_bytes(out.first(whole.size())));
    if (name == "send") send(std::as_writable_bytes(all));
  }
  void send(std::span<std::byte> bytes) {
    const int last = group_.size() - 1;
    if (group_.rank() == 0) group_.send(bytes, last);
    if (group_.rank() == last) group_.receive(bytes, 0);
  }

  std::vector<float> data_, other_;
};

/// A rank with arrays on a GPU; copy() copies from the GPU to the host.
class GpuRank : public Rank {
 public:
  GpuRank(ProcessGroup& group, gpu::Device& device, const CommBenchOptions& options)
      : Rank(group, options),
        data_(device, array_bytes()),
        other_(device, array_bytes()),
        copied_(device, kCopyBytes),
        stream_(device) {
    stream_.fill_zero(data_.data(), array_bytes());
    stream_.fill_zero(other_.data(), array_bytes());
  }

 private:
  void copy() override { stream_.copy_out(copied_.data(), data_.data(), kCopyBytes); }
  void call(std::string_view name, int64_t num_bytes) override {
    const int64_t count = num_bytes / dtype_bytes(options_.wire), part = count / group_.size();
    const int last = group_.size() - 1;
    if (name == "all_reduce") group_.all_reduce(data_.data(), count, options_.wire, stream_);
    if (name == "reduce_scatter")
      group_.reduce_scatter(data_.data(), other_.data(), part, options_.wire, stream_);
    if (name == "all_gather")
      group_.all_gather(data_.data(), other_.data(), num_bytes / group_.size(), stream_);
    if (name == "send" && group_.rank() == 0) group_.send(data_.data(), num_bytes, last, stream_);
    if (name == "send" && group_.rank() == last) group_.receive(data_.data(), num_bytes, 0, stream_);
  }
  void finish() override { stream_.synchronize(); }

  gpu::Memory data_, other_;
  gpu::HostMemory copied_;
  gpu::Stream stream_;
};

}  // namespace

double CommTiming::bus_bytes_per_second(int num_ranks) const {
  const double others = static_cast<double>(num_ranks - 1) / num_ranks;
  if (collective == "all_reduce") return 2 * others * bytes_per_second();
  return collective == "send" ? bytes_per_second() : others * bytes_per_second();
}

CommBenchResult bench_group(ProcessGroup& group, const CommBenchOptions& options) {
  if (const std::string fault = find_fault(group); !fault.empty())
    user_error("the process group failed its test: {}", fault);
  return HostRank(group, options).run();
}

CommBenchResult bench_shm(int num_ranks, const CommBenchOptions& options) {
  CommBenchResult result;
  run_ranks(num_ranks, [&](ProcessGroup& group) { result = bench_group(group, options); });
  return result;
}

CommBenchResult bench_nccl(std::span<const gpu::DeviceInfo> gpus, int num_ranks,
                           const CommBenchOptions& options) {
  CommBenchResult result;
  std::string fault;
  run_ranks(num_ranks, [&](ProcessGroup& host) {
    if (std::ssize(gpus) < num_ranks) {
      fault = fmt::format("each rank needs a GPU: {} ranks, but {} GPUs", num_ranks, gpus.size());
      return;
    }
    const gpu::DeviceInfo& gpu = gpus[static_cast<size_t>(host.rank())];
    const OpenedNccl opened = open_nccl(host, gpu);
    gpu::Device device(gpu);
    fault = opened.fault;
    if (opened.group) result = GpuRank(*opened.group, device, options).run();
  });
  if (!fault.empty()) user_error("{}", fault);
  return result;
}

}  // namespace hearth::distributed
