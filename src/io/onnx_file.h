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

/// Value of an attribute of a node.
using OnnxAttr = std::variant<int64_t, float, std::string, std::vector<int64_t>>;

/// A node of the graph. Inputs and outputs are names of values; an empty input name is an omitted input.
struct OnnxNode {
  std::string op;
  std::vector<std::string> inputs, outputs;
  std::vector<std::pair<std::string, OnnxAttr>> attrs;
};

/// A constant of the graph (initializer): f32, i64, i32, i8 or u8.
struct OnnxTensor {
  std::string name;
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
  int64_t num_bytes() const;
};

/// An input or output of the graph, f32. An axis of -1 is the batch axis, whose size is not fixed.
struct OnnxValue {
  std::string name;
  std::vector<int64_t> shape;
};

/// An ONNX model (github.com/onnx/onnx, opset 17). Nodes are in the order of execution.
struct OnnxModel {
  std::string name;
  std::vector<OnnxNode> nodes;
  std::vector<OnnxTensor> tensors;
  std::vector<OnnxValue> inputs, outputs;
  std::map<std::string, std::string> metadata;
};

/// Writes a model to a file and flushes it to disk. bytes_of(i) returns the bytes of tensors[i]; it is called
/// once for each i, in ascending order. Throws a UserError above 2 GiB, the limit of protobuf.
void write_onnx(const fs::path& path, const OnnxModel& model,
                FunctionRef<std::vector<std::byte>(size_t)> bytes_of);

}  // namespace hearth::io
