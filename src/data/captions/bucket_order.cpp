#include "data/captions/bucket_order.h"

#include <algorithm>
#include <functional>
#include <map>

#include "base/error.h"
#include "base/philox.h"

namespace hearth::data {
namespace {

/// Returns element `index` of the random permutation of [0, count) that (key, stream, repeat) selects.
int64_t permuted_in(uint64_t key, uint32_t stream, int64_t repeat, int64_t count, int64_t index) {
  PhiloxSequence random(key, static_cast<uint64_t>(repeat), stream);
  const uint64_t high = random.next();
  return static_cast<int64_t>(
      permuted_index(high << 32 | random.next(), static_cast<uint64_t>(count), static_cast<uint64_t>(index)));
}

}  // namespace

BucketOrder::BucketOrder(std::span<const int64_t> lengths, int64_t batch) : batch_(batch), first_batches_{0} {
  HEARTH_CHECK(!lengths.empty() && batch >= 1);
  std::map<int64_t, std::vector<int64_t>, std::greater<>> rows;
  for (size_t i = 0; i < lengths.size(); ++i) rows[lengths[i]].push_back(static_cast<int64_t>(i));
  for (auto& [length, indices] : rows) {
    lengths_.push_back(length);
    first_batches_.push_back(first_batches_.back() + (std::ssize(indices) + batch - 1) / batch);
    rows_.push_back(std::move(indices));
  }
}

BucketOrder::Draw BucketOrder::at(uint64_t key, int64_t place, bool shuffle) const {
  // Random stream 0 permutes the batches; stream 1 + bucket permutes the rows of a length.
  const int64_t drawn = place / batch_;
  const int64_t number = shuffle ? permuted_in(key, 0, 0, num_batches(), drawn) : drawn;
  const auto after = std::ranges::upper_bound(first_batches_, number);
  const auto bucket = static_cast<size_t>(after - first_batches_.begin() - 1);
  const std::vector<int64_t>& rows = rows_[bucket];
  const int64_t count = std::ssize(rows);
  const int64_t in_bucket = (number - first_batches_[bucket]) * batch_ + place % batch_;
  const int64_t repeat = in_bucket / count;
  const int64_t row =
      shuffle ? permuted_in(key, static_cast<uint32_t>(bucket) + 1, repeat, count, in_bucket % count)
              : in_bucket % count;
  return {.index = rows[static_cast<size_t>(row)], .repeat = repeat, .length = lengths_[bucket]};
}

}  // namespace hearth::data
