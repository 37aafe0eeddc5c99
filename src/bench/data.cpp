#include "bench/data.h"

#include <fmt/format.h>

#include <chrono>
#include <ctime>
#include <vector>

#include "data/boxes/boxes.h"
#include "tasks/detect/detect_rows.h"

namespace hearth::bench {
namespace {

struct Times {
  double seconds = 0, cpu_seconds = 0;
};

double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

Times time_rows(const tasks::DetectRows& rows, int64_t count) {
  std::vector<std::vector<std::byte>> arrays;
  std::array<std::byte*, data::kMaxArrays> starts = {};
  for (const data::ArrayFormat& format : rows.formats(0)) {
    arrays.emplace_back(static_cast<size_t>(format.row_bytes));
    starts.at(arrays.size() - 1) = arrays.back().data();
  }
  const auto make = [&](int64_t number) { rows.make({.key = 1, .index = number % rows.num_rows()}, starts); };
  for (int64_t i = 0; i < count / 10; ++i) make(i);
  const auto start = std::chrono::steady_clock::now();
  const double cpu_start = cpu_seconds();
  for (int64_t i = 0; i < count; ++i) make(i);
  return {std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(),
          cpu_seconds() - cpu_start};
}

}  // namespace

std::string bench_data(const DataBenchOptions& options) {
  const data::BoxedImages set = data::read_boxes(options.folder, "train");
  const tasks::DetectorOptions of_detector{
      .model = "yolox_nano", .num_classes = std::ssize(set.class_names), .image_size = options.side};
  const auto detector = tasks::find_detector(of_detector.model)->open(of_detector);
  tasks::DetectRowOptions of_rows{.size = options.side, .augment = {.mixup = 0}, .plain_from_epoch = 1};
  std::string text = fmt::format("{{\"rows\":{}", options.rows);
  for (const bool is_training : {false, true}) {
    of_rows.is_training = is_training;
    const Times times = time_rows({set, *detector, of_rows}, options.rows);
    text += fmt::format(",\"{}\":{{\"seconds\":{:.6f},\"cpu_seconds\":{:.6f}}}",
                        is_training ? "mosaic" : "letterbox", times.seconds, times.cpu_seconds);
  }
  return text + "}";
}

}  // namespace hearth::bench
