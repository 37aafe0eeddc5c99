#pragma once

#include <cstring>
#include <list>
#include <string>
#include <vector>

#include "engine/micro_batch.h"
#include "io/safetensors.h"

namespace hearth {

/// A tensor of a file, in elements that may be read past their end as inputs are.
struct GivenTensor {
  GivenTensor(const io::SafetensorsFile& file, const std::string& name)
      : dtype(file.find(name)->dtype), shape(file.find(name)->shape) {
    const io::TensorView& view = *file.find(name);
    values.resize(static_cast<size_t>(shape.num_elements() + engine::kInputSlack));
    std::memcpy(values.data(), view.bytes.data(), view.bytes.size());
  }
  /// One of those that its first axis counts.
  const float* step(int64_t at) const { return values.data() + at * (shape.num_elements() / shape[0]); }

  DType dtype;
  Shape shape;
  std::vector<float> values;
};

/// What a program has found, for the script that started it.
class Found {
 public:
  void add(const std::string& name, const Shape& shape, std::span<const float> values) {
    const std::vector<float>& kept = memory_.emplace_back(values.begin(), values.end());
    tensors_.push_back(
        {.name = name, .dtype = DType::f32, .shape = shape, .bytes = std::as_bytes(std::span(kept))});
  }
  void write(const fs::path& folder) const { io::write_safetensors(folder / "found.safetensors", tensors_); }

 private:
  std::list<std::vector<float>> memory_;
  std::vector<io::TensorView> tensors_;
};

}  // namespace hearth
