#include "train/bench_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>

#include "backend/cpu/gemm.h"
#include "base/error.h"
#include "base/process.h"
#include "base/text.h"

namespace hearth::train {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kWarmUp = 3;

constexpr auto kCases = std::to_array<BenchCase>(
    {{.name = "simplecnn-b32-fp32", .model = "simplecnn", .batch = 32, .length = 32, .channels = 3},
     {.name = "simplecnn-b256-fp32", .model = "simplecnn", .batch = 256, .length = 32, .channels = 3},
     {.name = "mlp-b64-fp32", .model = "mlp", .batch = 64, .length = 28, .channels = 1},
     {.name = "resnet18-b64-fp32", .model = "resnet18", .batch = 64, .length = 32, .channels = 3},
     {.name = "resnet18-b64-bf16",
      .model = "resnet18",
      .precision = DType::bf16,
      .batch = 64,
      .length = 32,
      .channels = 3},
     {.name = "llama15m-b8-fp32", .model = "llama15m", .batch = 8, .length = 256},
     {.name = "llama15m-b8-bf16", .model = "llama15m", .precision = DType::bf16, .batch = 8, .length = 256},
     {.name = "llama110m-b2-fp32", .model = "llama110m", .batch = 2, .length = 512, .arena_mib = 376},
     {.name = "llama110m-b2-bf16", .model = "llama110m", .precision = DType::bf16, .batch = 2, .length = 512},
     {.name = "llama110m_lora-b2-fp32", .model = "llama110m", .batch = 2, .length = 512, .rank = 16},
     {.name = "llama15m_answer-b1-fp32", .model = "llama15m", .length = 128, .prompt = 32},
     {.name = "llama110m_answer-b1-fp32", .model = "llama110m", .length = 128, .prompt = 32}});

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// The rate of a large f32 matrix product with the same threads.
double measure_gemm_peak(ThreadPool& threads) {
  constexpr int64_t kSide = 768;
  const cpu::Gemm gemm({.m = kSide, .n = kSide, .k = kSide, .num_threads = threads.size()});
  std::vector<float> data(3 * kSide * kSide, 1.0F);
  std::vector<std::byte> workspace(static_cast<size_t>(gemm.workspace_bytes()));
  double best = 0;
  for (int i = 0; i < 8; ++i) {
    const auto start = Clock::now();
    gemm.run(data.data(), data.data() + kSide * kSide, nullptr, nullptr, data.data() + 2 * kSide * kSide,
             workspace.data(), threads);
    best = std::max(best, 2e-9 * kSide * kSide * kSide / seconds_since(start));
  }
  return best;
}

}  // namespace

const BenchCase& find_bench_case(std::string_view name) {
  std::vector<std::string> names;
  for (const BenchCase& bench : kCases) {
    if (bench.name == name) return bench;
    names.emplace_back(bench.name);
  }
  user_error("there is no bench case '{}'{}", name, did_you_mean(name, names));
}

BenchResult run_bench(const BenchCase& bench, int64_t num_steps, int num_threads, bool profile) {
  if (profile && bench.prompt > 0)
    user_error("expected a case of training for --profile, got '{}'", bench.name);
  const std::unique_ptr<Workload> work = open_workload(bench, num_threads);
  BenchResult result{.flops_per_step = work->flops()};
  work->run(0);
  result.first_step_seconds = process_seconds();
  for (int64_t step = 1; step < num_steps + kWarmUp; ++step) {
    const auto start = Clock::now();
    work->run(step);
    if (step >= kWarmUp) result.step_seconds.push_back(seconds_since(start));
  }
  result.peak_rss_bytes = peak_rss_bytes();
  if (profile) result.profile = work->profile();
  ThreadPool threads(num_threads);
  result.gemm_peak_gflops = measure_gemm_peak(threads);
  return result;
}

std::string to_json(const BenchCase& bench, const BenchResult& result) {
  return fmt::format(
      "{{\"case\":\"{}\",\"step_seconds\":[{:.6f}],\"peak_rss_bytes\":{},\"first_step_seconds\":{:.3f},"
      "\"gemm_peak_gflops\":{:.1f},\"flops_per_step\":{:.0f}}}",
      bench.name, fmt::join(result.step_seconds, ","), result.peak_rss_bytes, result.first_step_seconds,
      result.gemm_peak_gflops, result.flops_per_step);
}

}  // namespace hearth::train
