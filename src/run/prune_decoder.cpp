#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <ranges>

#include "base/error.h"
#include "base/json.h"
#include "base/output.h"
#include "base/run_files.h"
#include "hub/export.h"
#include "hub/open_weights.h"
#include "hub/weights.h"
#include "models/decoder/decoder.h"
#include "run/prune_channels.h"

namespace hearth::run {
namespace {

using models::DecoderConfig;
using passes::Channels;
using Json = nlohmann::ordered_json;

/// Graph of a decoder for one token, and its tensors.
struct DecoderGraph {
  explicit DecoderGraph(const DecoderConfig& config) {
    nn::Builder builder(graph, nn::Builder::Mode::eval, 0);
    const models::DecoderOutputs out = models::build_decoder_for_one_token(builder, config);
    graph.outputs = {out.hidden, out.head};
    tensors = builder.tensors();
    head_flops = 2 * static_cast<double>(graph.type(out.head).shape.num_elements());
  }
  double flops() const {
    double sum = head_flops;
    for (const ir::Node& node : graph.nodes) sum += ir::cost_of(graph, node).flops;
    return sum;
  }
  int64_t num_weights() const {
    int64_t count = 0;
    for (const nn::Tensor& tensor : tensors) count += graph.type(tensor.value).shape.num_elements();
    return count;
  }

  ir::Graph graph;
  std::vector<nn::Tensor> tensors;
  double head_flops = 0;
};

/// Returns, for each group of channels, true if its sets are attention heads.
std::vector<char> are_heads(const ir::Graph& graph, const Channels& channels) {
  std::vector<char> is_head(static_cast<size_t>(channels.num_sets), 0);
  for (const ir::Node& node : graph.nodes) {
    if (node.op->name != "attention") continue;
    for (const passes::ChannelSet set : channels.axes[ir::index(node.inputs[2])].back())
      is_head[ir::index(set)] = 1;
  }
  std::vector<char> heads;
  for (const passes::ChannelGroup& group : channels.groups)
    heads.push_back(is_head[ir::index(group.sets[0])]);
  return heads;
}

/// The sizes of a decoder that pruning changes.
struct Sizes {
  int64_t kv_heads = 0, columns = 0;
};

DecoderConfig with_sizes(DecoderConfig config, const Sizes& sizes) {
  config.num_heads = sizes.kv_heads * (config.num_heads / config.num_kv_heads);
  config.num_kv_heads = sizes.kv_heads;
  config.intermediate = sizes.columns;
  return config;
}

/// Sets the sizes in config.json under the keys of transformers. Removes quantization, because the written
/// weights are dequantized.
Json with_sizes(Json json, const DecoderConfig& config) {
  json.erase("quantization_config");
  json.erase("compression_config");
  if (config.family == "gpt2") {
    json["n_inner"] = config.intermediate;
    return json;
  }
  json["num_attention_heads"] = config.num_heads;
  json["num_key_value_heads"] = config.num_kv_heads;
  json["head_dim"] = config.head_size;
  json["intermediate_size"] = config.intermediate;
  return json;
}

/// The removable parts of a decoder: true if every layer has the same number of them.
struct Removable {
  Removable(const DecoderConfig& config, const Channels& channels, std::span<const char> heads) {
    int64_t num_heads = 0, num_columns = 0;
    for (size_t i = 0; i < heads.size(); ++i) {
      const int64_t width = std::ssize(channels.groups[i].sets);
      num_heads += heads[i] != 0 && width == config.num_kv_heads ? 1 : 0;
      num_columns += heads[i] == 0 && width == config.intermediate ? 1 : 0;
    }
    // GPT-2's config.json has no size of a head.
    this->heads = num_heads == config.num_layers && config.family != "gpt2";
    columns = num_columns == config.num_layers && config.experts.count == 0;
  }
  bool heads = false, columns = false;
};

/// Returns the largest sizes, in equal proportion, whose model needs at most `max_flops`; nullopt if there
/// are none.
std::optional<Sizes> largest(const DecoderConfig& config, const Removable& removable, double max_flops,
                             int64_t multiple) {
  constexpr int kSteps = 256;
  const auto sizes_at = [&](int step) {
    const double ratio = static_cast<double>(step) / kSteps;
    const auto part = [&](int64_t all, int64_t unit) {
      const int64_t units = std::lround(ratio * static_cast<double>(all) / static_cast<double>(unit));
      return std::min(all, std::max<int64_t>(1, units) * unit);
    };
    return Sizes{.kv_heads = removable.heads ? part(config.num_kv_heads, 1) : config.num_kv_heads,
                 .columns = removable.columns ? part(config.intermediate, multiple) : config.intermediate};
  };
  const auto fits = [&](int step) {
    return DecoderGraph(with_sizes(config, sizes_at(step))).flops() <= max_flops;
  };
  const auto steps = std::views::iota(1, kSteps + 1);
  const auto too_large = std::ranges::partition_point(steps, fits);
  if (too_large == steps.begin()) return std::nullopt;
  return sizes_at(*std::ranges::prev(too_large));
}

/// Returns the dtype in which a tensor is written: that of the file, or bf16 if the file is quantized.
DType written_dtype(const io::TensorView& view) {
  const bool is_plain = view.decoder == nullptr && (view.dtype == DType::f32 || view.dtype == DType::f16);
  return is_plain ? view.dtype : DType::bf16;
}

std::vector<io::TensorView> views_of(const DecoderGraph& small, const io::WeightFiles& files) {
  std::vector<io::TensorView> views;
  for (const nn::Tensor& tensor : small.tensors) {
    const std::string name = hub::name_in(files, tensor.name);
    views.push_back({.name = name,
                     .dtype = written_dtype(*files.find(name)),
                     .shape = tensor.layout.file_shape,
                     .bytes = {}});
  }
  return views;
}

}  // namespace

PrunedChannels prune_decoder(const hub::ModelFolder& model, const recipe::Recipe* recipe, const fs::path& out,
                             const ChannelOptions& options) {
  const fs::path config_file = model.model / kModelConfig;
  const std::string name = model.weights.string();
  if (!model.adapter.empty())
    user_error("{}: merge the adapter before channels are removed: hearth export {} --out FOLDER",
               model.adapter.string(), model.adapter.string());
  if (options.score == ChannelScore::taylor && recipe == nullptr)
    user_error("--score taylor needs the data of a run, but {} is not a run; use --score l2", name);
  const Json json = parse_json_object<Json>(models::read_decoder_json(config_file), config_file.string());
  const DecoderConfig config = models::read_decoder_config(config_file);
  const DecoderGraph full(config);
  const Channels channels = passes::find_channels(full.graph);
  const std::vector<char> heads = are_heads(full.graph, channels);
  const Removable removable(config, channels, heads);
  if (!removable.heads && !removable.columns)
    user_error("{}: models of type {} with this configuration have no heads or columns that can be removed",
               name, config.family);
  PrunedChannels made{
      .weights = model.weights, .flops_before = full.flops(), .num_weights_before = full.num_weights()};
  const auto sizes = largest(config, removable, options.flops * made.flops_before, options.multiple);
  if (!sizes)
    user_error("--flops {} is too low for {}: the parts that stay need more; use a higher value",
               options.flops, name);

  const io::WeightFiles files = hub::open_weights(model.weights);
  const ScoredModel scored{
      .graph = full.graph, .channels = channels, .tensors = full.tensors, .values = [&](size_t i) {
        nn::Tensor tensor = full.tensors[i];
        tensor.name = hub::name_in(files, tensor.name);
        return hub::memory_values(files, model.weights, tensor);
      }};
  const std::vector<double> scores = options.score == ChannelScore::taylor
                                         ? taylor_scores(scored, *recipe, model.weights)
                                         : magnitude_scores(scored, options.score);
  std::vector<int64_t> widths;
  for (size_t i = 0; i < heads.size(); ++i)
    widths.push_back(heads[i] != 0
                         ? (removable.heads ? sizes->kv_heads : std::ssize(channels.groups[i].sets))
                         : (removable.columns ? sizes->columns : std::ssize(channels.groups[i].sets)));
  const DecoderConfig smaller = with_sizes(config, *sizes);
  const DecoderGraph small(smaller);
  NewFolder folder(out);
  write_kept_weights(folder.contents() / kModelWeights, scored, small.tensors, views_of(small, files),
                     kept_sets(channels, scores, widths));
  hub::copy_companions(model, folder.contents());
  write_file_atomically(folder.contents() / kModelConfig, with_sizes(json, smaller).dump(2) + "\n");
  folder.commit();
  made.flops_after = small.flops();
  made.num_weights_after = small.num_weights();
  return made;
}

}  // namespace hearth::run
