#include "io/safetensors.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "base/error.h"
#include "base/foreign.h"
#include "base/json_reader.h"

namespace hearth::io {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kMaxHeaderBytes = 100'000'000;
constexpr size_t kMaxShown = 40;
constexpr std::string_view kDamaged = "; the file is incomplete or damaged, download or copy it again";

struct DTypeName {
  const char* name;
  DType dtype;
};
constexpr auto kDTypes = std::to_array<DTypeName>({{"F64", DType::f64},
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
                                                   {"BOOL", DType::boolean}});

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

/// Reads a JSON list of unsigned integers (offsets and axis lengths).
std::vector<uint64_t> read_whole_numbers(JsonReader& reader) {
  std::vector<uint64_t> numbers;
  reader.read_array([&] {
    const std::string_view digits = reader.read_number();
    const auto [end, fault] =
        std::from_chars(digits.data(), digits.data() + digits.size(), numbers.emplace_back());
    if (fault != std::errc() || end != digits.data() + digits.size())
      throw JsonFault{fmt::format("expected whole numbers below 2^64, got {}", digits.substr(0, kMaxShown))};
  });
  return numbers;
}

/// Description of a tensor in the JSON header; empty members were not found.
struct Entry {
  std::optional<std::string> dtype;
  std::optional<std::vector<uint64_t>> shape, offsets;
};

template <typename Value>
void set_once(std::optional<Value>& field, std::string_view key, Value value) {
  if (field) throw JsonFault{fmt::format("expected '{}' once", key)};
  field = std::move(value);
}

Entry read_entry(JsonReader& reader) {
  Entry entry;
  reader.read_object([&](const std::string& key) {
    if (key == "dtype") {
      set_once(entry.dtype, key, reader.read_string());
    } else if (key == "shape") {
      set_once(entry.shape, key, read_whole_numbers(reader));
    } else if (key == "data_offsets") {
      set_once(entry.offsets, key, read_whole_numbers(reader));
    } else {
      reader.skip();
    }
  });
  if (!entry.dtype || !entry.shape || !entry.offsets)
    throw JsonFault{"expected dtype, shape and data_offsets"};
  return entry;
}

Shape shape_of(const std::vector<uint64_t>& lengths) {
  std::vector<int64_t> axes;
  for (const uint64_t length : lengths)
    axes.push_back(static_cast<int64_t>(std::min<uint64_t>(length, INT64_MAX)));
  try {
    return Shape(axes);
  } catch (const UserError& error) {
    throw JsonFault{error.what()};
  }
}

TensorView make_view(std::string name, const Entry& entry, std::span<const std::byte> data,
                     std::string_view where) {
  const DType dtype = dtype_of(*entry.dtype, where, name);
  TensorView view{.name = std::move(name), .dtype = dtype, .shape = shape_of(*entry.shape)};
  const std::vector<uint64_t>& offsets = *entry.offsets;
  if (offsets.size() != 2 || offsets[0] > offsets[1] || offsets[1] > data.size())
    user_error("{}: tensor '{}' lies outside the file's {} bytes of data{}", where, view.name, data.size(),
               kDamaged);
  view.bytes = data.subspan(offsets[0], offsets[1] - offsets[0]);
  const int64_t wanted = view.shape.num_elements() * dtype_bytes(view.dtype);
  if (std::ssize(view.bytes) != wanted) {
    user_error("{}: tensor '{}' {} of {} needs {} bytes, but its offsets span {}{}", where, view.name,
               to_string(view.shape), dtype_name(view.dtype), wanted, view.bytes.size(), kDamaged);
  }
  return view;
}

/// Parses the JSON header and returns its tensors in the header's order.
std::vector<TensorView> read_header(std::string_view text, std::span<const std::byte> data,
                                    std::string_view where) {
  std::vector<TensorView> tensors;
  JsonReader reader(text);
  std::string tensor;
  try {
    reader.read_object([&](std::string name) {
      if (name == "__metadata__") return reader.skip();
      tensor = name;
      const Entry entry = read_entry(reader);
      tensors.push_back(make_view(std::move(name), entry, data, where));
      tensor.clear();
    });
    reader.expect_end();
  } catch (const JsonFault& fault) {
    if (tensor.empty()) user_error("{}: the header: {}", where, fault.sentence);
    user_error("{}: the header at tensor '{}': {}", where, tensor, fault.sentence);
  }
  return tensors;
}

/// Returns the indices of the tensors, sorted by name.
std::vector<uint32_t> order_by_name(const std::vector<TensorView>& tensors) {
  std::vector<uint32_t> order(tensors.size());
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::sort(order, {}, [&](uint32_t i) -> std::string_view { return tensors[i].name; });
  return order;
}

/// Throws a UserError if two tensors have the same name.
void check_names(const std::vector<TensorView>& tensors, std::string_view where) {
  const auto name_of = [&](uint32_t i) -> std::string_view { return tensors[i].name; };
  const std::vector<uint32_t> order = order_by_name(tensors);
  const auto twice = std::ranges::adjacent_find(order, {}, name_of);
  if (twice != order.end())
    user_error("{}: the header has two tensors named '{}'; save it with unique names", where,
               name_of(*twice));
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
      user_error("{}: there is a gap or an overlap before the data of tensor '{}'{}", where, tensor->name,
                 kDamaged);
    next += tensor->bytes.size();
  }
  if (next != data.data() + data.size())
    user_error("{}: {} bytes at its end belong to no tensor{}", where, data.data() + data.size() - next,
               kDamaged);
}

}  // namespace

std::vector<TensorView> parse_safetensors(std::span<const std::byte> bytes, std::string_view where) {
  uint64_t header_bytes = 0;
  refuse_unsupported_weights(bytes, where);
  if (bytes.size() < 8)
    user_error("{}: a safetensors file has at least 8 bytes, but this one has {} bytes{}", where,
               bytes.size(), kDamaged);
  std::memcpy(&header_bytes, bytes.data(), 8);
  if (header_bytes > kMaxHeaderBytes || header_bytes > bytes.size() - 8) {
    user_error("{}: the header should have {} bytes, but the file has {}{}", where, header_bytes,
               bytes.size() - 8, kDamaged);
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + 8, header_bytes);
  const std::span<const std::byte> data = bytes.subspan(8 + header_bytes);
  std::vector<TensorView> tensors = read_header(text, data, where);
  check_names(tensors, where);
  check_no_holes(tensors, data, where);
  return tensors;
}

SafetensorsFile::SafetensorsFile(const fs::path& path)
    : file_(path),
      tensors_(parse_safetensors(file_.bytes(), path.string())),
      by_name_(order_by_name(tensors_)) {}

const TensorView* SafetensorsFile::find(std::string_view name) const {
  const auto name_of = [this](uint32_t i) -> std::string_view { return tensors_[i].name; };
  const auto found = std::ranges::lower_bound(by_name_, name, {}, name_of);
  return found != by_name_.end() && name_of(*found) == name ? &tensors_[*found] : nullptr;
}

std::map<std::string, std::string> SafetensorsFile::metadata() const {
  std::map<std::string, std::string> texts;
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file_.bytes().data(), 8);
  JsonReader reader({reinterpret_cast<const char*>(file_.bytes().data()) + 8, header_bytes});
  reader.read_object([&](const std::string& key) {
    if (key != "__metadata__" || reader.peek() != '{') return reader.skip();
    reader.read_object([&](const std::string& name) {
      if (reader.peek() != '"') return reader.skip();
      texts[name] = reader.read_string();
    });
  });
  return texts;
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
