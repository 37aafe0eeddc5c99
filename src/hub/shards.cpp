#include "hub/shards.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "hub/model_weights.h"

namespace hearth::hub {
namespace {

using Json = nlohmann::ordered_json;

const std::string kEnding = ".safetensors";

int64_t num_bytes(const io::TensorView& tensor) {
  return tensor.shape.num_elements() * dtype_bytes(tensor.dtype);
}

/// Returns a tensor of the model in the dtype in which it is written.
OutputTensor converted(const io::TensorView& source, std::optional<DType> type) {
  OutputTensor output{.view = source};
  output.view.scale.reset();
  if (source.scale) {
    output.view.dtype = type.value_or(DType::bf16);
  } else if (type && is_floating(source.dtype) && dtype_bytes(source.dtype) > 1) {
    output.view.dtype = *type;
  }
  return output;
}

/// A weights file to write: its tensors, and for each the tensor of the input files that it is computed from.
struct Shard {
  std::string name;
  std::vector<OutputTensor> tensors;
  std::vector<const io::TensorView*> sources;
  int64_t bytes = 0;

  void add(const io::TensorView& source, const FolderOptions& options, const Replace& replace) {
    std::vector<OutputTensor> outputs = replace ? replace(source) : std::vector<OutputTensor>{};
    if (outputs.empty()) outputs.push_back(converted(source, options.type));
    for (OutputTensor& output : outputs) {
      bytes += num_bytes(output.view);
      tensors.push_back(std::move(output));
      sources.push_back(&source);
    }
  }
  std::vector<io::TensorView> views() const {
    std::vector<io::TensorView> views;
    for (const OutputTensor& tensor : tensors) views.push_back(tensor.view);
    return views;
  }
  std::span<const std::byte> bytes_of(ModelWeights& weights, size_t i) const {
    const OutputTensor& tensor = tensors[i];
    if (!tensor.bytes.empty()) return tensor.bytes;
    if (tensor.encoding.write) return weights.encoded(*sources[i], tensor.encoding);
    return weights.bytes_of(*sources[i], tensor.view.dtype);
  }
};

std::string shard_name(const std::string& stem, size_t shard, size_t count) {
  return fmt::format("{}-{:05}-of-{:05}{}", stem, shard + 1, count, kEnding);
}

/// Returns the name of output file number `file`: `stem`.safetensors if there is one file, the name of the
/// input file if that is safetensors, otherwise a numbered shard name.
std::string name_of(const io::WeightFiles& files, size_t file, const std::string& stem) {
  const size_t count = files.paths().size();
  if (count == 1) return stem + kEnding;
  const fs::path& path = files.paths()[file];
  return path.extension() == kEnding ? path.filename().string() : shard_name(stem, file, count);
}

std::vector<Shard> plan_shards(const io::WeightFiles& files, const FolderOptions& options,
                               const std::string& stem, const Replace& replace) {
  std::vector<Shard> shards;
  for (size_t i = 0; i < files.paths().size(); ++i) {
    if (i == 0 || options.shard_bytes == 0) shards.push_back({.name = name_of(files, i, stem)});
    for (const io::TensorView& source : files.tensors_of(i)) {
      Shard one;
      one.add(source, options, replace);
      const bool full = options.shard_bytes > 0 && shards.back().bytes + one.bytes > options.shard_bytes;
      if (full && !shards.back().tensors.empty()) shards.emplace_back();
      shards.back().add(source, options, replace);
    }
  }
  if (options.shard_bytes == 0) return shards;
  for (size_t i = 0; i < shards.size(); ++i) {
    shards[i].name = shards.size() == 1 ? stem + kEnding : shard_name(stem, i, shards.size());
  }
  return shards;
}

void write_index(const std::vector<Shard>& shards, const fs::path& folder, const std::string& stem) {
  if (shards.size() == 1 && shards[0].name == stem + kEnding) return;
  int64_t total = 0;
  Json map = Json::object();
  for (const Shard& shard : shards) {
    total += shard.bytes;
    for (const OutputTensor& tensor : shard.tensors) map[tensor.view.name] = shard.name;
  }
  const Json index = {{"metadata", {{"total_size", total}}}, {"weight_map", map}};
  write_file_atomically(folder / (stem + kEnding + ".index.json"), index.dump(2) + "\n");
}

}  // namespace

void write_weights(ModelWeights& weights, const FolderOptions& options, const fs::path& folder,
                   const std::string& stem, const Replace& replace) {
  const std::vector<Shard> shards = plan_shards(weights.files(), options, stem, replace);
  for (const Shard& shard : shards) {
    io::write_safetensors(
        folder / shard.name, shard.views(), [&](size_t i) { return shard.bytes_of(weights, i); },
        options.metadata);
  }
  write_index(shards, folder, stem);
}

}  // namespace hearth::hub
