#include "run/channel_scores.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "backend/cpu/convert.h"
#include "base/error.h"
#include "engine/inspect.h"
#include "hub/weights.h"
#include "run/from_recipe.h"
#include "tasks/task_def.h"

namespace hearth::run {
namespace {

using passes::Channels;
using passes::ChannelSet;

/// Number of training rows (images, or rows of tokens) whose gradients the score `taylor` uses.
constexpr int64_t kScoredRows = 256;

/// Sum of the values that belong to each channel set, and their number.
struct SetSums {
  explicit SetSums(const Channels& channels)
      : sum(static_cast<size_t>(channels.num_sets), 0), count(static_cast<size_t>(channels.num_sets), 0) {}
  void add(ChannelSet set, double value) {
    sum[ir::index(set)] += value;
    count[ir::index(set)] += 1;
  }
  double mean(ChannelSet set) const { return sum[ir::index(set)] / std::max(1.0, count[ir::index(set)]); }

  std::vector<double> sum, count;
};

size_t index_of(const ScoredModel& model, ir::ValueId weight) {
  const auto found = std::ranges::find(model.tensors, weight, &nn::Tensor::value);
  HEARTH_CHECK(found != model.tensors.end());
  return static_cast<size_t>(found - model.tensors.begin());
}

bool is_followed(const ScoredModel& model, ir::ValueId weight, int axis) {
  return !model.channels.axes[ir::index(weight)][static_cast<size_t>(axis)].empty();
}

/// Calls add(set, element index) for each element of a weight, with its channel along `axis`.
template <typename Add>
void for_each_channel(const ScoredModel& model, ir::ValueId weight, int axis, Add add) {
  const std::vector<ChannelSet>& sets = model.channels.axes[ir::index(weight)][static_cast<size_t>(axis)];
  const Shape& shape = model.graph.type(weight).shape;
  size_t stride = 1;
  for (int later = axis + 1; later < shape.rank(); ++later) stride *= static_cast<size_t>(shape[later]);
  for (size_t i = 0; i < static_cast<size_t>(shape.num_elements()); ++i)
    add(sets[i / stride % sets.size()], i);
}

/// Adds |gamma| of each channel of each batch norm.
void add_norms(SetSums& sums, const ScoredModel& model) {
  for (const ir::Node& node : model.graph.nodes) {
    if (!node.op->name.starts_with("batch_norm") || !is_followed(model, node.inputs[1], 0)) continue;
    const std::vector<float> gamma = model.values(index_of(model, node.inputs[1]));
    for_each_channel(model, node.inputs[1], 0, [&](ChannelSet set, size_t i) {
      sums.add(set, std::abs(static_cast<double>(gamma[i])));
    });
  }
}

/// Adds |w| (power 1) or w^2 (power 2) of the filters that compute each channel.
void add_filters(SetSums& sums, const ScoredModel& model, int power) {
  for (const passes::ChannelLayer& layer : model.channels.layers) {
    if (!is_followed(model, layer.weight, layer.axis)) continue;
    const std::vector<float> weight = model.values(index_of(model, layer.weight));
    for_each_channel(model, layer.weight, layer.axis, [&](ChannelSet set, size_t i) {
      const double value = std::abs(static_cast<double>(weight[i]));
      sums.add(set, power == 1 ? value : value * value);
    });
  }
}

/// Adds the first-order change of the loss when each channel is removed: the sum of value * gradient of
/// everything that computes, scales or shifts it. Filters before a batch norm add 0, because their scale has
/// no effect.
void add_changes(std::vector<double>& changes, const ScoredModel& model, size_t tensor,
                 std::span<const float> gradient) {
  const ir::ValueId weight = model.tensors[tensor].value;
  const auto layer = std::ranges::find(model.channels.layers, weight, &passes::ChannelLayer::weight);
  const bool is_layer = layer != model.channels.layers.end();
  const int axis = is_layer ? layer->axis : 0;
  if ((!is_layer && model.graph.type(weight).shape.rank() != 1) || !is_followed(model, weight, axis)) return;
  const std::vector<float> values = model.values(tensor);
  for_each_channel(model, weight, axis, [&](ChannelSet set, size_t i) {
    changes[ir::index(set)] += static_cast<double>(values[i]) * static_cast<double>(gradient[i]);
  });
}

}  // namespace

std::vector<double> magnitude_scores(const ScoredModel& model, ChannelScore score) {
  SetSums norms(model.channels), filters(model.channels);
  const int power = score == ChannelScore::l1 ? 1 : 2;
  if (score == ChannelScore::norm) add_norms(norms, model);
  add_filters(filters, model, power);
  std::vector<double> scores(static_cast<size_t>(model.channels.num_sets), 0);
  for (const passes::ChannelGroup& group : model.channels.groups) {
    double total = 0;
    for (const ChannelSet set : group.sets) {
      const double filter = power == 1 ? filters.mean(set) : std::sqrt(filters.mean(set));
      total += scores[ir::index(set)] = norms.count[ir::index(set)] > 0 ? norms.mean(set) : filter;
    }
    const double mean = total / static_cast<double>(group.sets.size());
    for (const ChannelSet set : group.sets) scores[ir::index(set)] /= mean > 0 ? mean : 1;
  }
  return scores;
}

std::vector<double> taylor_scores(const ScoredModel& model, const recipe::Recipe& recipe,
                                  const fs::path& weights) {
  const tasks::Job job(recipe);
  const auto task = tasks::task_of(recipe).open(job, 0);
  engine::EngineOptions options = engine_options(job, 0, 1);
  options.row_lengths = task->row_lengths();
  const int64_t batch = std::min(recipe.train.batch, task->num_rows());
  engine::Engine engine(options, std::span(&batch, 1), {});
  engine.initialize();
  hub::load_weights(engine, weights);
  engine::Inspector inspector(engine);
  const auto stream = task->open(data::LoaderPosition{.seed = recipe.seed});
  std::vector<double> scores(static_cast<size_t>(model.channels.num_sets), 0);
  for (int64_t row = 0; row < kScoredRows;) {
    const engine::MicroBatch rows = stream->next();
    row += rows.num_rows;
    std::vector<double> changes(scores.size(), 0);
    inspector.gradients(rows, rows.num_rows, [&](const nn::Tensor& tensor, std::span<const float> in_file) {
      std::vector<float> gradient(in_file.size());
      nn::from_file_order(tensor.layout, in_file.data(), gradient.data());
      const auto found = std::ranges::find(model.tensors, tensor.name, &nn::Tensor::name);
      add_changes(changes, model, static_cast<size_t>(found - model.tensors.begin()), gradient);
    });
    for (size_t set = 0; set < scores.size(); ++set) scores[set] += changes[set] * changes[set];
  }
  return scores;
}

std::vector<char> kept_sets(const Channels& channels, std::span<const double> scores,
                            std::span<const int64_t> widths) {
  std::vector<char> keep(static_cast<size_t>(channels.num_sets), 1);
  for (size_t i = 0; i < widths.size(); ++i) {
    std::vector<ChannelSet> sets = channels.groups[i].sets;
    std::ranges::stable_sort(sets, std::ranges::greater(),
                             [&](ChannelSet set) { return scores[ir::index(set)]; });
    for (auto rank = static_cast<size_t>(widths[i]); rank < sets.size(); ++rank)
      keep[ir::index(sets[rank])] = 0;
  }
  return keep;
}

std::vector<float> kept_elements(std::span<const float> values, const Shape& shape,
                                 const std::vector<std::vector<ChannelSet>>& axes,
                                 std::span<const char> keep) {
  std::vector<float> current(values.begin(), values.end());
  int64_t inner = 1;
  for (int axis = shape.rank(); axis-- > 0;) {
    const std::vector<ChannelSet>& sets = axes[static_cast<size_t>(axis)];
    int64_t length = shape[axis];
    if (!sets.empty()) {
      std::vector<float> kept;
      for (int64_t at = 0; at < std::ssize(current); at += inner) {
        if (keep[ir::index(sets[static_cast<size_t>(at / inner % length)])] == 0) continue;
        kept.insert(kept.end(), current.begin() + at, current.begin() + at + inner);
      }
      current = std::move(kept);
      length = std::ranges::count_if(sets, [&](ChannelSet set) { return keep[ir::index(set)] != 0; });
    }
    inner *= length;
  }
  return current;
}

void write_kept_weights(const fs::path& file, const ScoredModel& full, std::span<const nn::Tensor> small,
                        const std::vector<io::TensorView>& views, std::span<const char> keep) {
  std::vector<float> in_file;
  std::vector<std::byte> bytes;
  io::write_safetensors(file, views, [&](size_t i) -> std::span<const std::byte> {
    const ir::ValueId value = full.tensors[i].value;
    const std::vector<float> kept = kept_elements(full.values(i), full.graph.type(value).shape,
                                                  full.channels.axes[ir::index(value)], keep);
    HEARTH_CHECK(std::ssize(kept) == small[i].layout.file_shape.num_elements());
    in_file.resize(kept.size());
    nn::to_file_order(small[i].layout, kept.data(), in_file.data());
    bytes.resize(in_file.size() * static_cast<size_t>(dtype_bytes(views[i].dtype)));
    cpu::store_f32(views[i].dtype, in_file.data(), bytes.data(), 0, std::ssize(in_file));
    return bytes;
  });
}

}  // namespace hearth::run
