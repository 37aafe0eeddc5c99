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

/// A weights file to write: its tensors, and for each the tensor of the input files that it is converted
/// from.
struct Shard {
  std::string name;
  std::vector<io::TensorView> tensors;
  std::vector<const io::TensorView*> sources;
  int64_t bytes = 0;

  void add(const io::TensorView& source, std::optional<DType> type) {
    io::TensorView tensor = source;
    tensor.scale.reset();
    if (source.scale) {
      tensor.dtype = type.value_or(DType::bf16);
    } else if (type && is_floating(source.dtype) && dtype_bytes(source.dtype) > 1) {
      tensor.dtype = *type;
    }
    bytes += num_bytes(tensor);
    tensors.push_back(std::move(tensor));
    sources.push_back(&source);
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
                               const std::string& stem) {
  std::vector<Shard> shards;
  for (size_t i = 0; i < files.paths().size(); ++i) {
    if (i == 0 || options.shard_bytes == 0) shards.push_back({.name = name_of(files, i, stem)});
    for (const io::TensorView& source : files.tensors_of(i)) {
      Shard one;
      one.add(source, options.type);
      const bool full = options.shard_bytes > 0 && shards.back().bytes + one.bytes > options.shard_bytes;
      if (full && !shards.back().tensors.empty()) shards.emplace_back();
      shards.back().add(source, options.type);
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
    for (const io::TensorView& tensor : shard.tensors) map[tensor.name] = shard.name;
  }
  const Json index = {{"metadata", {{"total_size", total}}}, {"weight_map", map}};
  write_file_atomically(folder / (stem + kEnding + ".index.json"), index.dump(2) + "\n");
}

}  // namespace

void write_weights(ModelWeights& weights, const FolderOptions& options, const fs::path& folder,
                   const std::string& stem) {
  const std::vector<Shard> shards = plan_shards(weights.files(), options, stem);
  for (const Shard& shard : shards) {
    io::write_safetensors(
        folder / shard.name, shard.tensors,
        [&](size_t i) { return weights.bytes_of(*shard.sources[i], shard.tensors[i].dtype); },
        options.metadata);
  }
  write_index(shards, folder, stem);
}

}  // namespace hearth::hub
