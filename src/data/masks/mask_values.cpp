#include "data/masks/mask_values.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace hearth::data {
namespace {

/// Max number of distinct colors that a histogram counts; files with lossy compression have very many.
constexpr size_t kMaxColors = 1 << 20;
/// Tolerance around class numbers: there is one only if all numbers differ by at least kMinGap; it is at most
/// kMaxTolerance.
constexpr int64_t kMinGap = 16, kMaxTolerance = 32;

/// Min number of distinct values per class at which masks count as damaged by lossy compression or smoothing.
constexpr int64_t kMinDamage = 16;

/// Max number of distinct values that are interpreted as classes if the number of classes is unknown.
constexpr int64_t kMaxGuessed = 64;

std::vector<int64_t> keys_of(const std::map<int64_t, int64_t>& pixels) {
  std::vector<int64_t> keys;
  for (const auto& [number, count] : pixels) keys.push_back(number);
  return keys;
}

/// Returns the numbers first, first + 1, ..., first + count - 1.
std::vector<int64_t> counted(int64_t first, int64_t count) {
  std::vector<int64_t> made;
  for (int64_t i = 0; i < count; ++i) made.push_back(first + i);
  return made;
}

/// Returns the `count` most frequent values of damaged masks, ascending, each more than kMaxTolerance from
/// the others. Empty if there are too few distinct values for damage, or if too many pixels are not close to
/// one of the returned values.
std::vector<int64_t> peaks_of(std::map<int64_t, int64_t> pixels, int64_t count) {
  if (std::ssize(pixels) < kMinDamage * count) return {};
  int64_t far = 0;
  for (const auto& [number, of_number] : pixels) far += of_number;
  const double max_far = kMaxFarShare * static_cast<double>(far);
  std::vector<int64_t> peaks;
  while (std::ssize(peaks) < count) {
    const auto peak = std::ranges::max_element(pixels, {}, [](const auto& entry) { return entry.second; });
    if (peak->second == 0) return {};
    peaks.push_back(peak->first);
    const auto end = pixels.upper_bound(peaks.back() + kMaxTolerance);
    for (auto at = pixels.lower_bound(peaks.back() - kMaxTolerance); at != end; ++at)
      far -= std::exchange(at->second, 0);
  }
  std::ranges::sort(peaks);
  return static_cast<double>(far) <= max_far ? peaks : std::vector<int64_t>();
}

}  // namespace

void MaskHistogram::add(const Image& mask, int64_t index) {
  const auto size = static_cast<size_t>(mask.size().num_pixels());
  num_pixels += mask.size().num_pixels();
  for (size_t i = 0; i < size;) {
    const uint32_t code = mask_code(mask, i);
    size_t end = i + 1;
    while (end < size && mask_code(mask, end) == code) ++end;
    const auto count = static_cast<int64_t>(end - i);
    i = end;
    const auto found = entries.find(code);
    if (found != entries.end()) {
      found->second.pixels += count;
    } else if (entries.size() < kMaxColors + kNumMaskNumbers) {
      entries.emplace(code, Entry{count, index});
    } else {
      uncounted_pixels += count;
    }
  }
}

void MaskHistogram::add(const MaskHistogram& other, int64_t first) {
  num_pixels += other.num_pixels;
  uncounted_pixels += other.uncounted_pixels;
  for (const auto& [code, entry] : other.entries) {
    const auto [at, is_new] = entries.try_emplace(code, Entry{0, entry.first_mask + first});
    at->second.pixels += entry.pixels;
    at->second.first_mask = std::min(at->second.first_mask, entry.first_mask + first);
  }
}

int64_t number_tolerance(const std::vector<int64_t>& numbers) {
  std::vector<int64_t> sorted = numbers;
  std::ranges::sort(sorted);
  int64_t gap = sorted.size() < 2 ? 0 : kNumMaskNumbers;
  for (size_t i = 1; i < sorted.size(); ++i) gap = std::min(gap, sorted[i] - sorted[i - 1]);
  return gap < kMinGap ? 0 : std::min(gap / 4, kMaxTolerance);
}

ClassNumbers choose_class_numbers(const std::map<int64_t, int64_t>& pixels, int64_t num_classes,
                                  int64_t unlabeled) {
  std::map<int64_t, int64_t> left = pixels;
  const bool automatic = unlabeled != kUnlabeledNone && unlabeled != kUnlabeled;
  left.erase(unlabeled);
  const std::map<int64_t, int64_t> all = left;
  if (unlabeled != kUnlabeledNone) left.erase(kUnlabeled);
  const std::vector<int64_t> labeled = keys_of(left), with_unlabeled = keys_of(all);
  if (automatic && num_classes != 1 && labeled == std::vector<int64_t>{0} && with_unlabeled.size() == 2)
    return {with_unlabeled, fmt::format("0 and {} are the only values", with_unlabeled[1])};
  if (labeled.empty()) return {counted(0, num_classes)};
  const int64_t smallest = labeled.front(), largest = labeled.back();
  // If the number of classes is unknown and most numbers up to the largest value occur, the values are class
  // indices.
  const bool are_dense = num_classes == 0 && largest < 2 * std::ssize(labeled);
  const int64_t count = !are_dense ? num_classes : smallest == 0 ? largest + 1 : largest;
  if (largest < count) return {counted(0, count)};
  if (smallest > 0 && largest == count)
    return {counted(1, count), fmt::format("the values are 1 to {}", count)};
  std::vector<int64_t> peaks = peaks_of(all, num_classes == 0 ? 2 : num_classes);
  if (!peaks.empty()) return {std::move(peaks), "nearly all pixels have values near these"};
  const std::string in_order = "in ascending order, as there are as many values as classes";
  if (std::ssize(labeled) == num_classes) return {labeled, in_order};
  if (automatic && std::ssize(with_unlabeled) == num_classes) return {with_unlabeled, in_order};
  if (num_classes == 0 && std::ssize(with_unlabeled) <= kMaxGuessed)
    return {automatic ? with_unlabeled : labeled, "in ascending order"};
  return {};
}

}  // namespace hearth::data
