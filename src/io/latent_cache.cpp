#include "io/latent_cache.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "io/safetensors.h"

namespace hearth::io {
namespace {

constexpr const char* kLatents = "latents";
constexpr const char* kText = "text";
constexpr const char* kPooled = "pooled";
constexpr const char* kHash = "hash";

/// Name and shape of an array in a cache file; `out`: memory that its values are read into.
struct CodedArray {
  const char* name;
  Shape shape;
  std::span<float> out;
};

std::string stem_of(const char* kind, uint64_t content) {
  return fmt::format("{}-{}-", kind, hex64(content));
}

std::string name_of(const LatentKey& key) {
  return fmt::format("{}{}-{}x{}.safetensors", stem_of(kLatents, key.content), hex64(key.model),
                     key.pixels.height, key.pixels.width);
}

std::string name_of(const CaptionKey& key) {
  return fmt::format("{}{}-{}x{}.safetensors", stem_of(kText, key.content), hex64(key.model), key.num_tokens,
                     key.width);
}

std::vector<CodedArray> arrays_of(const CaptionKey& key, std::span<float> text, std::span<float> pooled) {
  std::vector<CodedArray> arrays = {{kText, {key.num_tokens, key.width}, text}};
  if (key.pooled > 0) arrays.push_back({kPooled, {key.pooled}, pooled});
  return arrays;
}

uint64_t hash_of(const std::vector<TensorView>& tensors) {
  Hasher hasher;
  for (const TensorView& tensor : tensors) hasher.update(tensor.bytes);
  return hasher.digest();
}

/// Returns a view of the values for writing: as bf16, converted into `halves`, if `may_halve` and this loses
/// nothing (the lower 16 bits of every value are zero); otherwise as f32.
TensorView tensor_of(const char* name, const Shape& shape, std::span<const float> values, bool may_halve,
                     std::vector<bf16>& halves) {
  HEARTH_CHECK(std::ssize(values) == shape.num_elements());
  const auto is_half = [](float value) { return (std::bit_cast<uint32_t>(value) & 0xFFFFU) == 0; };
  if (!may_halve || !std::ranges::all_of(values, is_half))
    return {.name = name, .dtype = DType::f32, .shape = shape, .bytes = std::as_bytes(values)};
  for (const float value : values) halves.push_back(to_bf16(value));
  return {.name = name, .dtype = DType::bf16, .shape = shape, .bytes = std::as_bytes(std::span(halves))};
}

void write(const fs::path& path, std::vector<TensorView> tensors) {
  make_folder(path.parent_path());
  const std::string hash = hex64(hash_of(tensors));
  replace_file(path, [&](const fs::path& temporary) {
    write_safetensors(temporary, tensors, {{kHash, hash}});
  });
}

/// True if the file has exactly these arrays with these shapes, by its header.
bool fits(const SafetensorsFile& file, std::span<const CodedArray> arrays) {
  return file.tensors().size() == arrays.size() && std::ranges::all_of(arrays, [&](const CodedArray& array) {
           const TensorView* tensor = file.find(array.name);
           return tensor != nullptr && tensor->shape == array.shape &&
                  (tensor->dtype == DType::f32 || tensor->dtype == DType::bf16);
         });
}

bool is_there(const fs::path& path, std::span<const CodedArray> arrays) {
  if (!path_exists(path)) return false;
  try {
    return fits(SafetensorsFile(path), arrays);
  } catch (const UserError&) {
    return false;
  }
}

void copy(const TensorView& tensor, std::span<float> out) {
  HEARTH_CHECK(std::ssize(out) == tensor.shape.num_elements());
  if (tensor.dtype == DType::f32) {
    std::memcpy(out.data(), tensor.bytes.data(), tensor.bytes.size());
    return;
  }
  for (size_t i = 0; i < out.size(); ++i) {
    bf16 half;
    std::memcpy(&half, tensor.bytes.data() + i * sizeof half, sizeof half);
    out[i] = to_f32(half);
  }
}

/// Throws a UserError for a missing cache file. `stem`: start of the names of files with the same content,
/// used to mention one that was computed with other weights.
[[noreturn]] void refuse_missing(const fs::path& path, const std::string& stem) {
  for (const fs::path& other : list_folder(path.parent_path())) {
    if (!other.filename().string().starts_with(stem)) continue;
    user_error(
        "{}: the cache has no {}, only {} of other weights or another size; add the model's encoders to "
        "compute it, or use the model that wrote the cache",
        path.parent_path().string(), path.filename().string(), other.filename().string());
  }
  user_error("{}: the cache has no {}; add the model's encoders to compute it", path.parent_path().string(),
             path.filename().string());
}

void read_arrays(const fs::path& path, const std::string& stem, std::span<const CodedArray> arrays) {
  if (!path_exists(path)) refuse_missing(path, stem);
  const SafetensorsFile file(path);
  if (!fits(file, arrays))
    user_error(
        "{}: the cache file has no array {} {}; another model may have written it; delete it to compute it "
        "again",
        path.string(), arrays[0].name, to_string(arrays[0].shape));
  const auto texts = file.metadata();
  const auto hash = texts.find(kHash);
  if (hash == texts.end() || hash->second != hex64(hash_of(file.tensors())))
    user_error("{}: the file is damaged; delete it to compute it again", path.string());
  for (const CodedArray& array : arrays) copy(*file.find(array.name), array.out);
}

}  // namespace

fs::path LatentCache::path_of(const LatentKey& key) const { return folder_ / name_of(key); }
fs::path LatentCache::path_of(const CaptionKey& key) const { return folder_ / name_of(key); }

bool LatentCache::holds(const LatentKey& key, const Shape& shape) const {
  const CodedArray array{kLatents, shape, {}};
  return is_there(path_of(key), std::span(&array, 1));
}

bool LatentCache::holds(const CaptionKey& key) const {
  return is_there(path_of(key), arrays_of(key, {}, {}));
}

void LatentCache::put(const LatentKey& key, const Shape& shape, std::span<const float> latents) const {
  std::vector<bf16> unused;
  write(path_of(key), {tensor_of(kLatents, shape, latents, false, unused)});
}

void LatentCache::put(const CaptionKey& key, std::span<const float> text,
                      std::span<const float> pooled) const {
  std::vector<bf16> text_halves, pooled_halves;
  std::vector<TensorView> tensors = {tensor_of(kText, {key.num_tokens, key.width}, text, true, text_halves)};
  if (key.pooled > 0) tensors.push_back(tensor_of(kPooled, {key.pooled}, pooled, true, pooled_halves));
  write(path_of(key), std::move(tensors));
}

void LatentCache::read(const LatentKey& key, const Shape& shape, std::span<float> latents) const {
  const CodedArray array{kLatents, shape, latents};
  read_arrays(path_of(key), stem_of(kLatents, key.content), std::span(&array, 1));
}

void LatentCache::read(const CaptionKey& key, std::span<float> text, std::span<float> pooled) const {
  read_arrays(path_of(key), stem_of(kText, key.content), arrays_of(key, text, pooled));
}

}  // namespace hearth::io
