#include "tasks/detect/coco_eval.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>

#include "base/error.h"
#include "tasks/detect/overlap.h"

namespace hearth::tasks {
namespace {

// COCO evaluation. Per class: (1) In each image, detections are matched greedily to ground-truth boxes by
// descending score, for ten IoU thresholds and four area ranges. (2) The matches of all images, merged by
// descending score, give precision as a function of recall. (3) Precision is made monotonic (the maximum at
// any higher recall) and sampled at 101 recalls. (4) The twelve numbers are means over classes, thresholds
// and recalls. Ties are resolved as in pycocotools.

/// Number of IoU thresholds (0.5 to 0.95), and of recalls (0 to 1) at which precision is sampled.
constexpr size_t kOverlaps = 10;
constexpr size_t kRecalls = 101;
constexpr std::array<size_t, 3> kMaxDetections{1, 10, 100};
struct AreaRange {
  const char* name;
  double min_value, max_value;
  bool holds(double area) const { return !(area < min_value || area > max_value); }
};
constexpr double kAny = 1e5 * 1e5;
constexpr std::array<AreaRange, 4> kAreas{
    {{"all", 0, kAny}, {"small", 0, 32 * 32}, {"medium", 32 * 32, 96 * 96}, {"large", 96 * 96, kAny}}};

/// Returns evenly spaced numbers from `first` to `last`, bitwise equal to numpy.linspace.
template <size_t Count>
std::array<double, Count> spaced(double first, double last) {
  const double step = (last - first) / (Count - 1);
  std::array<double, Count> values{};
  for (size_t i = 0; i < Count; ++i) {
    const double distance = static_cast<double>(i) * step;
    values[i] = distance + first;
  }
  values.back() = last;
  return values;
}

/// Boxes of one class in one image, among which detections are matched to ground truth. Detections are sorted
/// by descending score.
struct Cell {
  std::vector<Truth> truths;
  std::vector<Detection> detections;
  std::vector<double> overlaps;  ///< IoU of each detection with each ground-truth box, [detection][truth]
};

/// Result of matching a detection, for each IoU threshold: whether it has a ground-truth box, and whether it
/// is ignored.
struct MatchOutcome {
  double score = 0;
  std::array<bool, kOverlaps> matched{}, ignored{};
};

/// Returns for each class its cells in the order of image ids, without images that lack the class.
std::vector<std::vector<Cell>> make_cells(std::span<const EvaluatedImage> images, int64_t num_classes) {
  std::vector<const EvaluatedImage*> order;
  for (const EvaluatedImage& image : images) order.push_back(&image);
  std::ranges::stable_sort(order, {}, &EvaluatedImage::id);
  std::vector<std::vector<Cell>> classes(static_cast<size_t>(num_classes));
  std::vector<const EvaluatedImage*> last(classes.size());
  for (const EvaluatedImage* image : order) {
    const auto cell_of = [&](int32_t label) -> Cell& {
      HEARTH_CHECK(label >= 0 && label < num_classes);
      const auto k = static_cast<size_t>(label);
      if (last[k] != image) classes[k].emplace_back();
      last[k] = image;
      return classes[k].back();
    };
    for (const Truth& truth : image->truths) cell_of(truth.label).truths.push_back(truth);
    for (const Detection& found : image->detections) cell_of(found.label).detections.push_back(found);
  }
  return classes;
}

void measure_overlaps(Cell& cell) {
  std::ranges::stable_sort(cell.detections, std::ranges::greater(), &Detection::score);
  cell.detections.resize(std::min(cell.detections.size(), kMaxDetections.back()));
  for (const Detection& found : cell.detections)
    for (const Truth& truth : cell.truths) cell.overlaps.push_back(overlap(found, truth, truth.crowd));
}

/// Returns the index of the ground-truth box for a detection: the unmatched box with the highest IoU of at
/// least `min_value` (the last of equal ones); an ignored box only if no other box matches. `overlaps`: IoU
/// with each ground-truth box; `order`: indices of ground-truth boxes, ignored ones last.
std::optional<size_t> match(const double* overlaps, std::span<const size_t> order, const Cell& cell,
                            const std::vector<bool>& ignored, const std::vector<bool>& matched_truths,
                            double min_value) {
  std::optional<size_t> best;
  double max_value = std::min(min_value, 1 - 1e-10);
  for (const size_t truth : order) {
    if (matched_truths[truth] && !cell.truths[truth].crowd) continue;
    if (best && !ignored[*best] && ignored[truth]) break;
    if (overlaps[truth] < max_value) continue;
    max_value = overlaps[truth];
    best = truth;
  }
  return best;
}

/// Matches the detections of a cell and appends their outcomes. Returns the number of the cell's ground-truth
/// boxes that are not ignored.
int64_t match_cell(const Cell& cell, const AreaRange& area, std::span<const double> thresholds,
                   std::vector<MatchOutcome>& outcomes) {
  std::vector<bool> ignored;
  for (const Truth& truth : cell.truths) ignored.push_back(truth.ignored || !area.holds(truth.area));
  std::vector<size_t> order(cell.truths.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t i) { return static_cast<bool>(ignored[i]); });
  const size_t first = outcomes.size();
  for (const Detection& found : cell.detections) outcomes.push_back({.score = found.score});
  for (size_t t = 0; t < thresholds.size(); ++t) {
    std::vector<bool> matched_truths(cell.truths.size());
    for (size_t d = 0; d < cell.detections.size(); ++d) {
      const Detection& found = cell.detections[d];
      MatchOutcome& outcome = outcomes[first + d];
      const auto truth = match(cell.overlaps.data() + d * cell.truths.size(), order, cell, ignored,
                               matched_truths, thresholds[t]);
      outcome.matched.at(t) = truth.has_value();
      outcome.ignored.at(t) = truth ? ignored[*truth] : !area.holds(found.width * found.height);
      if (truth) matched_truths[*truth] = true;
    }
  }
  return std::ranges::count(ignored, false);
}

/// Precision and recall for one class, area range and max number of detections.
struct Curve {
  std::array<double, kRecalls> precision{};
  double recall = 0;
};

/// Computes the precision-recall curve at an IoU threshold. `outcomes`: sorted by descending score;
/// `threshold`: index of the IoU threshold.
Curve trace(std::span<const MatchOutcome* const> outcomes, size_t threshold, int64_t num_truths,
            std::span<const double> recalls) {
  std::vector<double> recall, precision;
  double hits = 0, misses = 0;
  for (const MatchOutcome* outcome : outcomes) {
    if (!outcome->ignored.at(threshold)) ++(outcome->matched.at(threshold) ? hits : misses);
    recall.push_back(hits / static_cast<double>(num_truths));
    precision.push_back(hits / (misses + hits + std::numeric_limits<double>::epsilon()));
  }
  for (size_t i = precision.size(); i-- > 1;) precision[i - 1] = std::max(precision[i - 1], precision[i]);
  Curve curve;
  if (!recall.empty()) curve.recall = recall.back();
  for (size_t r = 0; r < kRecalls; ++r) {
    const auto at = static_cast<size_t>(std::ranges::lower_bound(recall, recalls[r]) - recall.begin());
    if (at < precision.size()) curve.precision.at(r) = precision[at];
  }
  return curve;
}

/// Mean of the added numbers; -1 if there are none.
class Mean {
 public:
  void add(double value) {
    // Kahan summation, which is as accurate as numpy's pairwise summation.
    const double with = value - compensation_;
    const double sum = sum_ + with;
    compensation_ = (sum - sum_) - with;
    sum_ = sum;
    ++count_;
  }
  double value() const { return count_ == 0 ? -1 : sum_ / static_cast<double>(count_); }

 private:
  double sum_ = 0, compensation_ = 0;
  int64_t count_ = 0;
};

/// Means over all classes, from which CocoResult::numbers is filled.
struct Means {
  Mean ap, ap50, ap75;
  std::array<Mean, kAreas.size()> ap_of_area, recall_of_area;
  std::array<Mean, kMaxDetections.size()> recall_of_count;
};

constexpr size_t kAt75 = 5;

void add_curve(const Curve& curve, size_t threshold, size_t area, size_t count, Means& means,
               CocoResult::Class& of, Mean& class_ap, Mean& class_ap50, Mean& class_recall) {
  if (area == 0) means.recall_of_count.at(count).add(curve.recall);
  if (count + 1 != kMaxDetections.size()) return;
  if (area != 0) means.recall_of_area.at(area).add(curve.recall);
  if (area == 0) class_recall.add(curve.recall);
  for (const double precision : curve.precision) {
    if (area != 0) {
      means.ap_of_area.at(area).add(precision);
      continue;
    }
    means.ap.add(precision);
    class_ap.add(precision);
    if (threshold == kAt75) means.ap75.add(precision);
    if (threshold != 0) continue;
    means.ap50.add(precision);
    class_ap50.add(precision);
    of.precision_at_recall.push_back(precision);
  }
}

/// Returns the outcomes of the detections with the highest scores, at most `max_value` per cell, sorted by
/// descending score. `outcomes`: of all cells, one cell after the other; `sizes`: number of detections of
/// each cell.
std::vector<const MatchOutcome*> best_outcomes(const std::vector<MatchOutcome>& outcomes,
                                               std::span<const size_t> sizes, size_t max_value) {
  std::vector<const MatchOutcome*> best;
  size_t first = 0;
  for (const size_t size : sizes) {
    for (size_t d = 0; d < std::min(size, max_value); ++d) best.push_back(&outcomes[first + d]);
    first += size;
  }
  std::ranges::stable_sort(best, std::ranges::greater(),
                           [](const MatchOutcome* outcome) { return outcome->score; });
  return best;
}

CocoResult::Class evaluate_class(std::vector<Cell>& cells, Means& means) {
  static const auto kThresholds = spaced<kOverlaps>(0.5, 0.95);
  static const auto kRecallPoints = spaced<kRecalls>(0, 1);
  std::vector<size_t> sizes;
  for (Cell& cell : cells) {
    measure_overlaps(cell);
    sizes.push_back(cell.detections.size());
  }
  CocoResult::Class of;
  Mean ap, ap50, recall;
  for (size_t a = 0; a < kAreas.size(); ++a) {
    std::vector<MatchOutcome> outcomes;
    int64_t num_truths = 0;
    for (const Cell& cell : cells) num_truths += match_cell(cell, kAreas.at(a), kThresholds, outcomes);
    if (a == 0) of.truths = num_truths;
    if (num_truths == 0) continue;
    for (size_t m = 0; m < kMaxDetections.size(); ++m) {
      if (a != 0 && m + 1 != kMaxDetections.size()) continue;
      const std::vector<const MatchOutcome*> best = best_outcomes(outcomes, sizes, kMaxDetections.at(m));
      for (size_t t = 0; t < kOverlaps; ++t)
        add_curve(trace(best, t, num_truths, kRecallPoints), t, a, m, means, of, ap, ap50, recall);
    }
  }
  of.ap = ap.value();
  of.ap50 = ap50.value();
  of.recall = recall.value();
  return of;
}

}  // namespace

CocoResult evaluate_coco(std::span<const EvaluatedImage> images, int64_t num_classes) {
  std::vector<std::vector<Cell>> classes = make_cells(images, num_classes);
  CocoResult result;
  Means means;
  for (std::vector<Cell>& cells : classes) result.classes.push_back(evaluate_class(cells, means));
  result.numbers = {means.ap.value(),
                    means.ap50.value(),
                    means.ap75.value(),
                    means.ap_of_area[1].value(),
                    means.ap_of_area[2].value(),
                    means.ap_of_area[3].value(),
                    means.recall_of_count[0].value(),
                    means.recall_of_count[1].value(),
                    means.recall_of_count[2].value(),
                    means.recall_of_area[1].value(),
                    means.recall_of_area[2].value(),
                    means.recall_of_area[3].value()};
  return result;
}

std::string coco_summary(const std::array<double, 12>& numbers) {
  constexpr std::array<const char*, 3> kOverlapNames{"0.50:0.95", "0.50", "0.75"};
  std::string text;
  for (size_t i = 0; i < numbers.size(); ++i) {
    const bool precision = i < 6;
    const size_t position = i % 6;
    const bool by_area = position >= 3;
    text += fmt::format(" {:<18} {} @[ IoU={:<9} | area={:>6} | maxDets={:>3} ] = {:.3f}\n",
                        precision ? "Average Precision" : "Average Recall", precision ? "(AP)" : "(AR)",
                        kOverlapNames.at(precision && !by_area ? position : 0),
                        kAreas.at(by_area ? position - 2 : 0).name,
                        kMaxDetections.at(precision || by_area ? 2 : position), numbers.at(i));
  }
  return text;
}

}  // namespace hearth::tasks
