// Format of compressed-tensors 0.20 (github.com/vllm-project/compressed-tensors). A linear layer has tensors
// weight_packed and weight_shape (int4 without rounded inputs) or weight, and weight_scale in bf16 [rows,
// groups].
#include "hub/export_quantized.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/run_files.h"
#include "hub/export.h"
#include "hub/prune.h"
#include "hub/weights.h"
#include "models/decoder/config.h"

namespace hearth::hub {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kCodesPerWord = 8;  ///< int4 codes in 32 bits

/// Format of the weights of one layer.
struct GroupLayout {
  GroupFormat format;
  int64_t group;  ///< number of adjacent weights that share a scale
  bool packed;    ///< true for 8 int4 codes per word instead of a code per byte

  GroupScale scale_of(std::span<const float> values) const {
    const auto [min, max] = std::ranges::minmax(values);
    return group_scale(format, min, max);
  }
  /// Calls use(group index, values, scale) for each group of a row.
  template <typename Use>
  void for_groups(std::span<const float> row, Use use) const {
    const auto size = static_cast<size_t>(group);
    for (size_t i = 0; i < row.size() / size; ++i) {
      const std::span<const float> values = row.subspan(i * size, size);
      use(i, values, scale_of(values));
    }
  }
  void write_scales(std::span<const float> row, std::byte* out) const {
    for_groups(row, [&](size_t index, auto, const GroupScale& scale) {
      store_element(DType::bf16, out, static_cast<int64_t>(index), scale.scale);
    });
  }
  /// Writes a code per byte: an integer or E4M3.
  void write_bytes(std::span<const float> row, std::byte* out) const {
    for_groups(row, [&](size_t, std::span<const float> values, const GroupScale& scale) {
      for (const float value : values) {
        const float code = group_code(format, value, scale);
        *out++ = is_fp8(format) ? static_cast<std::byte>(f32_to_f8_e4m3(code))
                                : static_cast<std::byte>(static_cast<int8_t>(code));
      }
    });
  }
  /// Writes 8 codes of 4 bits per word, plus 8, the first in the lowest bits.
  void write_words(std::span<const float> row, std::byte* out) const {
    std::vector<uint32_t> words((row.size() + kCodesPerWord - 1) / kCodesPerWord);
    size_t column = 0;
    for_groups(row, [&](size_t, std::span<const float> values, const GroupScale& scale) {
      for (const float value : values) {
        const auto code = static_cast<uint32_t>(static_cast<int>(group_code(format, value, scale)) + 8);
        words[column / kCodesPerWord] |= code << (column % kCodesPerWord * 4);
        ++column;
      }
    });
    std::memcpy(out, words.data(), words.size() * sizeof(uint32_t));
  }
};

std::vector<std::byte> bytes_of_shape(const Shape& shape) {
  const std::vector<int64_t> lengths(shape.begin(), shape.end());
  const auto bytes = std::as_bytes(std::span(lengths));
  return {bytes.begin(), bytes.end()};
}

/// Returns the tensors of a quantized linear layer.
std::vector<OutputTensor> quantized(const io::TensorView& source, const GroupLayout& layout) {
  const int64_t rows = source.shape[0], columns = source.shape[1], groups = columns / layout.group;
  const auto output = [&](const char* suffix, DType dtype, const Shape& shape, auto write) {
    return OutputTensor{.view = {.name = source.name + suffix, .dtype = dtype, .shape = shape, .bytes = {}},
                        .encoding = {.row_bytes = shape.back() * dtype_bytes(dtype),
                                     .write = [layout, write](std::span<float> row, std::byte* out) {
                                       (layout.*write)(row, out);
                                     }}};
  };
  const OutputTensor scales = output("_scale", DType::bf16, {rows, groups}, &GroupLayout::write_scales);
  if (!layout.packed) {
    const DType dtype = is_fp8(layout.format) ? DType::f8_e4m3 : DType::i8;
    return {output("", dtype, source.shape, &GroupLayout::write_bytes), scales};
  }
  const int64_t words = (columns + kCodesPerWord - 1) / kCodesPerWord;
  OutputTensor shape{.view = {.name = source.name + "_shape", .dtype = DType::i64, .shape = {2}, .bytes = {}},
                     .bytes = bytes_of_shape(source.shape)};
  return {output("_packed", DType::i32, {rows, words}, &GroupLayout::write_words), scales, std::move(shape)};
}

/// Returns the QuantizationArgs of weights or inputs.
Json arguments_of(GroupFormat format, const char* strategy, int64_t group) {
  const bool is_input = format == GroupFormat::int8_token || format == GroupFormat::fp8_token ||
                        format == GroupFormat::int8_affine;
  return {{"num_bits", format == GroupFormat::int4 ? 4 : 8}, {"type", is_fp8(format) ? "float" : "int"},
          {"symmetric", format != GroupFormat::int8_affine}, {"strategy", strategy},
          {"group_size", group > 0 ? Json(group) : Json()},  {"dynamic", is_input}};
}

/// The package packs codes of layers whose inputs are not rounded.
bool is_packed(const SchemeFormats& formats) { return formats.inputs == GroupFormat::none; }

Json quantization_config(const QatRounding& rounding, const std::vector<std::string>& ignored) {
  const SchemeFormats formats = rounding.formats();
  const bool in_groups = formats.group > 0;
  const Json inputs = formats.inputs == GroupFormat::none ? Json() : arguments_of(formats.inputs, "token", 0);
  const Json group = {
      {"targets", {"Linear"}},
      {"weights", arguments_of(formats.weights, in_groups ? "group" : "channel", formats.group)},
      {"input_activations", inputs},
      {"output_activations", nullptr}};
  return {{"quant_method", "compressed-tensors"},
          {"format", is_packed(formats)        ? "pack-quantized"
                     : is_fp8(formats.weights) ? "float-quantized"
                                               : "int-quantized"},
          {"config_groups", {{"group_0", group}}},
          {"ignore", ignored},
          {"kv_cache_scheme", nullptr},
          {"quantization_status", "compressed"}};
}

/// Names in the files of the linear layers to quantize; others go to result.kept.
std::set<std::string> layers_to_quantize(const ModelFolder& model, const io::WeightFiles& files,
                                         const QatRounding& rounding, QuantizedResult& result) {
  const fs::path file = model.model / kModelConfig;
  std::set<std::string> names;
  for (const nn::Tensor& tensor : linear_weights(models::read_decoder_config(file))) {
    if (nn::is_transposed(tensor.layout))
      user_error("{}: the model stores weights as [in, out], which compressed-tensors does not support",
                 file.string());
    const std::string name = name_in(files, tensor.name);
    if (rounding.fits(tensor.layout.memory_view.back()))
      names.insert(name);
    else
      result.kept.push_back(name.substr(0, name.rfind('.')));
  }
  result.num_quantized = std::ssize(names);
  if (names.empty())
    user_error("{}: no layer has a multiple of {} inputs; set a smaller --group", model.model.string(),
               rounding.formats().group);
  return names;
}

/// Modules with a matrix that is not quantized: head, routers and layers that do not fit.
std::vector<std::string> modules_to_ignore(const io::WeightFiles& files, const std::set<std::string>& names) {
  std::vector<std::string> ignored = {"lm_head"};
  constexpr std::string_view kWeight = ".weight";
  for (const io::TensorView& tensor : files.tensors()) {
    const std::string module =
        tensor.name.substr(0, tensor.name.size() - std::min(tensor.name.size(), kWeight.size()));
    const bool is_embedding = tensor.name.ends_with("embed_tokens.weight");
    if (tensor.shape.rank() == 2 && tensor.name.ends_with(kWeight) && !names.contains(tensor.name) &&
        !is_embedding && module != "lm_head")
      ignored.push_back(module);
  }
  return ignored;
}

}  // namespace

QuantizedResult export_quantized(const ModelFolder& model, const FolderOptions& options,
                                 const QatRounding& rounding) {
  const SchemeFormats formats = rounding.formats();
  HEARTH_CHECK(formats.weights != GroupFormat::none);
  NewFolder folder(options.out);
  ModelWeights weights(model, options.num_threads);
  QuantizedResult result{.num_changed = weights.num_changed()};
  const std::set<std::string> names = layers_to_quantize(model, weights.files(), rounding, result);
  const Replace replace = [&](const io::TensorView& source) {
    if (!names.contains(source.name)) return std::vector<OutputTensor>{};
    return quantized(source, {.format = formats.weights,
                              .group = formats.group > 0 ? formats.group : source.shape[1],
                              .packed = is_packed(formats)});
  };
  write_model(model, weights, options, folder, replace,
              quantization_config(rounding, modules_to_ignore(weights.files(), names)).dump());
  return result;
}

}  // namespace hearth::hub
