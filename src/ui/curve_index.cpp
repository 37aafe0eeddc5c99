#include "ui/curve_index.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "ui/log_line.h"

namespace hearth::ui {
namespace {

constexpr size_t kMaxCurves = 256;
constexpr size_t kMaxEvents = 2000;
constexpr size_t kMaxEventBytes = 600;
/// Min distance in bytes of stored line offsets, and max bytes of the log that are read again.
constexpr int64_t kOffsetStride = 256 << 10;
constexpr int64_t kMaxRereadBytes = 64 << 20;
/// Min elapsed time between two points of steps_per_second. Elapsed times are logged in milliseconds.
constexpr double kMinTimedSeconds = 0.25;
constexpr const char* kThroughput = "steps_per_second";

void merge_into(CurveBucket& bucket, const CurveBucket& next) {
  const double points = static_cast<double>(bucket.num_points) + static_cast<double>(next.num_points);
  bucket.mean = static_cast<float>((static_cast<double>(bucket.mean) * bucket.num_points +
                                    static_cast<double>(next.mean) * next.num_points) /
                                   points);
  bucket.last_step = next.last_step;
  bucket.min = std::min(bucket.min, next.min);
  bucket.max = std::max(bucket.max, next.max);
  bucket.num_points += next.num_points;
}

/// Merges each group of `group` consecutive buckets.
std::vector<CurveBucket> grouped(std::span<const CurveBucket> buckets, size_t group) {
  std::vector<CurveBucket> merged;
  for (size_t i = 0; i < buckets.size(); ++i) {
    if (i % group == 0) {
      merged.push_back(buckets[i]);
    } else {
      merge_into(merged.back(), buckets[i]);
    }
  }
  return merged;
}

std::span<const CurveBucket> buckets_in(const std::vector<CurveBucket>& buckets, StepRange range) {
  const auto first =
      std::ranges::lower_bound(buckets, range.first, {}, [](const CurveBucket& b) { return b.last_step; });
  const auto last =
      std::ranges::upper_bound(buckets, range.last, {}, [](const CurveBucket& b) { return b.first_step; });
  return first < last ? std::span<const CurveBucket>(first, last) : std::span<const CurveBucket>();
}

}  // namespace

void DownsampledCurve::add(int64_t step, double value, size_t max_buckets) {
  const auto number = static_cast<float>(value);
  if (!std::isfinite(number)) return;
  const CurveBucket point{step, step, number, number, number, 1};
  if (!buckets_.empty() && buckets_.back().num_points < points_per_bucket_) {
    merge_into(buckets_.back(), point);
    return;
  }
  if (buckets_.size() >= max_buckets) {
    buckets_ = grouped(buckets_, 2);
    points_per_bucket_ *= 2;
  }
  buckets_.push_back(point);
}

std::vector<CurveBucket> merged_buckets(const std::vector<CurveBucket>& buckets, StepRange range,
                                        size_t max_buckets) {
  const std::span<const CurveBucket> inside = buckets_in(buckets, range);
  return grouped(inside, std::max<size_t>(1, (inside.size() + max_buckets - 1) / max_buckets));
}

void CurveIndex::clear() {
  ++version_;
  curves_.clear();
  offsets_.clear();
  events_.clear();
  throttle_.clear();
  timed_step_ = -1;
}

bool CurveIndex::read_more(int64_t max_bytes) {
  return log_.read(
      max_bytes, [&] { clear(); }, [&](std::string_view line, int64_t offset) { index_line(line, offset); });
}

void CurveIndex::index_line(std::string_view text, int64_t offset) {
  LogLine line;
  if (!parse_log_line(text, line)) return;
  ++version_;
  if (offsets_.empty() || offset - offsets_.back().offset >= kOffsetStride)
    offsets_.push_back({line.step, offset});
  const auto add = [&](const std::string& key, double value) {
    if (curves_.size() < kMaxCurves || curves_.contains(key))
      curves_[key].add(line.step, value, max_buckets_);
  };
  for (const auto& [key, value] : line.numbers) add(key, value);
  if (line.elapsed_seconds >= 0) {
    const double seconds = line.elapsed_seconds - timed_seconds_;
    if (timed_step_ >= 0 && seconds >= kMinTimedSeconds && line.step > timed_step_)
      add(kThroughput, static_cast<double>(line.step - timed_step_) / seconds);
    if (timed_step_ < 0 || seconds >= kMinTimedSeconds || seconds < 0) {
      timed_step_ = line.step;
      timed_seconds_ = line.elapsed_seconds;
    }
  }
  const auto add_event = [&](std::string_view sentence) {
    if (events_.size() < kMaxEvents) events_.push_back({line.step, shortened(sentence, kMaxEventBytes)});
  };
  if (!line.event.empty()) add_event(line.event);
  for (const auto& [gpu, reason] : line.throttled) {
    std::string& before = throttle_[gpu];
    if (!reason.empty() && reason != before) add_event(fmt::format("GPU {} throttled by {}", gpu, reason));
    before = reason.substr(0, kMaxEventBytes);
  }
}

bool CurveIndex::is_too_coarse(StepRange range, size_t max_points) const {
  return std::ranges::any_of(curves_, [&](const auto& entry) {
    const DownsampledCurve& curve = entry.second;
    return curve.points_per_bucket() > 1 && buckets_in(curve.buckets(), range).size() < max_points;
  });
}

std::map<std::string, std::vector<CurveBucket>> CurveIndex::curves(StepRange range, size_t max_points) const {
  std::map<std::string, std::vector<CurveBucket>> curves;
  if (range.first > range.last) return curves;
  for (const auto& [key, curve] : curves_) curves[key] = merged_buckets(curve.buckets(), range, max_points);
  if (!is_too_coarse(range, max_points)) return curves;
  const auto begin = std::ranges::lower_bound(offsets_, range.first, {}, &LineOffset::step);
  const auto end = std::ranges::upper_bound(offsets_, range.last, {}, &LineOffset::step);
  const int64_t first = begin == offsets_.begin() ? 0 : std::prev(begin)->offset;
  const int64_t last = end == offsets_.end() ? log_.offset() : end->offset;
  if (last - first > kMaxRereadBytes) return curves;
  const std::string part = log_.read_part(first, last);
  std::map<std::string, DownsampledCurve> exact;
  LogLine line;
  for (std::string_view rest = part; !rest.empty();) {
    if (!parse_log_line(take_line(rest), line) || line.step < range.first || line.step > range.last) continue;
    for (const auto& [key, value] : line.numbers)
      if (curves.contains(key)) exact[key].add(line.step, value, 2 * max_points);
  }
  for (const auto& [key, curve] : exact) curves[key] = merged_buckets(curve.buckets(), range, max_points);
  return curves;
}

size_t CurveIndex::memory_bytes() const {
  size_t bytes = offsets_.capacity() * sizeof(LineOffset);
  for (const auto& [key, curve] : curves_)
    bytes += key.capacity() + sizeof(curve) + curve.buckets().capacity() * sizeof(CurveBucket);
  for (const LogEvent& event : events_) bytes += sizeof(event) + event.text.capacity();
  return bytes;
}

}  // namespace hearth::ui
