#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"

namespace hearth::io {

/// Name of the table of metrics in a run folder.
inline constexpr const char* kMetricsTable = "metrics.csv";

/// Name and value of a metric, such as {"train/loss", 0.41}.
using Metric = std::pair<std::string, double>;

/// Writer of metrics.csv: a header, then a row per report. The first column is "step", the others have the
/// names of metrics in order of their first use. Cells of missing and non-finite values are empty.
class MetricsTable {
 public:
  /// Opens a table for appending. Removes incomplete rows, and rows after `last_step`, which the run wrote
  /// after the checkpoint from which it resumes. Starts a new table if `path` has none.
  MetricsTable(fs::path path, int64_t last_step);

  /// Appends a row. Metrics without a column get one, for which the file is replaced.
  void add(int64_t step, std::span<const Metric> metrics);
  /// Flushes the table to disk.
  void sync();

 private:
  void replace(const std::string& rows);
  std::string text_of_row(int64_t step, std::span<const Metric> metrics);

  fs::path path_;
  std::vector<std::string> columns_ = {"step"};
  std::optional<FileWriter> file_;
};

}  // namespace hearth::io
