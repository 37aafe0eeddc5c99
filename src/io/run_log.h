#pragma once

#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.h"

namespace hearth::io {

/// Folder in a run folder with the images that evaluations generated: step-STEP-NAME.png.
inline constexpr const char* kSamplesFolder = "samples";

/// A point of a curve: a value at a training step.
struct CurvePoint {
  int64_t step = 0;
  double value = 0;
};

/// Writer of trainer_log.jsonl: one JSON object per line. Each line is flushed. Numbers are written with
/// enough digits to be read back exactly.
class RunLog {
 public:
  /// Opens a log for appending. Removes incomplete lines, and lines after `last_step`, which the run wrote
  /// after the checkpoint from which it resumes. Throws a UserError if an existing log cannot be read.
  RunLog(const fs::path& path, int64_t last_step);
  ~RunLog();
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;

  /// Writes the line of a training step. `total`: number of steps of the run; `rate`: learning rate; `gpus`:
  /// JSON for the key "gpu", which is omitted if empty.
  void step(int64_t step, int64_t total, double loss, double rate, double grad_norm, double elapsed_seconds,
            std::string_view gpus = {});
  /// Writes "eval_loss", one "eval_NAME" per metric and, if `is_best`, "best": true.
  void evaluation(int64_t step, double loss, std::span<const std::pair<const char*, double>> metrics,
                  bool is_best = false);
  /// Writes a line with the key "event": a sentence about something that happened to the run.
  void event(int64_t step, std::string_view text);
  /// Writes "sparsity", the fraction of pruned weights, and "layer_sparsity", an object with that of each
  /// weight.
  void sparsity(int64_t step, double total, std::span<const std::pair<std::string, double>> layers);
  /// Flushes the log to disk (fsync). Called before each checkpoint, so that the log has all lines up to its
  /// step.
  void sync();

 private:
  void write(const char* line, size_t size);
  void flush();

  fs::path path_;
  std::FILE* file_ = nullptr;
};

/// Reads the values of a key, or of a JSON pointer (/gpu/0/power_w), with their steps. Returns an empty curve
/// if there is no log.
std::vector<CurvePoint> read_curve(const fs::path& path, const std::string& key);
/// Reads the curves of several keys in one pass.
std::vector<std::vector<CurvePoint>> read_curves(const fs::path& path, const std::vector<std::string>& keys);

}  // namespace hearth::io
