#pragma once

#include <string>

#include "base/path.h"

namespace hearth::bench {

/// Options of bench_data().
struct DataBenchOptions {
  fs::path folder;  ///< folder of images with boxes, in a format that data::read_boxes reads
  /// Side of the square input images, in pixels.
  int64_t side = 416;
  int64_t rows = 200;  ///< number of rows timed per kind of row, after 10% of them as warm-up
};

/// Times how a detector's input rows are created from files on one thread. Two kinds of rows: letterboxed
/// images, as for evaluation, and training rows with YOLOX's mosaic, rotation, scaling, flip and color jitter
/// (without mixup). Decoded images are not cached. Returns a line of JSON: {"rows": N, "letterbox":
/// {"seconds", "cpu_seconds"}, "mosaic": ...}. Throws a UserError for a folder without labels.
std::string bench_data(const DataBenchOptions& options);

}  // namespace hearth::bench
