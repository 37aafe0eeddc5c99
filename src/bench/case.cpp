#include "bench/case.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>

#include "backend/cpu/gemm.h"
#include "base/error.h"
#include "base/process.h"
#include "base/text.h"
#include "cost/device.h"
#include "distributed/shm/shm.h"

namespace hearth::bench {
namespace {

constexpr int64_t kWarmUp = 3;
constexpr int64_t kTinyWarmUp = 1;
constexpr int kProfiledSteps = 10;

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
     {.name = "unet-b8-fp32",
      .model = "unet",
      .batch = 8,
      .length = 128,
      .channels = 3,
      .num_classes = 11,
      .width = 32},
     {.name = "deeplabv3_r50-b2-fp32",
      .model = "deeplabv3_resnet50",
      .batch = 2,
      .length = 256,
      .channels = 3,
      .num_classes = 21},
     {.name = "yolox_s-b4-fp32",
      .model = "yolox_s",
      .batch = 4,
      .length = 416,
      .channels = 3,
      .num_classes = 80},
     {.name = "yolox_nano-b8-fp32",
      .model = "yolox_nano",
      .batch = 8,
      .length = 416,
      .channels = 3,
      .num_classes = 80},
     {.name = "llama15m-b8-fp32", .model = "llama15m", .batch = 8, .length = 256},
     {.name = "llama15m-b8-bf16", .model = "llama15m", .precision = DType::bf16, .batch = 8, .length = 256},
     {.name = "llama110m-b2-fp32",
      .model = "llama110m",
      .batch = 2,
      .length = 512,
      .arena_bytes = int64_t{376} << 20},
     {.name = "llama110m-b2-bf16", .model = "llama110m", .precision = DType::bf16, .batch = 2, .length = 512},
     {.name = "llama110m_lora-b2-fp32", .model = "llama110m", .batch = 2, .length = 512, .rank = 16},
     {.name = "llama15m_answer-b1-fp32", .model = "llama15m", .length = 128, .prompt = 32},
     {.name = "llama15m_answer-b8-fp32", .model = "llama15m", .batch = 8, .length = 128, .prompt = 32},
     {.name = "llama110m_answer-b1-fp32", .model = "llama110m", .length = 128, .prompt = 32},
     {.name = "dit_s4-b16-fp32",
      .model = "dit_s4",
      .batch = 16,
      .length = 32,
      .channels = 4,
      .arena_bytes = int64_t{250} << 20},
     {.name = "flux_tiny-b4-bf16",
      .model = "flux_tiny",
      .precision = DType::bf16,
      .batch = 4,
      .length = 32,
      .channels = 16,
      .arena_bytes = int64_t{104} << 20},
     {.name = "llama1b-b4-bf16", .model = "llama1b", .precision = DType::bf16, .batch = 4, .length = 2048},
     {.name = "llama1b_lora-b4-bf16",
      .model = "llama1b",
      .precision = DType::bf16,
      .batch = 4,
      .length = 2048,
      .rank = 16},
     {.name = "llama1b_qlora-b4-bf16",
      .model = "llama1b",
      .precision = DType::bf16,
      .batch = 4,
      .length = 2048,
      .rank = 16,
      .quantized = ops::Quantization::nf4},
     {.name = "resnet50-b128-bf16",
      .model = "resnet50",
      .precision = DType::bf16,
      .batch = 128,
      .length = 224,
      .channels = 3,
      .num_classes = 1000},
     {.name = "conv_stack-b32-bf16",
      .model = "conv_stack",
      .precision = DType::bf16,
      .batch = 32,
      .length = 256,
      .channels = 3},
     {.name = "unet-b16-bf16",
      .model = "unet",
      .precision = DType::bf16,
      .batch = 16,
      .length = 256,
      .channels = 3,
      .num_classes = 11},
     {.name = "deeplabv3_r50-b8-bf16",
      .model = "deeplabv3_resnet50",
      .precision = DType::bf16,
      .batch = 8,
      .length = 512,
      .channels = 3,
      .num_classes = 21},
     {.name = "yolox_s-b16-bf16",
      .model = "yolox_s",
      .precision = DType::bf16,
      .batch = 16,
      .length = 640,
      .channels = 3,
      .num_classes = 80}});

/// Returns a case that times one GPU kernel, on the shapes of a training step of Llama 3.2 1B.
constexpr BenchCase kernel_case(std::string_view name) {
  return {.name = name,
          .model = "llama1b",
          .precision = DType::bf16,
          .batch = 4,
          .length = 2048,
          .kernel = name.substr(0, name.find('-'))};
}
constexpr auto kKernelCases = std::to_array(
    {kernel_case("matmul_q-b4-bf16"), kernel_case("matmul_kv-b4-bf16"), kernel_case("matmul_up-b4-bf16"),
     kernel_case("matmul_down-b4-bf16"), kernel_case("matmul_head-b4-bf16"),
     kernel_case("matmul_up_dx-b4-bf16"), kernel_case("matmul_up_dw-b4-bf16"),
     kernel_case("attention-b4-bf16"), kernel_case("attention_grad-b4-bf16"),
     // Shapes of Llama 3.1 8B, with head_size 128.
     BenchCase{.name = "attention_d128-b1-bf16",
               .model = "llama8b",
               .precision = DType::bf16,
               .length = 8192,
               .kernel = "attention"},
     BenchCase{.name = "attention_d128_grad-b1-bf16",
               .model = "llama8b",
               .precision = DType::bf16,
               .length = 8192,
               .kernel = "attention_grad"}});

/// Measures the CPU's rate for a large f32 matmul on the threads of the pool, in GFLOP/s.
double measure_gemm_peak(ThreadPool& threads) {
  constexpr int64_t kSide = 768;
  const cpu::Gemm gemm({.m = kSide, .n = kSide, .k = kSide, .num_threads = threads.size()});
  std::vector<float> data(3 * kSide * kSide, 1.0F);
  std::vector<std::byte> workspace(static_cast<size_t>(gemm.workspace_bytes()));
  double best = 0;
  for (int i = 0; i < 8; ++i) {
    const auto start = std::chrono::steady_clock::now();
    gemm.run(data.data(), data.data() + kSide * kSide, nullptr, nullptr, data.data() + 2 * kSide * kSide,
             workspace.data(), threads);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    best = std::max(best, 2e-9 * kSide * kSide * kSide / seconds);
  }
  return best;
}

BenchGpu gpu_of(const gpu::DeviceInfo& info, DType precision, int64_t num_bytes) {
  BenchGpu gpu{.name = info.name, .driver = info.driver_version, .num_bytes = num_bytes};
  if (const cost::Device* model = cost::find_gpu_by_driver_name(info.name))
    gpu.peak_flops_per_second = cost::peak_flops_per_second(*model, precision);
  return gpu;
}

}  // namespace

const BenchCase& find_bench_case(std::string_view name) {
  std::vector<std::string> names;
  for (const std::span<const BenchCase> cases : {std::span<const BenchCase>(kCases), {kKernelCases}}) {
    for (const BenchCase& bench : cases) {
      if (bench.name == name) return bench;
      names.emplace_back(bench.name);
    }
  }
  user_error("there is no bench case '{}'{}; the cases are {}", name, did_you_mean(name, names),
             fmt::join(names, ", "));
}

BenchResult run_bench(const BenchCase& bench, int64_t num_steps, const BenchMachine& machine, bool profile) {
  if (profile && (bench.prompt > 0 || !bench.kernel.empty()))
    user_error("--profile needs a training case, but '{}' is none", bench.name);
  const std::unique_ptr<Workload> work = open_workload(bench, machine);
  BenchResult result{.flops_per_step = work->flops(), .samples_per_step = work->num_samples()};
  const int64_t warm_up = bench.tiny ? kTinyWarmUp : kWarmUp;
  work->run(0);
  result.first_step_seconds = process_seconds();
  for (int64_t step = 1; step < num_steps + warm_up; ++step) {
    const double seconds = work->run(step);
    if (step < warm_up) continue;
    result.step_seconds.push_back(seconds);
    if (machine.group != nullptr) result.exchange_seconds.push_back(work->last().exchange_seconds);
  }
  result.peak_rss_bytes = peak_rss_bytes();
  if (profile) result.profile = to_table(work->profile(kProfiledSteps));
  if (const gpu::DeviceInfo* gpu = work->gpu()) {
    result.gpu = gpu_of(*gpu, bench.precision, work->gpu_bytes());
  } else {
    ThreadPool threads(machine.num_threads);
    result.gemm_peak_gflops = measure_gemm_peak(threads);
  }
  return result;
}

BenchResult run_group_bench(const BenchCase& bench, int64_t num_steps, const BenchMachine& machine,
                            int num_workers) {
  engine_options(bench, machine);  // fails for a case that cannot be distributed, before processes are forked
  BenchResult result;
  distributed::run_ranks(num_workers, [&](distributed::ProcessGroup& group) {
    BenchMachine own = machine;
    own.group = &group;
    result = run_bench(bench, num_steps, own);
  });
  result.num_workers = num_workers;
  return result;
}

std::string to_json(const BenchCase& bench, const BenchResult& result) {
  std::string more;
  if (result.num_workers > 1) {
    more = fmt::format(",\"num_workers\":{},\"exchange_seconds\":[{:.9f}]", result.num_workers,
                       fmt::join(result.exchange_seconds, ","));
  }
  if (result.gpu) {
    more += fmt::format(",\"gpu\":\"{}\",\"driver\":\"{}\",\"gpu_bytes\":{},\"peak_flops_per_second\":{:.0f}",
                        result.gpu->name, result.gpu->driver, result.gpu->num_bytes,
                        result.gpu->peak_flops_per_second);
  }
  return fmt::format(
      "{{\"case\":\"{}\",\"step_seconds\":[{:.9f}],\"peak_rss_bytes\":{},\"first_step_seconds\":{:.3f},"
      "\"gemm_peak_gflops\":{:.1f},\"flops_per_step\":{:.0f},\"samples_per_step\":{}{}}}",
      bench.name, fmt::join(result.step_seconds, ","), result.peak_rss_bytes, result.first_step_seconds,
      result.gemm_peak_gflops, result.flops_per_step, result.samples_per_step, more);
}

std::string to_line(const BenchCase& bench, const BenchResult& result) {
  if (!result.gpu) return "";
  std::vector<double> seconds = result.step_seconds;
  std::ranges::sort(seconds);
  const double median = seconds[seconds.size() / 2];
  const bool alone = !bench.kernel.empty();
  const double work = alone ? result.flops_per_step / 1e9 : static_cast<double>(result.samples_per_step);
  std::string line =
      fmt::format("{:.3f} ms a {}, {:.0f} {}/s", median * 1e3, alone ? "run" : "step", work / median,
                  alone                ? "GFLOP"
                  : bench.channels > 0 ? "images"
                                       : "tokens");
  if (const double peak = result.gpu->peak_flops_per_second; peak > 0)
    line += fmt::format(", MFU {:.1f}%", 100 * result.flops_per_step / (median * peak));
  return line + fmt::format(", {} on {}\n", human_bytes(result.gpu->num_bytes), result.gpu->name);
}

}  // namespace hearth::bench
