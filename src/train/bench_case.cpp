#include "train/bench_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <map>

#include "backend/cpu/gemm.h"
#include "base/error.h"
#include "base/philox.h"
#include "base/process.h"
#include "base/text.h"
#include "train/classifier.h"

namespace hearth::train {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::array<BenchCase, 5> kCases = {{{"simplecnn-b32-fp32", "simplecnn", 32, DType::f32, 32, 3},
                                              {"simplecnn-b256-fp32", "simplecnn", 256, DType::f32, 32, 3},
                                              {"mlp-b64-fp32", "mlp", 64, DType::f32, 28, 1},
                                              {"resnet18-b64-fp32", "resnet18", 64, DType::f32, 32, 3},
                                              {"resnet18-b64-bf16", "resnet18", 64, DType::bf16, 32, 3}}};

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

std::string profile_table(const ir::Graph& graph, const std::vector<double>& seconds) {
  struct Row {
    std::string what;
    double seconds = 0, flops = 0;
    int count = 0;
  };
  std::map<std::string, Row> rows;
  double total = 0;
  for (size_t i = 0; i < seconds.size(); ++i) {
    const ir::Node& node = graph.nodes[i];
    if (node.op->is_view) continue;
    const std::string what =
        fmt::format("{} {}", node.op->name, to_string(graph.type(node.outputs[0]).shape));
    Row& row = rows[what];
    row = {what, row.seconds + seconds[i], row.flops + ir::cost_of(graph, node).flops, row.count + 1};
    total += seconds[i];
  }
  std::vector<Row> sorted;
  sorted.reserve(rows.size());
  for (const auto& [what, row] : rows) sorted.push_back(row);
  std::sort(sorted.begin(), sorted.end(), [](const Row& a, const Row& b) { return a.seconds > b.seconds; });
  std::string text =
      fmt::format("{:>9} {:>6} {:>5} {:>8}  op and its result\n", "ms", "share", "count", "GFLOP/s");
  for (const Row& row : sorted)
    text += fmt::format("{:9.3f} {:5.1f}% {:5} {:8.1f}  {}\n", row.seconds * 1e3, 100 * row.seconds / total,
                        row.count, row.flops / row.seconds / 1e9, row.what);
  return text + fmt::format("{:9.3f} in all\n", total * 1e3);
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
  EngineOptions options{.objective = classifier({.model = {.name = std::string(bench.model),
                                                           .num_classes = 10,
                                                           .channels = bench.channels,
                                                           .image_size = bench.image_size}}),
                        .batch = bench.batch,
                        .precision = bench.precision,
                        .num_threads = num_threads};
  const int64_t sizes[] = {bench.batch};
  Engine engine(options, sizes, {});
  engine.initialise();
  const int64_t num_pixels = bench.batch * bench.image_size * bench.image_size * bench.channels;
  std::vector<float> images(static_cast<size_t>(num_pixels) + 16);
  std::vector<int32_t> labels(static_cast<size_t>(bench.batch) + 16);
  PhiloxSequence random(1, 0);
  for (float& value : images) value = random.uniform(-1, 1);
  for (int32_t& label : labels) label = static_cast<int32_t>(random.below(10));
  const MicroBatch batch{{images.data(), labels.data()}, bench.batch};
  BenchResult result{.flops_per_step = engine.train_program().report().flops};
  const auto next = [&] { return batch; };
  engine.train_step(1, bench.batch, next, 0, 0.01);
  result.first_step_seconds = process_seconds();
  for (int64_t step = 1; step < num_steps + 3; ++step) {
    const auto start = Clock::now();
    engine.train_step(1, bench.batch, next, step, 0.01);
    if (step >= 3) result.step_seconds.push_back(seconds_since(start));
  }
  result.peak_rss_bytes = peak_rss_bytes();
  if (profile) result.profile = profile_table(engine.train_program().graph(), engine.profile(batch, 10));
  result.gemm_peak_gflops = measure_gemm_peak(engine.threads());
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
