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

/// A number over steps.
struct CurvePoint {
  int64_t step = 0;
  double value = 0;
};

/// trainer_log.jsonl: one JSON object per line, flushed per line. Numbers round-trip exactly.
class RunLog {
 public:
  /// Opens for appending; lines after `last_step` (of a run that went further than its checkpoint) are
  /// dropped, and so are lines that are none. UserError when there is a log that cannot be read.
  RunLog(const fs::path& path, int64_t last_step);
  ~RunLog();
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;

  /// `gpus`: JSON of the key "gpu"; empty: it is left out.
  void step(int64_t step, int64_t total, double loss, double rate, double grad_norm, double elapsed_seconds,
            std::string_view gpus = {});
  /// "eval_loss" and an "eval_NAME" for each metric.
  void evaluation(int64_t step, double loss, std::span<const std::pair<const char*, double>> metrics);
  /// "event": what happened to the run, in a sentence.
  void event(int64_t step, std::string_view text);
  /// Flushes every line to the disk, as before a checkpoint that follows them.
  void sync();

 private:
  void write(const char* line, size_t size);
  void flush();

  fs::path path_;
  std::FILE* file_ = nullptr;
};

/// The values of one key of a log, or of a JSON pointer (/gpu/0/power_w), with their steps; none where there
/// is no log.
std::vector<CurvePoint> read_curve(const fs::path& path, const std::string& key);
/// Those of several keys, which takes no longer than of one.
std::vector<std::vector<CurvePoint>> read_curves(const fs::path& path, const std::vector<std::string>& keys);

}  // namespace hearth::io
