#include "doctor/gpu_trials.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "base/function_ref.h"
#include "base/process.h"
#include "distributed/probe.h"
#include "distributed/shm/shm.h"
#include "exec/device/gpu_choice.h"
#include "exec/device/self_test.h"
#include "ops/op_list.h"

namespace hearth::doctor {
namespace {

constexpr int64_t kChunkBytes = int64_t{64} << 20;
constexpr int64_t kRateBytes = int64_t{256} << 20;
constexpr int kRounds = 5;

/// Adds a node for the sample to the graph. Each sample has its own input values.
void add_sample(const ir::OpDef& op, const ir::Sample& sample, ir::Graph& graph) {
  std::vector<ir::ValueId> inputs;
  for (const ir::SampleInput& input : sample.in) {
    const bool absent = input.fill == ir::SampleInput::Fill::absent;
    inputs.push_back(absent ? ir::kNone : graph.add_value("", input.type, ir::Role::input));
  }
  graph.add(op, inputs, sample.attrs);
}

/// Allocates the free memory, except a reserve for desktop and driver. Allocates in chunks, because one large
/// block may not be available.
std::vector<std::unique_ptr<gpu::Memory>> take_free_memory(gpu::Device& device, int64_t max_bytes) {
  const int64_t reserve = std::max<int64_t>(kChunkBytes, device.free_bytes() / 32);
  std::vector<std::unique_ptr<gpu::Memory>> chunks;
  try {
    while (std::ssize(chunks) * kChunkBytes < max_bytes && device.free_bytes() > reserve + kChunkBytes)
      chunks.push_back(std::make_unique<gpu::Memory>(device, kChunkBytes));
  } catch (const gpu::DeviceError& error) {
    if (error.kind() != gpu::DeviceError::Kind::out_of_memory) throw;
  }
  return chunks;
}

/// Tests the memory of a GPU. Patterns are written and verified through a host buffer of one chunk.
class MemoryTester {
 public:
  MemoryTester(const gpu::DeviceInfo& gpu, int64_t max_bytes)
      : device_(gpu),
        stream_(device_),
        chunks_(take_free_memory(device_, max_bytes)),
        host_(device_, kChunkBytes) {}

  /// Writes the index of each word XOR `mask` to it, and then verifies all words. Chunks that could not be
  /// written in time are excluded from this and all later patterns.
  void test_addresses(uint64_t mask, FunctionRef<bool()> in_time) {
    for (size_t chunk = 0; chunk < chunks_.size(); ++chunk) {
      if (chunk > 0 && !in_time()) {
        chunks_.resize(chunk);
        break;
      }
      const std::span<uint64_t> words = host_words();
      for (size_t i = 0; i < words.size(); ++i) words[i] = (first_word(chunk) + i) ^ mask;
      stream_.copy_in(chunks_[chunk]->data(), host_.data(), kChunkBytes);
      stream_.synchronize();
    }
    result_.num_bytes = std::ssize(chunks_) * kChunkBytes;
    for (size_t chunk = 0; chunk < chunks_.size(); ++chunk) {
      read(chunk);
      const std::span<const uint64_t> words = host_words();
      int64_t num_wrong = 0;
      for (size_t i = 0; i < words.size(); ++i) num_wrong += words[i] != ((first_word(chunk) + i) ^ mask);
      if (num_wrong > 0) note(chunk, num_wrong, [&](size_t i) { return (first_word(chunk) + i) ^ mask; });
    }
    ++result_.num_patterns;
  }
  void test_byte(int value) {
    uint64_t word = 0;
    std::memset(&word, value, sizeof(word));
    for (const auto& chunk : chunks_) stream_.fill(chunk->data(), value, kChunkBytes);
    stream_.synchronize();
    for (size_t chunk = 0; chunk < chunks_.size(); ++chunk) {
      read(chunk);
      int64_t num_wrong = 0;
      for (const uint64_t found : host_words()) num_wrong += found != word;
      if (num_wrong > 0) note(chunk, num_wrong, [&](size_t) { return word; });
    }
    ++result_.num_patterns;
  }
  const MemoryTestResult& result() const { return result_; }

 private:
  static uint64_t first_word(size_t chunk) { return chunk * (kChunkBytes / sizeof(uint64_t)); }
  std::span<uint64_t> host_words() const {
    return {reinterpret_cast<uint64_t*>(host_.data()), kChunkBytes / sizeof(uint64_t)};
  }
  void read(size_t chunk) {
    stream_.copy_out(host_.data(), chunks_[chunk]->data(), kChunkBytes);
    stream_.synchronize();
  }
  template <typename Expected>
  void note(size_t chunk, int64_t num_wrong, const Expected& expected) {
    const std::span<const uint64_t> words = host_words();
    size_t i = 0;
    while (words[i] == expected(i)) ++i;
    if (result_.num_wrong_words == 0)
      result_.first_wrong = fmt::format("offset {:#x}: wrote {:#018x}, read {:#018x}",
                                        (first_word(chunk) + i) * sizeof(uint64_t), expected(i), words[i]);
    result_.num_wrong_words += num_wrong;
  }

  gpu::Device device_;
  gpu::Stream stream_;
  std::vector<std::unique_ptr<gpu::Memory>> chunks_;
  gpu::HostMemory host_;
  MemoryTestResult result_;
};

}  // namespace

KernelTestResult run_kernel_tests(const gpu::DeviceInfo& gpu, int max_kernels) {
  ir::Graph graph;
  for (const ir::OpDef* op : ops::op_list()) {
    if (op->samples == nullptr || gpu.driver->find_kernel(op->name) == nullptr) continue;
    for (const ir::Sample& sample : op->samples())
      if (std::ssize(graph.nodes) < max_kernels) add_sample(*op, sample, graph);
  }
  exec::SelfTest test(gpu, {.when = SelfTestMode::always});
  test.cover(graph);
  return {.num_tested = test.num_tested(), .failures = test.failures()};
}

MemoryTestResult run_memory_test(const gpu::DeviceInfo& gpu, int64_t max_bytes, double seconds) {
  const double start = process_seconds();
  MemoryTester tester(gpu, max_bytes);
  const auto in_time = [&] { return process_seconds() - start < seconds; };
  // Half of the time limit, because verifying takes as long as writing.
  tester.test_addresses(0, [&] { return process_seconds() - start < seconds / 2; });
  if (in_time()) tester.test_addresses(~uint64_t{0}, in_time);
  for (const int value : {0x55, 0xaa, 0x00, 0xff})
    if (in_time()) tester.test_byte(value);
  return tester.result();
}

CopyRates measure_copies(const gpu::DeviceInfo& gpu) {
  gpu::Device device(gpu);
  gpu::Stream stream(device);
  const gpu::Memory memory(device, kRateBytes);
  const gpu::HostMemory host(device, kRateBytes);
  std::memset(host.data(), 1, static_cast<size_t>(kRateBytes));
  CopyRates best;
  for (int round = 0; round < kRounds; ++round) {
    double start = process_seconds();
    stream.copy_in(memory.data(), host.data(), kRateBytes);
    stream.synchronize();
    best.to_gpu = std::max(best.to_gpu, static_cast<double>(kRateBytes) / (process_seconds() - start));
    start = process_seconds();
    stream.copy_out(host.data(), memory.data(), kRateBytes);
    stream.synchronize();
    best.to_host = std::max(best.to_host, static_cast<double>(kRateBytes) / (process_seconds() - start));
  }
  return best;
}

double measure_fill(const gpu::DeviceInfo& gpu) {
  gpu::Device device(gpu);
  gpu::Stream stream(device);
  const gpu::Memory memory(device, kRateBytes);
  constexpr int kFills = 20;
  double best = 0;
  for (int round = 0; round < kRounds; ++round) {
    const double start = process_seconds();
    for (int i = 0; i < kFills; ++i) stream.fill(memory.data(), i, kRateBytes);
    stream.synchronize();
    best = std::max(best, kFills * static_cast<double>(kRateBytes) / (process_seconds() - start));
  }
  return best;
}

std::string test_all_reduce(const std::string& device_name, int size) {
  constexpr int64_t kNumbers = 1 << 20;
  std::string fault;
  distributed::run_ranks(size, [&](distributed::ProcessGroup& group) {
    gpu::Device device(exec::find_gpu(device_name, group.rank()));
    gpu::Stream stream(device);
    const gpu::Memory memory(device, kNumbers * 4);
    std::vector<float> numbers(kNumbers);
    for (int64_t i = 0; i < kNumbers; ++i)
      numbers[static_cast<size_t>(i)] = distributed::test_number(group.rank(), i);
    const auto through_gpu = [&] {
      stream.copy_in(memory.data(), numbers.data(), kNumbers * 4);
      stream.synchronize();
      std::ranges::fill(numbers, -1.0F);
      stream.copy_out(numbers.data(), memory.data(), kNumbers * 4);
      stream.synchronize();
    };
    through_gpu();
    group.all_reduce(numbers, DType::f32);
    through_gpu();
    int64_t num_wrong = 0;
    for (int64_t i = 0; i < kNumbers; ++i)
      num_wrong += numbers[static_cast<size_t>(i)] != distributed::sum_of_test_numbers(size, i);
    std::vector<int64_t> all(static_cast<size_t>(size));
    group.all_gather(std::as_bytes(std::span(&num_wrong, 1)), std::as_writable_bytes(std::span(all)));
    for (int rank = 0; rank < size; ++rank)
      if (all[static_cast<size_t>(rank)] > 0)
        fault = fmt::format("GPU {} of {}: {} of {} all-reduced numbers are wrong", rank, size,
                            all[static_cast<size_t>(rank)], kNumbers);
  });
  return fault;
}

}  // namespace hearth::doctor
