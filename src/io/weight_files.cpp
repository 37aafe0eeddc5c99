#include "io/weight_files.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/foreign.h"
#include "base/gguf_cache.h"
#include "base/hash.h"
#include "base/json.h"
#include "io/zip.h"

namespace hearth::io {
namespace {

constexpr int64_t kMaxIndexBytes = 64 << 20;
const std::string kIndexEnding = ".index.json";

std::map<std::string, std::string> read_index(const fs::path& path) {
  const auto index = parse_json_object<nlohmann::json>(read_file(path, kMaxIndexBytes), path.string());
  if (!index.contains("weight_map") || !index["weight_map"].is_object())
    user_error("{}: the index has no object \"weight_map\"; download it again", path.string());
  std::map<std::string, std::string> files;
  for (const auto& [tensor, file] : index["weight_map"].items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    if (name.empty() || name == ".." || fs::path(name).filename().string() != name)
      user_error("{}: '{}' is in {}, which is no file name in the index's folder; download it again",
                 path.string(), tensor, file.dump());
    files[tensor] = name;
  }
  return files;
}

}  // namespace

const std::vector<TensorView>& WeightFiles::open(const fs::path& path) {
  paths_.push_back(path);
  if (is_gguf_file(path)) {
    files_.emplace_back(std::in_place_type<GgufFile>, path);
  } else if (is_zip(MappedFile(path).bytes())) {
    files_.emplace_back(std::in_place_type<TorchFile>, path);
  } else {
    files_.emplace_back(std::in_place_type<SafetensorsFile>, path);
  }
  return tensors_in(files_.back());
}

const std::vector<TensorView>& WeightFiles::tensors_in(const File& file) {
  return std::visit([](const auto& one) -> const std::vector<TensorView>& { return one.tensors(); }, file);
}

std::map<std::string, std::string> WeightFiles::metadata() const {
  const auto* file = std::get_if<SafetensorsFile>(&files_[0]);
  return file == nullptr ? std::map<std::string, std::string>() : file->metadata();
}

WeightFiles::WeightFiles(const fs::path& file_or_folder) : path_(file_or_folder) {
  const auto name = std::ranges::find_if(kWeightNames, [&](const char* one) {
    return fs::exists(file_or_folder / (one + kIndexEnding)) || fs::exists(file_or_folder / one);
  });
  if (!fs::is_directory(file_or_folder)) {
    tensors_ = open(file_or_folder);
  } else if (name == std::end(kWeightNames)) {
    refuse_unsupported_weights(file_or_folder);
    user_error(
        "{}: no weights found (model.safetensors, pytorch_model.bin or an index of shards); give a model "
        "folder, "
        "or hf:ORG/NAME to download one",
        file_or_folder.string());
  } else if (const fs::path index = file_or_folder / (*name + kIndexEnding); fs::exists(index)) {
    open_shards(index);
  } else {
    tensors_ = open(file_or_folder / *name);
  }
  std::ranges::sort(tensors_, {}, &TensorView::name);
}

void WeightFiles::open_shards(const fs::path& index) {
  const std::map<std::string, std::string> file_of = read_index(index);
  std::set<std::string> names;
  for (const auto& [tensor, file] : file_of) names.insert(file);
  for (const std::string& name : names) {
    const fs::path path = index.parent_path() / name;
    if (!fs::exists(path))
      user_error("{}: the shard {} is missing; download it too", index.string(), path.string());
    for (const TensorView& tensor : open(path)) {
      const auto found = file_of.find(tensor.name);
      if (found != file_of.end() && found->second == name) tensors_.push_back(tensor);
    }
  }
  if (tensors_.size() == file_of.size()) return;
  std::ranges::sort(tensors_, {}, &TensorView::name);
  for (const auto& [tensor, file] : file_of) {
    if (find(tensor) == nullptr)
      user_error("{}: the tensor '{}' is missing in {}; download both again", index.string(), tensor, file);
  }
}

void WeightFiles::show(std::vector<TensorView> tensors, std::vector<std::vector<std::byte>> memory) {
  tensors_ = std::move(tensors);
  memory_ = std::move(memory);
  paths_.resize(1);
  shown_ = true;
  std::ranges::sort(tensors_, {}, &TensorView::name);
}

bool WeightFiles::is_mapped(const TensorView& tensor) const {
  return std::ranges::any_of(files_, [&](const File& file) {
    const auto bytes = std::visit([](const auto& one) { return one.bytes(); }, file);
    return std::less_equal<>()(bytes.data(), tensor.bytes.data()) &&
           std::less<>()(tensor.bytes.data(), bytes.data() + bytes.size());
  });
}

void WeightFiles::release(const TensorView& tensor) const {
  if (!is_mapped(tensor)) return;
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(tensor.bytes.data());
  const uintptr_t past = begin % page;
  // The result is not checked: madvise() is a hint, and if it fails, the memory just stays in use.
  madvise(reinterpret_cast<void*>(begin - past), tensor.bytes.size() + past, MADV_DONTNEED);
}

const TensorView* WeightFiles::find(std::string_view name) const {
  const auto found = std::ranges::lower_bound(tensors_, name, {}, &TensorView::name);
  return found != tensors_.end() && found->name == name ? &*found : nullptr;
}

std::vector<std::string> WeightFiles::names() const {
  std::vector<std::string> names;
  for (const TensorView& tensor : tensors_) names.push_back(tensor.name);
  return names;
}

uint64_t fingerprint(const WeightFiles& files) {
  constexpr size_t kStretches = 16, kStretchBytes = 4096;
  Hasher hasher;
  for (const TensorView& tensor : files.tensors()) {
    const std::string head =
        fmt::format("{} {} {}\n", tensor.name, dtype_name(tensor.dtype), to_string(tensor.shape));
    hasher.update(std::as_bytes(std::span(head)));
    const size_t count = std::min(kStretchBytes, tensor.bytes.size());
    for (size_t i = 0; i < kStretches; ++i)
      hasher.update(tensor.bytes.subspan((tensor.bytes.size() - count) * i / (kStretches - 1), count));
    files.release(tensor);
  }
  return hasher.digest();
}

}  // namespace hearth::io
