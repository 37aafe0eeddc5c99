#include "io/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"

namespace hearth::io {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kMaxHeaderBytes = 100'000'000;

struct DTypeName {
  const char* name;
  DType dtype;
};
constexpr std::array<DTypeName, 12> kDTypes = {{{"F64", DType::f64},
                                                {"F32", DType::f32},
                                                {"BF16", DType::bf16},
                                                {"F16", DType::f16},
                                                {"F8_E4M3", DType::f8_e4m3},
                                                {"F8_E5M2", DType::f8_e5m2},
                                                {"I64", DType::i64},
                                                {"I32", DType::i32},
                                                {"I16", DType::i16},
                                                {"I8", DType::i8},
                                                {"U8", DType::u8},
                                                {"BOOL", DType::boolean}}};

DType dtype_of(const std::string& name, std::string_view where, const std::string& tensor) {
  for (const DTypeName& known : kDTypes) {
    if (name == known.name) return known.dtype;
  }
  user_error("{}: tensor '{}' has dtype {}, which is not supported", where, tensor, name);
}

const char* name_of(DType dtype) {
  for (const DTypeName& known : kDTypes) {
    if (dtype == known.dtype) return known.name;
  }
  internal_error("no safetensors name for {}", dtype_name(dtype));
}

/// Parses the header; a key given twice is refused, as the format asks.
Json parse_header(std::string_view text, std::string_view where) {
  std::vector<std::set<std::string>> keys;
  const auto watch = [&](int, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key && !keys.back().insert(parsed.get<std::string>()).second) {
      user_error("{}: the header names '{}' twice", where, parsed.get<std::string>());
    }
    return true;
  };
  try {
    Json header = Json::parse(text, watch);
    if (!header.is_object()) user_error("{}: expected a JSON object as header", where);
    return header;
  } catch (const Json::exception&) {
    user_error("{}: expected a JSON header of {} bytes, but it does not parse", where, text.size());
  }
}

TensorView parse_tensor(const std::string& name, const Json& entry, std::span<const std::byte> data,
                        std::string_view where) {
  try {
    TensorView view{.name = name, .dtype = dtype_of(entry.at("dtype").get<std::string>(), where, name)};
    const auto axes = entry.at("shape").get<std::vector<int64_t>>();
    const auto offsets = entry.at("data_offsets").get<std::vector<uint64_t>>();
    view.shape = Shape(axes);
    if (offsets.size() != 2 || offsets[0] > offsets[1] || offsets[1] > data.size()) {
      user_error("{}: tensor '{}' lies outside the file's {} bytes of data", where, name, data.size());
    }
    view.bytes = data.subspan(offsets[0], offsets[1] - offsets[0]);
    const int64_t wanted = view.shape.num_elements() * dtype_bytes(view.dtype);
    if (std::ssize(view.bytes) != wanted) {
      user_error("{}: tensor '{}' {} of {} needs {} bytes, its offsets hold {}", where, name,
                 to_string(view.shape), dtype_name(view.dtype), wanted, view.bytes.size());
    }
    return view;
  } catch (const Json::exception&) {
    user_error("{}: expected dtype, shape and data_offsets for tensor '{}'", where, name);
  }
}

void check_no_holes(std::vector<TensorView>& tensors, std::span<const std::byte> data,
                    std::string_view where) {
  std::vector<const TensorView*> order;
  order.reserve(tensors.size());
  for (const TensorView& tensor : tensors) order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](const TensorView* a, const TensorView* b) {
    return std::pair(a->bytes.data(), a->bytes.size()) < std::pair(b->bytes.data(), b->bytes.size());
  });
  const std::byte* next = data.data();
  for (const TensorView* tensor : order) {
    if (tensor->bytes.data() != next)
      user_error("{}: a hole or an overlap before tensor '{}'", where, tensor->name);
    next += tensor->bytes.size();
  }
  if (next != data.data() + data.size())
    user_error("{}: {} bytes belong to no tensor", where, data.data() + data.size() - next);
}

}  // namespace

std::vector<TensorView> parse_safetensors(std::span<const std::byte> bytes, std::string_view where) {
  uint64_t header_bytes = 0;
  if (bytes.size() < 8) user_error("{}: expected a safetensors file, found {} bytes", where, bytes.size());
  std::memcpy(&header_bytes, bytes.data(), 8);
  if (header_bytes > kMaxHeaderBytes || header_bytes > bytes.size() - 8) {
    user_error("{}: the header is said to be {} bytes long, the file holds {}", where, header_bytes,
               bytes.size() - 8);
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + 8, header_bytes);
  const std::span<const std::byte> data = bytes.subspan(8 + header_bytes);
  std::vector<TensorView> tensors;
  const Json header = parse_header(text, where);
  for (const auto& [name, entry] : header.items()) {
    if (name != "__metadata__") tensors.push_back(parse_tensor(name, entry, data, where));
  }
  check_no_holes(tensors, data, where);
  return tensors;
}

SafetensorsFile::SafetensorsFile(const fs::path& path)
    : file_(path), tensors_(parse_safetensors(file_.bytes(), path.string())) {}

const TensorView* SafetensorsFile::find(std::string_view name) const {
  for (const TensorView& tensor : tensors_) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

void write_safetensors(const fs::path& path, const std::vector<TensorView>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  write_safetensors(
      path, tensors, [&](size_t i) { return tensors[i].bytes; }, metadata);
}

void write_safetensors(const fs::path& path, const std::vector<TensorView>& tensors,
                       FunctionRef<std::span<const std::byte>(size_t)> bytes_of,
                       const std::map<std::string, std::string>& metadata) {
  Json header;
  header["__metadata__"] = metadata;
  header["__metadata__"]["format"] = "pt";
  uint64_t offset = 0;
  for (const TensorView& tensor : tensors) {
    Json& entry = header[tensor.name];
    entry["dtype"] = name_of(tensor.dtype);
    entry["shape"] = std::vector<int64_t>(tensor.shape.begin(), tensor.shape.end());
    const auto num_bytes = static_cast<uint64_t>(tensor.shape.num_elements() * dtype_bytes(tensor.dtype));
    entry["data_offsets"] = {offset, offset + num_bytes};
    offset += num_bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t header_bytes = text.size();
  FileWriter writer(path);
  writer.write(std::as_bytes(std::span(&header_bytes, 1)));
  writer.write(text);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const std::span<const std::byte> bytes = bytes_of(i);
    HEARTH_CHECK(std::ssize(bytes) == tensors[i].shape.num_elements() * dtype_bytes(tensors[i].dtype));
    writer.write(bytes);
  }
  writer.sync_and_close();
}

}  // namespace hearth::io
