#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/dtype.h"
#include "base/file.h"
#include "base/function_ref.h"

namespace hearth::io {

using OnnxAttr = std::variant<int64_t, float, std::string, std::vector<int64_t>>;

struct OnnxNode {
  std::string op;
  std::vector<std::string> inputs, outputs;
  std::vector<std::pair<std::string, OnnxAttr>> attrs;
};

/// A constant (initializer), f32 or i64.
struct OnnxTensor {
  std::string name;
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
  int64_t num_bytes() const;
};

/// An input or output of the graph, f32; an axis of -1 is the batch, of any size.
struct OnnxValue {
  std::string name;
  std::vector<int64_t> shape;
};

/// A model in the terms of ONNX (github.com/onnx/onnx, opset 17); nodes stand in the order of execution.
struct OnnxModel {
  std::string name;
  std::vector<OnnxNode> nodes;
  std::vector<OnnxTensor> tensors;
  std::vector<OnnxValue> inputs, outputs;
  std::map<std::string, std::string> metadata;
};

/// Writes it to a file, flushed to disk. bytes_of(i) gives the bytes of tensors[i], one tensor after the
/// other. UserError for more than the 2 GiB that the format (protobuf) can hold.
void write_onnx(const fs::path& path, const OnnxModel& model,
                FunctionRef<std::vector<std::byte>(size_t)> bytes_of);

}  // namespace hearth::io
