#pragma once

#include <string>

#include "base/path.h"

namespace hearth::bench {

struct DataBenchOptions {
  fs::path folder;  ///< pictures with boxes, as data::read_boxes takes them
  int64_t side = 416;
  int64_t rows = 200;  ///< of each kind, timed after a tenth as many
};

/// Times, on one thread, how rows of a detector are made of files: letterboxed for evaluation, and with
/// YOLOX's mosaic, turn, scale, mirror and shift of color (without mixup) for training. Every row decodes its
/// pictures again. A line of JSON: {"rows": N, "letterbox": {"seconds", "cpu_seconds"}, "mosaic": ...}.
/// UserError for a folder without labels.
std::string bench_data(const DataBenchOptions& options);

}  // namespace hearth::bench
