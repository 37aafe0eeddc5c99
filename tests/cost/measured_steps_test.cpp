// Tests that the model of a GPU is within 15% of each measured op that takes more than 3% of a step
// (bench/GPU-*.json), except for the ops in kExplained, which states the causes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "bench/case.h"
#include "bench/open_workload.h"
#include "cost/expectation.h"
#include "cost/roofline.h"
#include "graph_text.h"
#include "paths.h"
#include "planner/step_model.h"

namespace hearth::cost {
namespace {

constexpr double kMaxError = 0.15, kMinShare = 0.03;

// These measurements contain sleeps of up to 1 ms after each wait for the GPU.
constexpr const char* kHostClock = "timed by the host's clock, which adds 70 us and more to each launch";
constexpr const char* kFewerNodes =
    "measured with a launch for each weight and each sum; today's step has a few launches for all, or none";
constexpr const char* kBeforeMasks =
    "measured with gradients of batch norm that read y; today's read a bit for each element of y";
constexpr const char* kOlderKernels =
    "timed by the host's clock on 2026-11-26, with older kernels and without the vendor's matmuls";

struct Explained {
  const char* name;
  const char* op;
  double ratio;  ///< of the modeled to the measured time
  const char* cause;
};
constexpr Explained kExplained[] = {
    {"llama1b-b4-bf16", "matmul", 0.70, kHostClock},
    {"llama1b-b4-bf16", "attention", 0.81, kHostClock},
    {"llama1b-b4-bf16", "adamw_update", 0.30, kFewerNodes},
    {"llama1b-b4-bf16", "add", 0, kFewerNodes},
    {"llama1b-b4-bf16", "cast", 0.10, kFewerNodes},
    {"llama1b-b4-bf16", "sum_squares", 0.10, kFewerNodes},
    {"llama1b-b4-bf16", "sum_all", 0, kFewerNodes},
    {"llama1b_lora-b4-bf16", "matmul", 0.39, kFewerNodes},
    {"llama1b_lora-b4-bf16", "attention", 0.85, kHostClock},
    {"llama1b_lora-b4-bf16", "add", 0, kFewerNodes},
    {"llama1b_lora-b4-bf16", "cast", 0, kFewerNodes},
    {"llama1b_lora-b4-bf16", "sum_squares", 0, kFewerNodes},
    {"llama1b_lora-b4-bf16", "sum_all", 0, kFewerNodes},
    {"llama1b_lora-b4-bf16", "adamw_update", 0, kFewerNodes},
    {"llama1b_lora-b4-bf16", "scale", 0, kFewerNodes},
    {"llama1b_qlora-b4-bf16", "quantized_linear", 0.17, kOlderKernels},
    {"llama1b_qlora-b4-bf16", "head_cross_entropy_train", 0.19, kOlderKernels},
    {"llama1b_qlora-b4-bf16", "attention_grad", 0.72, kOlderKernels},
    {"llama1b_qlora-b4-bf16", "matmul", 0.11, kFewerNodes},
    {"llama1b_qlora-b4-bf16", "cast", 0, kFewerNodes},
    {"llama1b_qlora-b4-bf16", "add", 0, kFewerNodes},
    {"conv_stack-b32-bf16", "conv2d_grad_input", 0.59, kOlderKernels},
    {"conv_stack-b32-bf16", "batch_norm_grad", 0.33, kOlderKernels},
    {"conv_stack-b32-bf16", "max_pool2d_grad", 0.22, kOlderKernels},
    {"resnet50-b128-bf16", "batch_norm_grad", 0.77, kBeforeMasks},
    {"resnet50-b128-bf16", "add", 0, kFewerNodes},
    {"resnet50-b128-bf16", "sum_squares", 0.01, kFewerNodes},
    {"resnet50-b128-bf16", "sum_all", 0.01, kFewerNodes},
    {"resnet50-b128-bf16", "sgd_update", 0.09, kFewerNodes},
};

struct Row {
  std::string name, op;
  double seconds, share;
};

/// Returns the measured ops of each profiled step, and the measured kernels, of a file of tools/card.
std::vector<Row> measured_rows(const nlohmann::json& card) {
  std::vector<Row> rows;
  for (const nlohmann::json& table : card["parts"]["profile"]["tables"]) {
    const std::string title = table["title"];
    double all = 0;
    for (const nlohmann::json& row : table["rows"]) all += std::stod(row[1].get<std::string>());
    for (const nlohmann::json& row : table["rows"]) {
      const double ms = std::stod(row[1].get<std::string>());
      rows.push_back({title.substr(0, title.find(',')), row[0], ms * 1e-3, ms / all});
    }
  }
  constexpr std::string_view kUnit = " ms";
  for (const auto& [key, value] : card["parts"]["kernels"]["figures"].items()) {
    if (key.ends_with(kUnit))
      rows.push_back({key.substr(0, key.size() - kUnit.size()), "", value.get<double>() * 1e-3, 1});
  }
  return rows;
}

/// Graph of a linear layer of 8192 tokens.
std::string linear_graph(int64_t in_features, int64_t out_features) {
  return fmt::format(R"(input %0 "a" : bf16[8192, {0}]
input %1 "b" : bf16[{1}, {0}]
%2 = matmul(%0, %1) {{transpose_b=1}} : bf16[8192, {1}]
return %2
)",
                     in_features, out_features);
}

/// Graphs of the measured kernels: those of a layer of Llama 1B with 4 x 2048 tokens (bench/kernel.cpp).
const std::map<std::string, std::string> kKernels = {
    {"matmul_q-b4-bf16", linear_graph(2048, 2048)},
    {"matmul_kv-b4-bf16", linear_graph(2048, 512)},
    {"matmul_up-b4-bf16", linear_graph(2048, 8192)},
    {"matmul_down-b4-bf16", linear_graph(8192, 2048)},
    {"attention-b4-bf16", R"(input %0 "q" : bf16[8192, 2048]
input %1 "k" : bf16[8192, 512]
input %2 "v" : bf16[8192, 512]
%3, %4 = attention(%0, %1, %2) {batch=4, heads=32, kv_heads=8, head_size=64, scale=0.125} : bf16[8192, 2048], f32[8192, 32]
return %3
)"},
};

Roofline model_of(const std::string& name, const Device& gpu) {
  if (const auto kernel = kKernels.find(name); kernel != kKernels.end())
    return make_roofline(graph_of(kernel->second), gpu);
  engine::EngineOptions options = bench::engine_options(bench::find_bench_case(name), {});
  options.optimizer.in_backward = false;
  return planner::model_step(options, gpu).roofline;
}

/// Returns the modeled seconds of an op; of all ops if `op` is empty.
double modeled_seconds(const Roofline& model, std::string_view op) {
  if (op.empty()) return model.seconds;
  const auto row = std::ranges::find(model.rows, op, &RooflineRow::op);
  return row == model.rows.end() ? 0 : row->seconds;
}

const Explained* explanation_of(const Row& row) {
  const auto* const found = std::ranges::find_if(
      kExplained, [&](const Explained& known) { return row.name == known.name && row.op == known.op; });
  return found == std::end(kExplained) ? nullptr : found;
}

TEST(MeasuredSteps, AreModeledWithin15PercentOrExplained) {
  std::vector<const Explained*> used;
  int files = 0;
  for (const auto& file : std::filesystem::directory_iterator(kSourceDir + "/bench")) {
    const std::string path = file.path().filename();
    if (!path.starts_with("GPU-") || !path.ends_with(".json")) continue;
    ++files;
    const auto card = parse_json_object<nlohmann::json>(read_file(file.path()), path);
    const Device* const gpu = find_gpu_by_driver_name(card["card"]["name"].get<std::string>());
    ASSERT_NE(gpu, nullptr) << path;
    std::map<std::string, Roofline> models;
    for (const Row& row : measured_rows(card)) {
      if (row.share < kMinShare) continue;
      if (!models.contains(row.name)) models[row.name] = model_of(row.name, *gpu);
      const double ratio = modeled_seconds(models[row.name], row.op) / row.seconds;
      const bool is_close = std::abs(ratio - 1) <= kMaxError;
      const Explained* const known = explanation_of(row);
      const std::string text = fmt::format("{} {}: {:.2f} of the measured time", row.name, row.op, ratio);
      if (known == nullptr) {
        EXPECT_TRUE(is_close) << text << "; correct the rates or state the cause";
        continue;
      }
      used.push_back(known);
      EXPECT_FALSE(is_close) << text << "; remove its cause (" << known->cause << ')';
      EXPECT_NEAR(ratio, known->ratio, 0.05) << text;
    }
  }
  EXPECT_GT(files, 0);
  for (const Explained& known : kExplained) {
    EXPECT_TRUE(std::ranges::find(used, &known) != used.end())
        << known.name << ' ' << known.op << " is no longer measured; remove it from kExplained";
  }
}

TEST(ClassFits, AreThoseOfTheCalibration) {
  const auto data =
      parse_json_object<nlohmann::json>(read_file(kSourceDir + "/bench/calibration.json"), "calibration");
  for (size_t i = 0; i < class_fits().size(); ++i) {
    const ClassFit& fit = class_fits()[i];
    EXPECT_EQ(fit.kernels, static_cast<KernelClass>(i));
    EXPECT_DOUBLE_EQ(fit.factor, data["fits"][std::string(fit.name)]["factor"].get<double>()) << fit.name;
    EXPECT_DOUBLE_EQ(fit.error, data["fits"][std::string(fit.name)]["error"].get<double>()) << fit.name;
  }
}

}  // namespace
}  // namespace hearth::cost
