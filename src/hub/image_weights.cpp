#include "hub/image_weights.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "hub/weights.h"

namespace hearth::hub {
namespace {

/// Prefixes of backbone tensors, longest first.
constexpr auto kPrefixes = std::to_array<std::string_view>({"backbone.body.", "backbone.", "encoder."});
constexpr size_t kMaxNames = 3;

bool has_prefix(std::string_view name) {
  return std::ranges::any_of(kPrefixes, [&](std::string_view prefix) { return name.starts_with(prefix); });
}

std::string module_of(const std::string& name) { return name.substr(0, name.rfind('.')); }

/// Finds a tensor in the files, with or without a backbone prefix; null if there is none.
const io::TensorView* find_in(const io::WeightFiles& files, const std::string& name) {
  if (const io::TensorView* found = files.find(name)) return found;
  for (const std::string_view prefix : kPrefixes) {
    if (!name.starts_with(prefix)) continue;
    if (const io::TensorView* found = files.find(name.substr(prefix.size()))) return found;
  }
  return nullptr;
}

bool fits(const nn::Tensor& tensor, const io::TensorView* found) {
  return found != nullptr && found->shape == tensor.layout.file_shape && is_floating(found->dtype) &&
         dtype_bytes(found->dtype) >= 2;
}

/// Returns advice for the message that a tensor has another shape in the file: the recipe key to change if it
/// is the first convolution, otherwise to use other weights.
std::string advice(const Shape& wanted, const Shape& found) {
  if (wanted.rank() == 4 && found.rank() == 4) {
    if (wanted[2] == 3 && found[2] == 7)
      return "a ResNet has a stem of 7x7 for images from 64 pixels on: try data.image_size=64 or larger";
    if (wanted[2] == 7 && found[2] == 3)
      return "a ResNet has a stem of 3x3 for images below 64 pixels: try data.image_size=32";
    if (wanted[0] == found[0] && wanted[2] == found[2] && wanted[1] == 1 && found[1] == 3)
      return "they are of color images: try data.channels=3";
    if (wanted[2] == found[2] && found[0] < wanted[0])
      return "for a model that was pruned by channels, train the config.yaml in its folder";
  }
  return "try weights of the same model";
}

[[noreturn]] void refuse(const nn::Tensor& tensor, const io::TensorView* found, const io::WeightFiles& files,
                         const fs::path& path) {
  if (found == nullptr)
    user_error("{}: expected a tensor '{}' of the model's backbone{}; try weights of the same model",
               path.string(), tensor.name, did_you_mean(tensor.name, files.names()));
  user_error("{}: expected '{}' with shape {}, found shape {} and dtype {}; {}", path.string(), tensor.name,
             to_string(tensor.layout.file_shape), to_string(found->shape), dtype_name(found->dtype),
             advice(tensor.layout.file_shape, found->shape));
}

/// Lists the first names: "a, b, c and 4 more".
std::string some_of(const std::vector<std::string>& names) {
  const size_t shown = std::min(names.size(), kMaxNames);
  const std::string text = fmt::format("{}", fmt::join(names.begin(), names.begin() + shown, ", "));
  return names.size() > shown ? fmt::format("{} and {} more", text, names.size() - shown) : text;
}

/// Returns the reason why a tensor is not loaded: it is missing or has another shape.
std::string misfit(const nn::Tensor& tensor, const io::TensorView* found) {
  if (found == nullptr) return tensor.name + " is missing";
  return fmt::format("{} {} is not {}", found->name, to_string(found->shape),
                     to_string(tensor.layout.file_shape));
}

std::vector<std::string> beyond(const io::WeightFiles& files, const std::set<std::string>& used) {
  std::vector<std::string> made;
  for (const io::TensorView& view : files.tensors())
    if (!used.contains(view.name) && !view.name.ends_with(".num_batches_tracked")) made.push_back(view.name);
  return made;
}

/// Weight of YOLOX's first convolution. Its 12 input channels are the 3 colors of 4 neighboring pixels (Focus
/// layer).
constexpr std::string_view kYoloxStem = "backbone.backbone.stem.conv.conv.weight";

/// Converts the first convolution of Megvii's YOLOX weights, which are trained on BGR images, to RGB. Returns
/// false if the file is not such a checkpoint, written by torch.save.
bool convert_yolox_to_rgb(io::WeightFiles& files) {
  const io::TensorView* stem = files.find(kYoloxStem);
  if (stem == nullptr || !files.is_torch(0) || stem->shape.rank() != 4 || stem->shape[1] != 12) return false;
  const size_t plane = stem->bytes.size() / static_cast<size_t>(stem->shape[0] * stem->shape[1]);
  std::vector<std::byte> converted(stem->bytes.begin(), stem->bytes.end());
  for (size_t at = 0; plane > 0 && at < converted.size(); at += 3 * plane)
    std::swap_ranges(&converted[at], &converted[at] + plane, &converted[at] + 2 * plane);
  std::vector<io::TensorView> tensors = files.tensors();
  for (io::TensorView& tensor : tensors)
    if (tensor.name == kYoloxStem) tensor.bytes = converted;
  std::vector<std::vector<std::byte>> memory;
  memory.push_back(std::move(converted));
  files.show(std::move(tensors), std::move(memory));
  return true;
}

/// Removes the first part of all tensor names ("model.", which Lightning adds) if this makes them match the
/// names of the model.
void remove_outer_name(io::WeightFiles& files, const std::vector<nn::Tensor>& model) {
  if (files.tensors().empty()) return;
  const std::string& first = files.tensors()[0].name;
  const std::string outer = first.substr(0, first.find('.') + 1);
  const auto has_outer = [&](const io::TensorView& tensor) { return tensor.name.starts_with(outer); };
  const auto is_found = [&](const std::string& prefix) {
    return std::ranges::any_of(model, [&](const nn::Tensor& one) { return files.find(prefix + one.name); });
  };
  if (outer.empty() || !std::ranges::all_of(files.tensors(), has_outer)) return;
  if (std::ranges::any_of(model, [&](const nn::Tensor& one) { return find_in(files, one.name); }) ||
      !is_found(outer))
    return;
  std::vector<io::TensorView> tensors = files.tensors();
  for (io::TensorView& tensor : tensors) tensor.name.erase(0, outer.size());
  files.show(std::move(tensors), {});
}

}  // namespace

std::vector<std::string> load_image_weights(engine::Engine& engine, const fs::path& path) {
  io::WeightFiles files(path);
  const std::vector<nn::Tensor>& tensors = engine.plan().tensors;
  remove_outer_name(files, tensors);
  std::vector<std::string> notes;
  if (convert_yolox_to_rgb(files))
    notes.push_back(
        fmt::format("init: {} is an original YOLOX checkpoint, trained on BGR images: its first convolution "
                    "is converted to RGB",
                    path.string()));
  const bool has_backbone = std::ranges::any_of(tensors, has_prefix, &nn::Tensor::name);
  const std::string last = module_of(tensors.back().name);
  std::set<std::string> used, misfit_modules;
  std::vector<std::string> reasons;
  for (const nn::Tensor& tensor : tensors) {
    const io::TensorView* found = find_in(files, tensor.name);
    if (found != nullptr) used.insert(found->name);
    if (fits(tensor, found)) continue;
    const std::string module = module_of(tensor.name);
    if (has_backbone ? has_prefix(tensor.name) : module != last) refuse(tensor, found, files, path);
    misfit_modules.insert(module);
    reasons.push_back(misfit(tensor, found));
  }
  for (const nn::Tensor& tensor : tensors)
    if (!misfit_modules.contains(module_of(tensor.name)))
      load_tensor(engine, tensor, find_in(files, tensor.name)->name, files, path);
  if (!reasons.empty()) notes.push_back(fmt::format("init: {}: initialized randomly", some_of(reasons)));
  if (const auto more = beyond(files, used); !more.empty())
    notes.push_back(fmt::format("init: {} in {} {} not part of the model: ignored", some_of(more),
                                path.string(), more.size() == 1 ? "is" : "are"));
  return notes;
}

}  // namespace hearth::hub
