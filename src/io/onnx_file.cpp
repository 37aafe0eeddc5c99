#include "io/onnx_file.h"

#include <bit>
#include <cstring>

#include "base/error.h"
#include "base/version.h"

namespace hearth::io {
namespace {

// Of onnx.proto: the version of the format that opset 17 came with, and numbers of types.
constexpr int64_t kFormat = 8, kOpset = 17;
constexpr int64_t kMaxBytes = (int64_t{1} << 31) - 1;
enum ElementType : int64_t { kFloat = 1, kInt64 = 7 };
enum AttributeType : int64_t { kOneFloat = 1, kOneInt = 2, kText = 3, kInts = 7 };

/// A message in protobuf's encoding: fields one after the other.
class Message {
 public:
  Message& integer(uint64_t field, int64_t value) {
    number(field << 3);
    number(static_cast<uint64_t>(value));
    return *this;
  }
  Message& real(uint64_t field, float value) {
    number(field << 3 | 5);
    const auto bits = std::bit_cast<uint32_t>(value);
    for (int shift = 0; shift < 32; shift += 8) bytes_ += static_cast<char>(bits >> shift & 255);
    return *this;
  }
  Message& text(uint64_t field, std::string_view value) {
    length(field, std::ssize(value));
    bytes_ += value;
    return *this;
  }
  Message& message(uint64_t field, const Message& value) { return text(field, value.bytes_); }
  /// The head of a field whose `count` bytes follow.
  Message& length(uint64_t field, int64_t count) {
    number(field << 3 | 2);
    number(static_cast<uint64_t>(count));
    return *this;
  }
  const std::string& bytes() const { return bytes_; }
  int64_t size() const { return std::ssize(bytes_); }

 private:
  void number(uint64_t value) {
    for (; value >= 128; value >>= 7) bytes_ += static_cast<char>(value | 128);
    bytes_ += static_cast<char>(value);
  }
  std::string bytes_;
};

Message attribute(const std::string& name, const OnnxAttr& value) {
  Message made;
  made.text(1, name);
  if (const auto* one = std::get_if<int64_t>(&value)) {
    made.integer(3, *one).integer(20, kOneInt);
  } else if (const auto* number = std::get_if<float>(&value)) {
    made.real(2, *number).integer(20, kOneFloat);
  } else if (const auto* words = std::get_if<std::string>(&value)) {
    made.text(4, *words).integer(20, kText);
  } else {
    for (const int64_t each : std::get<std::vector<int64_t>>(value)) made.integer(8, each);
    made.integer(20, kInts);
  }
  return made;
}

Message node(const OnnxNode& from) {
  Message made;
  for (const std::string& name : from.inputs) made.text(1, name);
  for (const std::string& name : from.outputs) made.text(2, name);
  made.text(3, from.outputs[0]).text(4, from.op);
  for (const auto& [name, value] : from.attrs) made.message(5, attribute(name, value));
  return made;
}

Message value_info(const OnnxValue& from) {
  Message shape;
  for (const int64_t axis : from.shape) {
    Message dimension;
    if (axis < 0) {
      dimension.text(2, "N");
    } else {
      dimension.integer(1, axis);
    }
    shape.message(1, dimension);
  }
  Message tensor, type, made;
  tensor.integer(1, kFloat).message(2, shape);
  type.message(1, tensor);
  made.text(1, from.name).message(2, type);
  return made;
}

/// All of a tensor but its bytes.
Message tensor_head(const OnnxTensor& from) {
  HEARTH_CHECK(from.dtype == DType::f32 || from.dtype == DType::i64);
  Message made;
  for (const int64_t axis : from.shape) made.integer(1, axis);
  made.integer(2, from.dtype == DType::f32 ? kFloat : kInt64).text(8, from.name).length(9, from.num_bytes());
  return made;
}

/// The graph but for its tensors.
Message graph_head(const OnnxModel& model) {
  Message made;
  for (const OnnxNode& each : model.nodes) made.message(1, node(each));
  made.text(2, model.name);
  for (const OnnxValue& each : model.inputs) made.message(11, value_info(each));
  for (const OnnxValue& each : model.outputs) made.message(12, value_info(each));
  return made;
}

Message model_head(const OnnxModel& model) {
  Message opset, made;
  opset.text(1, "").integer(2, kOpset);
  made.integer(1, kFormat).text(2, "hearth").text(3, hearth::kVersion).message(8, opset);
  for (const auto& [key, value] : model.metadata) {
    Message entry;
    entry.text(1, key).text(2, value);
    made.message(14, entry);
  }
  return made;
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
  const Message graph = graph_head(model);
  // Each with the head of its field in the graph.
  std::vector<Message> heads;
  int64_t size = graph.size();
  for (const OnnxTensor& tensor : model.tensors) {
    const Message head = tensor_head(tensor);
    Message field;
    field.length(5, head.size() + tensor.num_bytes());
    size += field.size() + head.size() + tensor.num_bytes();
    heads.push_back(std::move(field));
  }
  Message start = model_head(model);
  start.length(7, size);
  if (start.size() + size > kMaxBytes)
    user_error("{}: expected a model of at most 2 GiB for ONNX, got {} bytes", path.string(), size);
  FileWriter writer(path);
  writer.write(start.bytes());
  writer.write(graph.bytes());
  for (size_t i = 0; i < model.tensors.size(); ++i) {
    writer.write(heads[i].bytes());
    writer.write(tensor_head(model.tensors[i]).bytes());
    const std::vector<std::byte> bytes = bytes_of(i);
    HEARTH_CHECK(std::ssize(bytes) == model.tensors[i].num_bytes());
    writer.write(bytes);
  }
  writer.sync_and_close();
}

}  // namespace hearth::io
