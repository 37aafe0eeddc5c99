#pragma once

#include <string>

#include "base/path.h"

namespace hearth::bench {

/// Options of bench_data().
struct DataBenchOptions {
  fs::path folder;  ///< images with boxes in a format of data::read_boxes
  /// image size in pixels
  int64_t side = 416;
  int64_t rows = 200;  ///< rows to time per kind, after 10% of them as warm-up
};

/// Times how a detector's input rows are created from files on one thread: letterboxed for evaluation, and
/// for training with YOLOX's mosaic, rotation, scaling, flip and color jitter (without mixup). Each row
/// decodes its images again. Returns a line of JSON: {"rows": N, "letterbox": {"seconds", "cpu_seconds"},
/// "mosaic": ...}. Throws a UserError for a folder without labels.
std::string bench_data(const DataBenchOptions& options);

}  // namespace hearth::bench
