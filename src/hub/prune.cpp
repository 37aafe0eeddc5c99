#include "hub/prune.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "base/error.h"
#include "base/run_files.h"
#include "hub/export.h"
#include "hub/weights.h"
#include "models/decoder/decoder.h"

namespace hearth::hub {
namespace {

/// Returns the scores of a row's weights: |W_j| norm_j.
std::vector<float> scores_of(std::span<const float> row, const std::vector<float>* norms) {
  std::vector<float> scores(row.begin(), row.end());
  for (size_t j = 0; j < row.size(); ++j) scores[j] = std::fabs(row[j]) * (norms ? (*norms)[j] : 1.0F);
  return scores;
}

/// Prunes the smallest scores of each group of `size` adjacent elements.
void prune_groups(std::span<float> weights, std::span<const float> scores, size_t size, int64_t count) {
  for (size_t first = 0; first < weights.size(); first += size)
    prune_smallest(weights.subspan(first, size), scores.subspan(first, size), count);
}

bool is_router(const nn::Tensor& weight, const models::DecoderConfig& config) {
  return config.experts.count > 0 && weight.name.ends_with(".gate.weight");
}

void prune_tensor(const nn::Tensor& tensor, std::span<float> values, const PruneOptions& options,
                  const std::vector<float>* norms) {
  const int64_t in_features = tensor.layout.memory_view.back();
  if (nn::is_in_file_order(tensor.layout)) return prune_weight(values, in_features, options, norms);
  std::vector<float> memory(values.size());
  nn::from_file_order(tensor.layout, values.data(), memory.data());
  prune_weight(memory, in_features, options, norms);
  nn::to_file_order(tensor.layout, memory.data(), values.data());
}

}  // namespace

void prune_weight(std::span<float> weight, int64_t in_features, const PruneOptions& options,
                  const std::vector<float>* norms) {
  const auto columns = static_cast<size_t>(in_features);
  const int64_t group = group_size(options.pattern);
  if (norms == nullptr && group == 1)
    return prune_smallest(weight, weight, num_pruned(options.sparsity, std::ssize(weight)));
  for (size_t first = 0; first < weight.size(); first += columns) {
    const std::span<float> row = weight.subspan(first, columns);
    const std::vector<float> scores = scores_of(row, norms);
    if (group == 1) {
      prune_smallest(row, scores, static_cast<int64_t>(options.sparsity * static_cast<double>(in_features)));
    } else {
      prune_groups(row, scores, static_cast<size_t>(group), num_pruned(options.sparsity, group));
    }
  }
}

std::vector<nn::Tensor> linear_weights(const models::DecoderConfig& config) {
  ir::Graph graph;
  nn::Builder builder(graph, nn::Builder::Mode::eval, 0);
  models::build_decoder_for_one_token(builder, config);
  std::vector<nn::Tensor> weights = builder.tensors();
  std::erase_if(weights, [&](const nn::Tensor& tensor) {
    return graph.type(tensor.value).shape.rank() != 2 || tensor.is_table || is_router(tensor, config);
  });
  return weights;
}

bool fits_pattern(const nn::Tensor& weight, PrunePattern pattern) {
  return weight.layout.memory_view.back() % group_size(pattern) == 0;
}

PruneResult prune_folder(const ModelFolder& model, const FolderOptions& folder, const PruneOptions& options,
                         const InputNorms* norms) {
  NewFolder output(folder.out);
  const models::DecoderConfig config = models::read_decoder_config(model.model / kModelConfig);
  ModelWeights weights(model, folder.num_threads);
  PruneResult result;
  for (const nn::Tensor& tensor : linear_weights(config)) {
    if (!fits_pattern(tensor, options.pattern)) {
      ++result.num_left_out;
      continue;
    }
    ++result.num_layers;
    const std::vector<float>* of_layer = norms == nullptr ? nullptr : &norms->at(tensor.name);
    weights.edit(name_in(weights.files(), tensor.name), [=, &result, &options](std::span<float> values) {
      prune_tensor(tensor, values, options, of_layer);
      result.num_weights += std::ssize(values);
      result.num_zeros += std::ranges::count(values, 0.0F);
    });
  }
  if (result.num_layers == 0) {
    user_error("{}: no layer has inputs that are a multiple of {}; use --pattern unstructured",
               model.model.string(), group_size(options.pattern));
  }
  write_model(model, weights, folder, output);
  return result;
}

}  // namespace hearth::hub
