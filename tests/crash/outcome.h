#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <vector>

#include "io/checkpoint.h"
#include "io/run_log.h"
#include "process.h"

/// A run of some seconds, and what it must come to whatever happens to it.
namespace hearth {

inline constexpr const char* kRecipe = R"(
model: {name: mlp, num_classes: 10, hidden: [64, 32], dropout: 0.1}
data: {kind: shapes, image_size: 16, count: 203, val_count: 40, flip: true, crop_padding: 2, jitter: 0.2, threads: 2}
train: {steps: 600, batch: 8, accumulate: 2, checkpoint_every: 7, ema: 0.9, clip_norm: 1, eval_every: 45}
optimizer: {name: adamw, lr: 0.001, weight_decay: 0.01}
threads: 2
)";
inline constexpr int64_t kSteps = 600;

/// Everything of a finished run that a resumed one must have bit for bit.
struct Outcome {
  std::string weights;
  std::string best_weights;
  std::vector<std::byte> optimizer_state;
  std::string counters;
  std::vector<std::vector<io::CurvePoint>> curves;
};

inline Outcome outcome_of(const fs::path& run) {
  Outcome outcome{.weights = read_file(run / "model.safetensors"),
                  .best_weights = read_file(run / "best.safetensors")};
  const auto found = io::find_newest_checkpoint(run / "checkpoints", nullptr);
  if (!found) return outcome;
  EXPECT_EQ(found->step, kSteps);
  io::CheckpointContents last = io::read_checkpoint(found->path);
  outcome.optimizer_state = std::move(last.memory);
  outcome.counters = last.state;
  for (const char* key : {"loss", "lr", "grad_norm", "eval_loss", "eval_accuracy"}) {
    outcome.curves.push_back(io::read_curve(run / "trainer_log.jsonl", key));
  }
  return outcome;
}

inline void expect_same(const Outcome& got, const Outcome& want) {
  EXPECT_TRUE(got.weights == want.weights) << "model.safetensors differs";
  EXPECT_TRUE(got.best_weights == want.best_weights) << "best.safetensors differs";
  EXPECT_TRUE(got.optimizer_state == want.optimizer_state) << "the last checkpoint's memory differs";
  EXPECT_EQ(got.counters, want.counters);
  ASSERT_EQ(got.curves.size(), want.curves.size());
  for (size_t k = 0; k < want.curves.size(); ++k) {
    ASSERT_EQ(got.curves[k].size(), want.curves[k].size()) << "curve " << k << " misses or repeats steps";
    for (size_t i = 0; i < want.curves[k].size(); ++i) {
      ASSERT_EQ(got.curves[k][i].step, want.curves[k][i].step) << "curve " << k;
      ASSERT_EQ(got.curves[k][i].value, want.curves[k][i].value) << "curve " << k << ", entry " << i;
    }
  }
}

inline std::string sha256(const fs::path& path) {
  std::string line(64, '?');
  std::FILE* pipe = popen(("sha256sum '" + path.string() + "'").c_str(), "r");
  if (pipe == nullptr || std::fread(line.data(), 1, line.size(), pipe) != line.size())
    line = "(no sha256sum)";
  if (pipe != nullptr) pclose(pipe);
  return line;
}

}  // namespace hearth
