#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/choices.h"
#include "base/path.h"
#include "io/safetensors.h"
#include "nn/module.h"
#include "passes/channels.h"
#include "recipe/recipe.h"

namespace hearth::run {

/// Importance of a channel. norm: mean absolute weight (gamma) of its batch norms (Liu et al. 2017, arXiv
/// 1708.06519); without batch norm as l2. l1, l2: norm of its filters (Li et al. 2016, arXiv 1608.08710).
/// taylor: squared first-order change of the loss when the channel is removed (Molchanov et al. 2019, arXiv
/// 1906.10771).
enum class ChannelScore : uint8_t { norm, l1, l2, taylor };

/// A model whose channels are scored.
struct ScoredModel {
  const ir::Graph& graph;
  const passes::Channels& channels;
  std::span<const nn::Tensor> tensors;
  /// Returns the elements of a tensor, by its index in `tensors`, in memory order.
  std::function<std::vector<float>(size_t tensor)> values;
};

/// Returns the scores `norm`, `l1` or `l2` of all channel sets, divided by the mean of their group, so that
/// they can be compared between groups.
std::vector<double> magnitude_scores(const ScoredModel& model, ChannelScore score);

/// Returns the scores `taylor` of all channel sets, from the gradients of the first training rows of the
/// recipe. `weights`: file that model.values were read from.
std::vector<double> taylor_scores(const ScoredModel& model, const recipe::Recipe& recipe,
                                  const fs::path& weights);

/// Returns, for each set, 1 if it is kept: the sets with the highest scores of each group, widths[i] of group
/// i.
std::vector<char> kept_sets(const passes::Channels& channels, std::span<const double> scores,
                            std::span<const int64_t> widths);

/// Returns the elements of a weight whose channels are kept along all axes, in row-major order. `axes`: sets
/// of each axis, as in passes::Channels.
std::vector<float> kept_elements(std::span<const float> values, const Shape& shape,
                                 const std::vector<std::vector<passes::ChannelSet>>& axes,
                                 std::span<const char> keep);

/// Writes the elements of all weights of `full` whose channels are kept to a safetensors file. `small`:
/// tensors of the smaller model, in the order of full.tensors; `views`: their names and dtypes in the file.
void write_kept_weights(const fs::path& file, const ScoredModel& full, std::span<const nn::Tensor> small,
                        const std::vector<io::TensorView>& views, std::span<const char> keep);

}  // namespace hearth::run

namespace hearth {
template <>
inline constexpr auto kNames<run::ChannelScore> = std::to_array<std::string_view>({"norm", "l1", "l2",
                                                                                   "taylor"});
}  // namespace hearth
