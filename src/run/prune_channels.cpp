#include "run/prune_channels.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/output.h"
#include "base/run_files.h"
#include "hub/model_folder.h"
#include "hub/weights.h"
#include "recipe/recipe_file.h"
#include "tasks/task_def.h"
#include "tasks/widths.h"

namespace hearth::run {
namespace {

using passes::ChannelGroup;
using passes::Channels;
using passes::ChannelSet;

/// Min fraction of the channels of a layer that is kept, so that no layer becomes a bottleneck.
constexpr double kMinKept = 0.125;

/// The graph of a recipe's model and its tensors.
struct ModelGraph {
  ModelGraph(const recipe::Recipe& recipe, nn::Builder::Mode mode) {
    nn::Builder builder(graph, mode, recipe.seed);
    tasks::objective_of(tasks::Job(recipe))
        ->build(builder, {.num_rows = mode == nn::Builder::Mode::train ? 2 : 1});
    tensors = builder.tensors();
  }
  double flops() const {
    double sum = 0;
    for (const ir::Node& node : graph.nodes) sum += ir::cost_of(graph, node).flops;
    return sum;
  }
  int64_t num_weights() const {
    int64_t count = 0;
    for (const nn::Tensor& tensor : tensors)
      if (tensor.trainable) count += graph.type(tensor.value).shape.num_elements();
    return count;
  }

  ir::Graph graph;
  std::vector<nn::Tensor> tensors;
};

/// Returns the recipe with a number of channels for each group.
recipe::Recipe with_widths(recipe::Recipe recipe, const Channels& channels, std::span<const int64_t> widths) {
  recipe.model.widths.clear();
  for (size_t i = 0; i < widths.size(); ++i)
    recipe.model.widths.push_back(fmt::format("{}={}", channels.groups[i].name(), widths[i]));
  return recipe;
}

/// Chooses the number of channels of each group by a threshold of the scores.
class WidthChoice {
 public:
  WidthChoice(const recipe::Recipe& recipe, const Channels& channels, std::span<const double> scores,
              int64_t multiple)
      : recipe_(recipe), channels_(channels), scores_(scores), multiple_(multiple) {
    for (const ChannelGroup& group : channels.groups)
      for (const ChannelSet set : group.sets) thresholds_.push_back(scores[ir::index(set)]);
    std::ranges::sort(thresholds_);
  }

  /// Returns the widths for the lowest threshold whose model needs at most `max_flops`; empty if none does.
  std::vector<int64_t> widest(double max_flops) const {
    const auto too_large = [&](double threshold) { return flops_at(threshold) > max_flops; };
    const auto found = std::ranges::partition_point(thresholds_, too_large);
    return found == thresholds_.end() ? std::vector<int64_t>() : widths_at(*found);
  }
  double min_flops() const { return flops_at(thresholds_.back()); }

 private:
  std::vector<int64_t> widths_at(double threshold) const {
    std::vector<int64_t> widths;
    for (const ChannelGroup& group : channels_.groups) {
      const int64_t all = std::ssize(group.sets);
      const auto above = std::ranges::count_if(
          group.sets, [&](ChannelSet set) { return scores_[ir::index(set)] >= threshold; });
      const auto min_width = static_cast<int64_t>(std::ceil(kMinKept * static_cast<double>(all)));
      const int64_t kept = std::max<int64_t>(above, min_width);
      widths.push_back(std::min(all, (kept + multiple_ - 1) / multiple_ * multiple_));
    }
    return widths;
  }
  double flops_at(double threshold) const {
    return ModelGraph(with_widths(recipe_, channels_, widths_at(threshold)), nn::Builder::Mode::eval).flops();
  }

  const recipe::Recipe& recipe_;
  const Channels& channels_;
  std::span<const double> scores_;
  int64_t multiple_;
  std::vector<double> thresholds_;  ///< all scores, ascending
};

std::vector<io::TensorView> views_of(const ModelGraph& small) {
  std::vector<io::TensorView> views;
  for (const nn::Tensor& tensor : small.tensors)
    views.push_back(
        {.name = tensor.name, .dtype = DType::f32, .shape = tensor.layout.file_shape, .bytes = {}});
  return views;
}

}  // namespace

PrunedChannels prune_channels(const recipe::Recipe& given, const fs::path& run, const fs::path& out,
                              const ChannelOptions& options) {
  recipe::Recipe recipe = given;
  recipe.distill = {};  // The scores do not depend on the teacher of the run.
  const ModelGraph full(recipe, nn::Builder::Mode::train);
  const Channels channels = passes::find_channels(full.graph);
  if (channels.groups.empty()) user_error("{} has no channels that can be removed", recipe.model.name);
  PrunedChannels made{.weights = hub::run_weights(run, false)};
  const io::WeightFiles files(made.weights);
  const ScoredModel model{
      .graph = full.graph, .channels = channels, .tensors = full.tensors, .values = [&](size_t tensor) {
        return hub::memory_values(files, made.weights, full.tensors[tensor]);
      }};
  const std::vector<double> scores = options.score == ChannelScore::taylor
                                         ? taylor_scores(model, recipe, made.weights)
                                         : magnitude_scores(model, options.score);
  made.flops_before = ModelGraph(recipe, nn::Builder::Mode::eval).flops();
  const WidthChoice choice(recipe, channels, scores, options.multiple);
  const std::vector<int64_t> widths = choice.widest(options.flops * made.flops_before);
  if (widths.empty())
    user_error("--flops {} is too low for {}: it keeps at least {:.3f} of its FLOPs; use a higher value",
               options.flops, recipe.model.name, choice.min_flops() / made.flops_before);

  recipe::Recipe smaller = with_widths(recipe, channels, widths);
  const ModelGraph small(smaller, nn::Builder::Mode::train);
  NewFolder folder(out);
  write_kept_weights(folder.contents() / kModelWeights, model, small.tensors, views_of(small),
                     kept_sets(channels, scores, widths));
  smaller.init = fs::absolute(out / kModelWeights).lexically_normal().string();
  write_file_atomically(folder.contents() / kRunRecipe, recipe::write_recipe(smaller));
  for (const char* classes : {kClassTable, kDetectionClasses})
    if (fs::exists(run / classes))
      write_file_atomically(folder.contents() / classes, read_file(run / classes));
  folder.commit();
  made.flops_after = ModelGraph(smaller, nn::Builder::Mode::eval).flops();
  made.num_weights_before = full.num_weights();
  made.num_weights_after = small.num_weights();
  return made;
}

}  // namespace hearth::run
