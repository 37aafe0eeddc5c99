// Conversion of FLUX weights from the original format to diffusers' names. The converted tensors are views of
// the mapped file: a fused weight is split into ranges of rows, and an fp8 weight gets a scale. Only the
// modulation of the last layer is copied, because its two halves are exchanged.
#include "hub/open_weights.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "base/error.h"
#include "base/run_files.h"
#include "hub/floats.h"
#include "hub/flux_names.h"
#include "hub/gguf_model.h"
#include "hub/quantized_weights.h"

namespace hearth::hub {
namespace {

using io::TensorView;

/// Prefixes that various programs add to a denoiser's tensor names.
constexpr std::string_view kPrefixes[] = {"model.diffusion_model.", "diffusion_model.", ""};
constexpr std::string_view kFirstBlock = "double_blocks.0.";
/// Endings of the names of tensors with the scale of an fp8 weight; kInputScales: with the scale of a layer's
/// input, which is not used.
constexpr std::string_view kScales[] = {".scale_weight", ".weight_scale"};
constexpr std::string_view kInputScales[] = {".scale_input", ".input_scale"};
constexpr std::string_view kMarker = "scaled_fp8";

bool is_8_bit(DType dtype) { return dtype == DType::f8_e4m3 || dtype == DType::f8_e5m2; }

bool ends_with_any(std::string_view name, std::span<const std::string_view> endings) {
  return std::ranges::any_of(endings, [&](std::string_view ending) { return name.ends_with(ending); });
}

/// Returns a view of rows [first, first + count) under another name.
TensorView rows_of(const TensorView& whole, int64_t first, int64_t count, std::string name) {
  TensorView part = whole;
  const auto row_bytes = whole.bytes.size() / static_cast<size_t>(whole.shape[0]);
  std::vector<int64_t> axes(whole.shape.begin(), whole.shape.end());
  axes[0] = count;
  part.name = std::move(name);
  part.shape = Shape(axes);
  part.bytes =
      whole.bytes.subspan(static_cast<size_t>(first) * row_bytes, static_cast<size_t>(count) * row_bytes);
  return part;
}

/// Converts the tensors of a file to diffusers' names and layouts.
class Translation {
 public:
  Translation(const io::WeightFiles& files, std::string where)
      : where_(std::move(where)), tensors_(files.tensors()) {}

  /// Keeps only the tensors whose names start with `prefix`, and removes the prefix.
  void take_prefix(std::string_view prefix) {
    std::erase_if(tensors_, [&](const TensorView& tensor) { return !tensor.name.starts_with(prefix); });
    for (TensorView& tensor : tensors_) tensor.name.erase(0, prefix.size());
  }

  /// Removes the tensors with scales and stores their values as TensorView::scale of the fp8 weights.
  void take_scales() {
    std::map<std::string, float, std::less<>> scales;
    for (const TensorView& tensor : tensors_) {
      for (const std::string_view ending : kScales) {
        if (tensor.name.ends_with(ending))
          scales[tensor.name.substr(0, tensor.name.size() - ending.size())] = scale_in(tensor);
      }
    }
    std::erase_if(tensors_, [](const TensorView& tensor) {
      return tensor.name == kMarker || ends_with_any(tensor.name, kScales) ||
             ends_with_any(tensor.name, kInputScales);
    });
    for (TensorView& tensor : tensors_) {
      if (!is_8_bit(tensor.dtype)) continue;
      const auto found = scales.find(std::string_view(tensor.name).substr(0, tensor.name.rfind('.')));
      tensor.scale = found == scales.end() ? 1 : found->second;
    }
  }

  /// Renames and splits tensors from FLUX's original format to diffusers'.
  void rename() {
    std::vector<std::string> names;
    for (const TensorView& tensor : tensors_) names.push_back(tensor.name);
    const bool flux2 = std::ranges::find(names, "double_stream_modulation_img.lin.weight") != names.end();
    std::map<std::string, FluxModule, std::less<>> modules;
    for (FluxModule& module : flux_modules({.flux2 = flux2,
                              .num_double = num_blocks(names, "double_blocks"),
                              .num_single = num_blocks(names, "single_blocks")}))
      modules.emplace(module.original, std::move(module));
    std::vector<TensorView> renamed;
    for (const TensorView& tensor : tensors_) {
      const auto found = modules.find(std::string_view(tensor.name).substr(0, tensor.name.rfind('.')));
      if (found == modules.end())
        user_error("{}: '{}' is not a tensor of a FLUX transformer", where_, tensor.name);
      add_parts(tensor, found->second, renamed);
    }
    tensors_ = std::move(renamed);
  }

  void show(io::WeightFiles& files) { files.show(std::move(tensors_), std::move(memory_)); }

 private:
  float scale_in(const TensorView& tensor) const {
    if (!is_floating(tensor.dtype) || tensor.shape.num_elements() != 1) {
      user_error("{}: expected one scale per tensor, got '{}' of {}; try a file in bf16", where_, tensor.name,
                 to_string(tensor.shape));
    }
    return floats_of(tensor)[0];
  }

  /// Splits a fused tensor by rows. If there are three parts (qkv), they are equal; otherwise each part has
  /// as many rows as the weight has columns, and the last part (MLP) has the remaining rows.
  void add_parts(const TensorView& tensor, const FluxModule& module, std::vector<TensorView>& parts) {
    std::string ending = tensor.name.substr(module.original.size());
    if (ending == ".scale") ending = ".weight";
    const auto count = static_cast<int64_t>(module.parts.size());
    if (count == 1 && !module.swapped) {
      parts.push_back(tensor);
      parts.back().name = module.parts[0] + ending;
      return;
    }
    const int64_t rows = tensor.shape.rank() == 0 ? 0 : tensor.shape[0];
    if (module.swapped) {
      if (rows % 2 != 0) refuse_rows(tensor, 2);
      parts.push_back(swapped(tensor, module.parts[0] + ending));
      return;
    }
    const int64_t part = count == 3 ? rows / 3 : width_of(tensor, module);
    const int64_t last = rows - part * (count - 1);
    if (part < 1 || last < 1 || (count == 3 && last != part)) refuse_rows(tensor, count);
    for (int64_t i = 0; i < count; ++i) {
      parts.push_back(rows_of(tensor, i * part, i + 1 < count ? part : last,
                              module.parts[static_cast<size_t>(i)] + ending));
    }
  }

  /// Returns the number of rows of query, of key and of value in a tensor that is fused with an MLP: the
  /// number of columns of the module's weight.
  int64_t width_of(const TensorView& tensor, const FluxModule& module) const {
    const std::string weight = module.original + ".weight";
    const auto found = std::ranges::find(tensors_, weight, &TensorView::name);
    if (found == tensors_.end() || found->shape.rank() != 2 || found->shape[0] != tensor.shape[0])
      user_error("{}: expected '{}' as a matrix with as many rows as '{}'", where_, weight, tensor.name);
    return found->shape[1];
  }

  [[noreturn]] void refuse_rows(const TensorView& tensor, int64_t count) const {
    user_error("{}: expected '{}' as the rows of {} tensors, found the shape {}, which cannot be split",
               where_, tensor.name, count, to_string(tensor.shape));
  }

  TensorView swapped(const TensorView& tensor, std::string name) {
    std::vector<std::byte>& memory = memory_.emplace_back(tensor.bytes.begin(), tensor.bytes.end());
    std::rotate(memory.begin(), memory.begin() + static_cast<int64_t>(memory.size() / 2), memory.end());
    TensorView made = tensor;
    made.name = std::move(name);
    made.bytes = memory;
    return made;
  }

  std::string where_;
  std::vector<TensorView> tensors_;
  std::vector<std::vector<std::byte>> memory_;
};

fs::path denoiser_in(const fs::path& path) {
  return fs::exists(path / kDenoiserFolder / kModelConfig) ? path / kDenoiserFolder : path;
}

}  // namespace

io::WeightFiles open_weights(const fs::path& file_or_folder) {
  io::WeightFiles files(denoiser_in(file_or_folder));
  if (files.gguf() != nullptr) {
    show_gguf(files);
    return files;
  }
  if (fs::is_directory(file_or_folder)) show_dequantized(files, file_or_folder);
  const auto prefix = std::ranges::find_if(kPrefixes, [&](std::string_view one) {
    return std::ranges::any_of(files.tensors(), [&](const TensorView& tensor) {
      return tensor.name.starts_with(std::string(one) + std::string(kFirstBlock));
    });
  });
  const bool is_original = prefix != std::end(kPrefixes);
  const bool is_small = files.find("x_embedder.weight") != nullptr &&
                        std::ranges::any_of(files.tensors(), is_8_bit, &TensorView::dtype);
  if (!is_original && !is_small) return files;
  Translation translation(files, files.paths()[0].string());
  if (is_original) translation.take_prefix(*prefix);
  translation.take_scales();
  if (is_original) translation.rename();
  translation.show(files);
  return files;
}

}  // namespace hearth::hub
