#include "io/onnx_file.h"

#include <bit>

#include "base/error.h"
#include "base/protobuf.h"
#include "base/version.h"

namespace hearth::io {
namespace {

// Constants of onnx.proto: the format version that was current at opset 17, and numbers of element and
// attribute types.
constexpr int64_t kFormat = 8, kOpset = 17;
constexpr int64_t kMaxBytes = (int64_t{1} << 31) - 1;
enum ElementType : int64_t { kFloat = 1, kUint8 = 2, kInt8 = 3, kInt32 = 6, kInt64 = 7 };
enum AttributeType : int64_t { kOneFloat = 1, kOneInt = 2, kOneText = 3, kInts = 7 };

void write_attribute(ProtobufWriter& out, const std::string& name, const OnnxAttr& value) {
  out.bytes(1, name);
  if (const auto* one = std::get_if<int64_t>(&value)) {
    out.integer(3, *one).integer(20, kOneInt);
  } else if (const auto* number = std::get_if<float>(&value)) {
    out.real(2, *number).integer(20, kOneFloat);
  } else if (const auto* words = std::get_if<std::string>(&value)) {
    out.bytes(4, *words).integer(20, kOneText);
  } else {
    for (const int64_t each : std::get<std::vector<int64_t>>(value)) out.integer(8, each);
    out.integer(20, kInts);
  }
}

void write_node(ProtobufWriter& out, const OnnxNode& node) {
  for (const std::string& name : node.inputs) out.bytes(1, name);
  for (const std::string& name : node.outputs) out.bytes(2, name);
  out.bytes(3, node.outputs[0]).bytes(4, node.op);
  for (const auto& attr : node.attrs) out.message(5, [&] { write_attribute(out, attr.first, attr.second); });
}

void write_axis(ProtobufWriter& out, int64_t axis) {
  if (axis < 0) {
    out.bytes(2, "N");
  } else {
    out.integer(1, axis);
  }
}

void write_value_info(ProtobufWriter& out, const OnnxValue& value) {
  const auto shape = [&] {
    for (const int64_t axis : value.shape) out.message(1, [&] { write_axis(out, axis); });
  };
  out.bytes(1, value.name).message(2, [&] {
    out.message(1, [&] { out.integer(1, kFloat).message(2, shape); });
  });
}

ElementType element_type(DType dtype) {
  if (dtype == DType::f32) return kFloat;
  if (dtype == DType::u8) return kUint8;
  if (dtype == DType::i8) return kInt8;
  if (dtype == DType::i32) return kInt32;
  HEARTH_CHECK(dtype == DType::i64);
  return kInt64;
}

/// Returns the encoded tensor field of a graph up to the tensor's data, which is written separately.
std::string tensor_head(const OnnxTensor& tensor) {
  std::string fields, head;
  ProtobufWriter out(fields);
  for (const int64_t axis : tensor.shape) out.integer(1, axis);
  out.integer(2, element_type(tensor.dtype)).bytes(8, tensor.name);
  out.length(9, tensor.num_bytes());
  ProtobufWriter(head).length(5, std::ssize(fields) + tensor.num_bytes());
  return head + fields;
}

/// Returns the encoded graph without its tensors, which follow it in the file.
std::string graph_head(const OnnxModel& model) {
  std::string graph;
  ProtobufWriter out(graph);
  for (const OnnxNode& node : model.nodes) out.message(1, [&] { write_node(out, node); });
  out.bytes(2, model.name);
  for (const OnnxValue& input : model.inputs) out.message(11, [&] { write_value_info(out, input); });
  for (const OnnxValue& output : model.outputs) out.message(12, [&] { write_value_info(out, output); });
  return graph;
}

/// Returns the encoded model up to its last field, the graph, which has `graph_bytes` bytes and is written
/// separately.
std::string model_head(const OnnxModel& model, int64_t graph_bytes) {
  std::string head;
  ProtobufWriter out(head);
  out.integer(1, kFormat).bytes(2, "hearth").bytes(3, hearth::kVersion);
  out.message(8, [&] { out.bytes(1, "").integer(2, kOpset); });
  for (const auto& entry : model.metadata)
    out.message(14, [&] { out.bytes(1, entry.first).bytes(2, entry.second); });
  out.length(7, graph_bytes);
  return head;
}

}  // namespace

int64_t OnnxTensor::num_bytes() const {
  int64_t count = dtype_bytes(dtype);
  for (const int64_t axis : shape) count *= axis;
  return count;
}

void write_onnx(const fs::path& path, const OnnxModel& model,
                FunctionRef<std::vector<std::byte>(size_t)> bytes_of) {
  static_assert(std::endian::native == std::endian::little);
  const std::string graph = graph_head(model);
  std::vector<std::string> heads;
  int64_t size = std::ssize(graph);
  for (const OnnxTensor& tensor : model.tensors) {
    heads.push_back(tensor_head(tensor));
    size += std::ssize(heads.back()) + tensor.num_bytes();
  }
  const std::string start = model_head(model, size);
  if (std::ssize(start) + size > kMaxBytes)
    user_error("{}: expected a model of at most 2 GiB for ONNX, got {} bytes", path.string(), size);
  FileWriter writer(path);
  writer.write(start);
  writer.write(graph);
  for (size_t i = 0; i < model.tensors.size(); ++i) {
    writer.write(heads[i]);
    const std::vector<std::byte> bytes = bytes_of(i);
    HEARTH_CHECK(std::ssize(bytes) == model.tensors[i].num_bytes());
    writer.write(bytes);
  }
  writer.sync_and_close();
}

}  // namespace hearth::io
