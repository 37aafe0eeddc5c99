#include "train/weights.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "io/weight_files.h"

namespace hearth::train {
namespace {

std::string memory_name(const Engine& engine, const nn::Tensor& tensor, bool average) {
  const std::string averaged = "ema/" + tensor.name;
  return average && engine.layout().find(averaged) != nullptr ? averaged : tensor.name;
}

std::vector<std::string> names_of(const io::WeightFiles& file) {
  std::vector<std::string> names;
  for (const io::TensorView& tensor : file.tensors()) names.push_back(tensor.name);
  return names;
}

}  // namespace

void save_weights(const Engine& engine, const fs::path& path, bool average) {
  std::vector<std::vector<float>> files;
  std::vector<io::TensorView> views;
  for (const nn::Tensor& tensor : engine.tensors()) {
    const std::span<float> memory = engine.values(memory_name(engine, tensor, average));
    files.emplace_back(memory.size());
    nn::to_file_order(tensor.layout, memory.data(), files.back().data());
    views.push_back({.name = tensor.name,
                     .dtype = DType::f32,
                     .shape = tensor.layout.file_shape,
                     .bytes = std::as_bytes(std::span(files.back()))});
  }
  replace_file(path, [&](const fs::path& temporary) { io::write_safetensors(temporary, views); });
}

void load_weights(const Engine& engine, const fs::path& path) {
  const io::WeightFiles file(path);
  for (const nn::Tensor& tensor : engine.tensors()) {
    const io::TensorView* found = file.find(tensor.name);
    if (found == nullptr) {
      user_error("{}: expected a tensor '{}' of the model{}", path.string(), tensor.name,
                 did_you_mean(tensor.name, names_of(file)));
    }
    if (found->shape != tensor.layout.file_shape || !is_floating(found->dtype)) {
      user_error("{}: expected '{}' as {}, found {} of {}", path.string(), tensor.name,
                 to_string(tensor.layout.file_shape), to_string(found->shape), dtype_name(found->dtype));
    }
    std::vector<float> values(static_cast<size_t>(found->shape.num_elements()));
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] =
          static_cast<float>(load_element(found->dtype, found->bytes.data(), static_cast<int64_t>(i)));
    }
    nn::from_file_order(tensor.layout, values.data(), engine.values(tensor.name).data());
    const std::string average = "ema/" + tensor.name;
    if (engine.layout().find(average) == nullptr) continue;
    std::ranges::copy(engine.values(tensor.name), engine.values(average).begin());
  }
}

}  // namespace hearth::train
