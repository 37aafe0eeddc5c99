#include "tasks/diffuse/kohya_latents.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "base/error.h"
#include "data/captions/image_files.h"

namespace hearth::tasks {
namespace {

constexpr std::string_view kLatentsEnding = "_flux.npz";
constexpr std::string_view kTextEnding = "_flux_te.npz";
constexpr const char* kText = "t5_out";
constexpr const char* kPooled = "l_pooled";
constexpr const char* kMasked = "apply_t5_attn_mask";

/// Returns folder/NAME if `path` is folder/NAME_WWWWxHHHH_flux.npz, the latents of an image; nullopt for
/// other files.
std::optional<std::string> name_of_latents(const fs::path& path) {
  std::string name = path.string();
  if (!name.ends_with(kLatentsEnding)) return std::nullopt;
  name.resize(name.size() - kLatentsEnding.size());
  const size_t at = name.rfind('_');
  if (at == name.npos || name.find('x', at) == name.npos) return std::nullopt;
  if (name.find_first_not_of("0123456789x", at + 1) != name.npos) return std::nullopt;
  return name.substr(0, at);
}

/// True if `array` is the name of an image's latents; false for latents of the mirrored image and for masks.
bool is_latents(std::string_view array) {
  constexpr std::string_view kStem = "latents_";
  return array == "latents" ||
         (array.starts_with(kStem) && array.find_first_not_of("0123456789x", kStem.size()) == array.npos);
}

/// Returns the file of latents of each image name. Throws a UserError if there are two files for a name.
std::map<std::string, fs::path> find_latents(const fs::path& folder) {
  std::map<std::string, fs::path> found;
  for (const fs::path& path : data::files_below(folder)) {
    const auto name = name_of_latents(path);
    if (!name) continue;
    const auto [other, is_new] = found.emplace(*name, path);
    if (!is_new)
      user_error("{}: {} has latents of the same image; delete the older file", path.string(),
                 other->second.filename().string());
  }
  return found;
}

}  // namespace

KohyaLatents::KohyaLatents(const fs::path& folder, int64_t resolution, const LatentFormat& format)
    : folder_(folder), format_(format) {
  for (const auto& [name, path] : find_latents(folder)) {
    Image image{.latents = path, .text = name + std::string(kTextEnding), .array = {}, .latents_size = {}};
    if (!path_exists(image.text))
      user_error("{}: the file of its caption embeddings, {}, is missing; cache them with sd-scripts too",
                 path.string(), image.text.string());
    choose(image, resolution);
    check_text(image.text);
    const fs::path inside = path.lexically_relative(folder.lexically_normal()).parent_path();
    const int64_t repeats = data::parse_folder_name(inside.filename().string()).repeats;
    image_of_index_.insert(image_of_index_.end(), static_cast<size_t>(repeats), images_.size());
    images_.push_back(std::move(image));
  }
  if (images_.empty())
    user_error("expected caches of sd-scripts (NAME_WWWWxHHHH_flux.npz) in {}, found none", folder.string());
}

void KohyaLatents::choose(Image& image, int64_t resolution) const {
  const io::NpzFile file(image.latents);
  const int64_t max_latents = resolution * resolution / (format_.factor * format_.factor);
  int64_t min_pixels = 0;
  for (const std::string& name : file.names()) {
    if (!is_latents(name)) continue;
    const Shape shape = file.head(name).shape;
    if (shape.rank() != 3 || shape[0] != format_.channels || shape[1] < 1 || shape[2] < 1 ||
        shape[1] % format_.patch != 0 || shape[2] % format_.patch != 0)
      user_error(
          "{}: expected latents [{}, height, width] whose sides are multiples of {}, got {}; the cache may "
          "be another model's",
          image.latents.string(), format_.channels, format_.patch, to_string(shape));
    const Extent size(shape[1], shape[2]);
    min_pixels = min_pixels == 0 ? size.num_pixels() : std::min(min_pixels, size.num_pixels());
    if (size.num_pixels() > max_latents || size.num_pixels() <= image.latents_size.num_pixels()) continue;
    image.array = name;
    image.latents_size = size;
  }
  if (!image.array.empty()) return;
  if (min_pixels == 0) user_error("{}: expected an array 'latents_HxW', found none", image.latents.string());
  user_error(
      "{}: the latents exceed the {}x{} pixels of data.image_size: the smallest have {} pixels; increase "
      "data.image_size, or cache them at this size",
      image.latents.string(), resolution, resolution, min_pixels * format_.factor * format_.factor);
}

void KohyaLatents::check_text(const fs::path& path) const {
  const io::NpzFile file(path);
  const Shape text = file.head(kText).shape, pooled = file.head(kPooled).shape;
  if (text != Shape({format_.num_tokens, format_.text_width}))
    user_error(
        "{}: expected embeddings [{}, {}] as {}, got {}; set diffuse.text_tokens to their number, or use a "
        "cache of this model",
        path.string(), format_.num_tokens, format_.text_width, kText, to_string(text));
  if (pooled != Shape({format_.pooled_width}))
    user_error("{}: expected a vector [{}] as {}, got {}; the cache may be another model's", path.string(),
               format_.pooled_width, kPooled, to_string(pooled));
  if (!file.has(kMasked)) return;
  std::array<float, 1> is_masked{};
  file.read_floats(kMasked, {}, is_masked);
  if (is_masked[0] != 0)
    user_error(
        "{}: the embeddings were computed with an attention mask, which FLUX.1 does not use; cache them "
        "without --apply_t5_attn_mask",
        path.string());
}

void KohyaLatents::read(int64_t index, uint64_t /*key*/, std::span<float> latents) const {
  const Image& from = image(index);
  io::NpzFile(from.latents)
      .read_floats(from.array, {format_.channels, from.latents_size.height, from.latents_size.width},
                   latents);
}

void KohyaLatents::text(int64_t index, std::span<float> text, std::span<float> pooled) const {
  if (index < 0)
    user_error("the caches of sd-scripts in {} lack embeddings of the empty text; set diffuse.dropout=0",
               folder_.string());
  const io::NpzFile file(image(index).text);
  file.read_floats(kText, {format_.num_tokens, format_.text_width}, text);
  file.read_floats(kPooled, {format_.pooled_width}, pooled);
}

}  // namespace hearth::tasks
