#include "hub/prune.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>

namespace hearth::hub {
namespace {

/// Weights with many equal magnitudes, so that ties decide.
std::vector<float> weights_of(size_t count) {
  std::vector<float> weights;
  for (size_t i = 0; i < count; ++i)
    weights.push_back(static_cast<float>(static_cast<int>(i * 2654435761u >> 9 & 31) - 16) / 8);
  return weights;
}

/// Prunes elements [first, first + count) by sorting: the slow, obvious algorithm.
void sort_and_prune(std::vector<float>& weights, const std::vector<float>& scores, size_t first, size_t count,
                    int64_t pruned) {
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), first);
  std::ranges::stable_sort(order, {}, [&](size_t i) { return std::fabs(scores[i]); });
  for (int64_t k = 0; k < pruned; ++k) weights[order[static_cast<size_t>(k)]] = 0;
}

TEST(PruneWeight, ByMagnitudeComparesTheLayer) {
  for (const double sparsity : {0.0, 0.3, 0.5, 0.999, 1.0}) {
    std::vector<float> found = weights_of(7 * 24), expected = found;
    prune_weight(found, 24, {.sparsity = sparsity}, nullptr);
    sort_and_prune(expected, expected, 0, expected.size(), std::lround(sparsity * 168));
    EXPECT_EQ(found, expected) << sparsity;
  }
}

TEST(PruneWeight, ByWandaComparesARow) {
  const std::vector<float> given = weights_of(5 * 24);
  std::vector<float> norms, scores(given);
  for (int j = 0; j < 24; ++j) norms.push_back(static_cast<float>(j % 5) + 0.5F);
  for (size_t i = 0; i < given.size(); ++i) scores[i] = given[i] * norms[i % 24];
  std::vector<float> found = given, expected = given;
  prune_weight(found, 24, {.sparsity = 0.6}, &norms);
  for (size_t row = 0; row < 5; ++row) sort_and_prune(expected, scores, row * 24, 24, 14);
  EXPECT_EQ(found, expected);
}

TEST(PruneWeight, OfGroupsPrunesHalfOfEach) {
  const std::vector<float> given = weights_of(5 * 24);
  for (const PrunePattern pattern : {PrunePattern::n2_of_4, PrunePattern::n4_of_8}) {
    const auto size = static_cast<size_t>(group_size(pattern));
    std::vector<float> found = given, expected = given;
    prune_weight(found, 24, {.sparsity = 0.5, .pattern = pattern}, nullptr);
    for (size_t first = 0; first < given.size(); first += size)
      sort_and_prune(expected, given, first, size, static_cast<int64_t>(size / 2));
    EXPECT_EQ(found, expected);
  }
}

TEST(PruneThreshold, OrdersByValueWithSigns) {
  const std::vector<float> scores = {0.5F, -2, -0.0F, 3, -1};
  const uint64_t kept = prune_threshold(scores, true, 2);
  std::vector<size_t> pruned;
  for (size_t i = 0; i < scores.size(); ++i)
    if (prune_key(scores[i], true, static_cast<uint32_t>(i)) < kept) pruned.push_back(i);
  EXPECT_THAT(pruned, testing::ElementsAre(1, 4));
}

}  // namespace
}  // namespace hearth::hub
