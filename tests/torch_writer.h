#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/safetensors.h"
#include "npz_writer.h"

/// Pickles and files as torch.save writes them. Each function returns the opcodes of one value.
namespace hearth::torch_writer {

inline std::string little(uint32_t value) { return {reinterpret_cast<const char*>(&value), 4}; }
inline std::string text(std::string_view value) {
  return "X" + little(static_cast<uint32_t>(value.size())) + std::string(value);
}
inline std::string integer(int32_t value) { return "J" + little(static_cast<uint32_t>(value)); }
inline std::string name(const std::string& module, const std::string& name) {
  return "c" + module + "\n" + name + "\n";
}
inline std::string tuple(const std::vector<std::string>& items) {
  std::string ops = "(";
  for (const std::string& item : items) ops += item;
  return ops + "t";
}
inline std::string call(const std::string& callee, const std::vector<std::string>& arguments) {
  return callee + tuple(arguments) + "R";
}
inline std::string dict(const std::vector<std::pair<std::string, std::string>>& items) {
  std::string ops = "}(";
  for (const auto& [key, value] : items) ops += text(key) + value;
  return ops + "u";
}
inline std::string storage(const std::string& key, int32_t count, const std::string& type = "FloatStorage") {
  return tuple({text("storage"), name("torch", type), text(key), text("cpu"), integer(count)}) + "Q";
}
/// A tensor in a storage; strides in elements.
inline std::string tensor(const std::string& storage, const std::vector<int32_t>& sizes,
                          const std::vector<int32_t>& strides, int32_t offset = 0) {
  const auto numbers = [](const std::vector<int32_t>& values) {
    std::vector<std::string> items;
    for (const int32_t value : values) items.push_back(integer(value));
    return tuple(items);
  };
  return call(name("torch._utils", "_rebuild_tensor_v2"),
              {storage, integer(offset), numbers(sizes), numbers(strides), "\x89",
               name("collections", "OrderedDict") + ")R"});
}

/// The file of a pickled value and its storages.
inline std::string file(const std::string& value, const std::map<std::string, std::string>& storages,
                        bool deflates = false) {
  ZipWriter zip(deflates);
  zip.add_file("archive/data.pkl", "\x80\x02" + value + ".");
  zip.add_file("archive/byteorder", "little");
  for (const auto& [key, bytes] : storages) zip.add_file("archive/data/" + key, bytes);
  zip.add_file("archive/version", "3\n");
  return zip.bytes();
}
inline std::string floats(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), 4 * values.size()};
}
/// A checkpoint {"epoch": 3, "model": tensors} of tensors of floats, whose names begin with `prefix`.
inline std::string checkpoint(const std::vector<io::TensorView>& tensors, const std::string& prefix) {
  std::vector<std::pair<std::string, std::string>> items;
  std::map<std::string, std::string> storages;
  for (const io::TensorView& view : tensors) {
    const std::string key = std::to_string(storages.size());
    storages[key] = {reinterpret_cast<const char*>(view.bytes.data()), view.bytes.size()};
    const std::vector<int32_t> sizes(view.shape.begin(), view.shape.end());
    std::vector<int32_t> strides(sizes.size(), 1);
    for (size_t i = sizes.size(); i-- > 1;) strides[i - 1] = strides[i] * sizes[i];
    const auto count = static_cast<int32_t>(view.shape.num_elements());
    items.emplace_back(prefix + view.name, tensor(storage(key, count), sizes, strides));
  }
  return file(dict({{"epoch", integer(3)}, {"model", dict(items)}}), storages);
}

}  // namespace hearth::torch_writer
