#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ui/log_reader.h"

namespace hearth::ui {

/// Summary of consecutive points of a curve.
struct CurveBucket {
  int64_t first_step = 0, last_step = 0;
  float min = 0, max = 0, mean = 0;
  uint32_t num_points = 0;
};

/// Range of training steps, both ends included.
struct StepRange {
  int64_t first = 0;
  int64_t last = INT64_MAX;
};

/// A curve with at most `max_buckets` buckets. When it has this number, neighbors are merged in pairs, and
/// each bucket then contains twice as many points. Points that are not finite are ignored.
class DownsampledCurve {
 public:
  void add(int64_t step, double value, size_t max_buckets);
  const std::vector<CurveBucket>& buckets() const { return buckets_; }
  /// Max number of points in a bucket.
  uint32_t points_per_bucket() const { return points_per_bucket_; }

 private:
  std::vector<CurveBucket> buckets_;
  uint32_t points_per_bucket_ = 1;
};

/// Returns the buckets that overlap `range`. If there are more than `max_buckets`, merges groups of
/// neighbors, all of the same size.
std::vector<CurveBucket> merged_buckets(const std::vector<CurveBucket>& buckets, StepRange range,
                                        size_t max_buckets);

/// Event of a run: its step and a sentence. The start of throttling of a GPU is an event, too.
struct LogEvent {
  int64_t step = 0;
  std::string text;
};

/// Index of a trainer_log.jsonl that another process may be writing: a downsampled curve for each numeric
/// key, the events, and byte offsets from which parts of the log are read again at full resolution. Its
/// memory is bounded for any log. Keys of GPUs have the form "gpu/0/power_w"; "steps_per_second" is computed
/// from the elapsed time. Damaged and incomplete lines are skipped.
class CurveIndex {
 public:
  explicit CurveIndex(fs::path log, size_t max_buckets = 2048)
      : log_(std::move(log)), max_buckets_(max_buckets) {}

  /// Reads up to `max_bytes` of lines that were added since the last call. Starts from the beginning if the
  /// log was replaced or truncated, as a resumed run does. Returns true if more lines are left to read.
  bool read_more(int64_t max_bytes);
  /// Returns a number that increases whenever the contents change.
  uint64_t version() const { return version_; }

  /// Returns all curves by key, each with at most `max_points` buckets. If the index is too coarse for the
  /// range, reads this part of the log again, unless it has more than 64 MiB.
  std::map<std::string, std::vector<CurveBucket>> curves(StepRange range, size_t max_points) const;
  const std::vector<LogEvent>& events() const { return events_; }
  /// Returns the approximate memory of the index.
  size_t memory_bytes() const;

 private:
  /// Position of the start of a line in the log.
  struct LineOffset {
    int64_t step = 0;
    int64_t offset = 0;
  };

  void clear();
  bool is_too_coarse(StepRange range, size_t max_points) const;
  void index_line(std::string_view line, int64_t offset);

  LogReader log_;
  size_t max_buckets_;
  uint64_t version_ = 0;
  std::map<std::string, DownsampledCurve> curves_;
  std::vector<LineOffset> offsets_;
  std::vector<LogEvent> events_;
  std::map<size_t, std::string> throttle_;  ///< last reason by GPU; empty: the GPU is not throttled
  int64_t timed_step_ = -1;                 ///< step and elapsed time of the last point of steps_per_second
  double timed_seconds_ = 0;
};

}  // namespace hearth::ui
