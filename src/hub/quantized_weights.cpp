// Quantized checkpoints have several tensors per linear layer. Their names and shapes determine the layout;
// the config contains the other settings. Tensors for the quantization of activations and of the key-value
// cache in an inference engine are ignored.
#include "hub/quantized_weights.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "base/error.h"
#include "base/json.h"
#include "base/run_files.h"
#include "hub/floats.h"
#include "hub/quantized_decoders.h"
#include "models/decoder/config.h"
#include "ops/update/dynamic_map.h"

namespace hearth::hub {
namespace {

using io::TensorView;
using Json = nlohmann::ordered_json;
using ops::Quantization;

/// Max size in bytes of the JSON that describes a 4-bit matrix (quant_state).
constexpr int64_t kMaxStateBytes = 1 << 16;
/// Suffixes of the names of tensors that are ignored: scales of activations and of the key-value cache.
constexpr std::string_view kUnused[] = {".input_scale",      ".input_zero_point", ".input_global_scale",
                                        ".activation_scale", ".output_scale",     ".k_scale",
                                        ".v_scale",          ".q_scale",          ".weight_format"};

/// Decoder of bitsandbytes' 4-bit formats: codes in row-major order, an absmax per block, a table of values.
class FourBitDecoder final : public StoredQuantization {
 public:
  struct Parts {
    std::array<float, 16> values{};
    int64_t block = 64;
    TensorView absmax;                 ///< of dtype u8 if it is quantized itself
    std::vector<float> nested_values;  ///< values of the 256 codes of absmax; empty: absmax is f32
    std::vector<float> nested_absmax;
    int64_t nested_block = ops::kBlockAbsmax;
    float offset = 0;
  };
  explicit FourBitDecoder(Parts parts) : parts_(std::move(parts)) {}

  void decode(const TensorView& view, int64_t from, std::span<float> values) const override {
    for (size_t i = 0; i < values.size();) {
      const int64_t at = from + static_cast<int64_t>(i), block = at / parts_.block;
      const auto end = std::min(values.size(), i + static_cast<size_t>((block + 1) * parts_.block - at));
      const float scale = absmax(block);
      for (; i < end; ++i) {
        const auto index = static_cast<size_t>(from) + i;
        const auto both = static_cast<unsigned>(view.bytes[index / 2]);
        values[i] = parts_.values[index % 2 == 0 ? both >> 4 : both & 15] * scale;
      }
    }
  }

  bool copy_parts(const TensorView& view, Quantization kind, std::span<void* const> parts) const override {
    const auto& map = ops::dynamic_map(true);
    if (kind != Quantization::nf4 || parts_.values != ops::kNormalFloat4 || parts_.block != ops::kBlock4 ||
        parts_.nested_block != ops::kBlockAbsmax || !std::ranges::equal(parts_.nested_values, map))
      return false;
    std::memcpy(parts[0], view.bytes.data(), view.bytes.size());
    std::memcpy(parts[1], parts_.absmax.bytes.data(), parts_.absmax.bytes.size());
    std::memcpy(parts[2], parts_.nested_absmax.data(), parts_.nested_absmax.size() * sizeof(float));
    std::memcpy(parts[3], &parts_.offset, sizeof parts_.offset);
    return true;
  }

 private:
  float absmax(int64_t block) const {
    if (parts_.nested_values.empty())
      return static_cast<float>(load_element(parts_.absmax.dtype, parts_.absmax.bytes.data(), block));
    const auto code = static_cast<uint8_t>(parts_.absmax.bytes[static_cast<size_t>(block)]);
    const float product =
        parts_.nested_values[code] * parts_.nested_absmax[static_cast<size_t>(block / parts_.nested_block)];
    return product + parts_.offset;
  }

  Parts parts_;
};

/// Decoder of bitsandbytes' int8: the maximum of each row (SCB) divided by 127 is its scale.
class RowInt8Decoder final : public StoredQuantization {
 public:
  explicit RowInt8Decoder(const QuantizedModule& module)
      : decoder_(byte_decoder(module, ops::kInverse127)), scales_(*module.scales) {}
  void decode(const TensorView& view, int64_t from, std::span<float> values) const override {
    decoder_->decode(view, from, values);
  }
  bool copy_parts(const TensorView& view, Quantization kind, std::span<void* const> parts) const override {
    if (kind != Quantization::int8) return false;
    std::memcpy(parts[0], view.bytes.data(), view.bytes.size());
    std::memcpy(parts[1], scales_.bytes.data(), scales_.bytes.size());
    return true;
  }

 private:
  std::shared_ptr<const io::TensorDecoder> decoder_;
  TensorView scales_;
};

/// Reader of one checkpoint.
class Checkpoint {
 public:
  Checkpoint(const io::WeightFiles& files, const Json& config, std::string method)
      : files_(files), config_(config), method_(std::move(method)), where_(files.path().string()) {}

  std::vector<TensorView> dequantized() {
    for (const TensorView& tensor : files_.tensors()) add(tensor);
    if (used_.empty() && text("format", "") != "dense")
      user_error(
          "{}: the config describes weights quantized by {}, but no tensor is quantized; download both again",
          where_, method_);
    std::erase_if(shown_, [&](const TensorView& view) {
      return used_.contains(view.name) || std::ranges::any_of(kUnused, [&](std::string_view ending) {
               return view.name.ends_with(ending);
             });
    });
    return std::move(shown_);
  }

 private:
  void add(const TensorView& tensor) {
    const size_t dot = tensor.name.rfind('.');
    const std::string module = tensor.name.substr(0, dot),
                      part = tensor.name.substr(std::min(dot, tensor.name.size()));
    if (part == ".qweight" && (method_ == "gptq" || method_ == "awq")) return add_int32(tensor, module);
    if (part == ".weight_packed") return add_packed(tensor, module);
    const bool is_byte = dtype_bytes(tensor.dtype) == 1;
    if (part == ".weight" && is_byte && tensor.shape.rank() == 2) return add_bytes(tensor, module);
    shown_.push_back(tensor);
  }

  std::optional<TensorView> take(const std::string& name) {
    const TensorView* found = files_.find(name);
    if (found == nullptr) return std::nullopt;
    used_.insert(name);
    return *found;
  }
  TensorView need(const std::string& name) {
    std::optional<TensorView> found = take(name);
    if (!found) user_error("{}: the tensor '{}' is missing; download the model again", where_, name);
    return std::move(*found);
  }

  QuantizedModule module_of(const TensorView& codes, const std::string& name, int64_t rows, int64_t columns) {
    return {.where = fmt::format("{}: '{}'", where_, name), .rows = rows, .columns = columns, .codes = codes};
  }

  void show(const TensorView& codes, const std::string& module, Shape shape, DType dtype,
            std::shared_ptr<const io::TensorDecoder> decoder) {
    TensorView view = codes;
    view.name = module + ".weight";
    view.shape = shape;
    view.dtype = dtype == DType::f16 ? DType::f16 : DType::bf16;
    view.decoder = std::move(decoder);
    shown_.push_back(std::move(view));
  }

  int64_t number(const char* key, int64_t default_value) const {
    const auto found = config_.find(key);
    return found != config_.end() && found->is_number_integer() ? found->get<int64_t>() : default_value;
  }
  std::string text(const char* key, const char* default_value) const {
    const auto found = config_.find(key);
    return found != config_.end() && found->is_string() ? found->get<std::string>() : default_value;
  }

  void add_int32(const TensorView& codes, const std::string& name) {
    const bool is_awq = method_ == "awq";
    const auto bits = static_cast<int>(number(is_awq ? "w_bit" : "bits", number("bits", 4)));
    const auto scales = need(name + ".scales");
    if (codes.shape.rank() != 2 || scales.shape.rank() != 2 || bits < 1 || bits > 32)
      user_error("{}: '{}' is not a matrix of {}-bit codes; download the model again", where_, codes.name,
                 bits);
    const int64_t rows = scales.shape[1];
    const int64_t columns = is_awq ? codes.shape[0] : codes.shape[0] * 32 / bits;
    QuantizedModule module = module_of(codes, name, rows, columns);
    module.bits = bits;
    module.scales = scales;
    module.zeros = need(name + ".qzeros");
    if (!is_awq) module.groups = take(name + ".g_idx");
    const int added_zero = text("checkpoint_format", "gptq") == "gptq_v2" ? 0 : 1;
    show(codes, name, {rows, columns}, scales.dtype,
         is_awq ? awq_decoder(module) : gptq_decoder(module, added_zero));
  }

  /// Returns the weight settings of the groups of a compressed-tensors config.
  std::vector<Json> weight_settings() const {
    std::vector<Json> found;
    const auto groups = config_.find("config_groups");
    if (groups == config_.end() || !groups->is_object()) return found;
    for (const Json& group : *groups) {
      if (group.is_object() && group.contains("weights") && group["weights"].is_object())
        found.push_back(group["weights"]);
    }
    return found;
  }

  /// Returns the rows and columns that share a scale according to the config; 0 and 0 if it has none.
  std::pair<int64_t, int64_t> block_size() const {
    constexpr int64_t kMaxBlock = 1 << 20;
    Json sizes = config_.value("weight_block_size", Json());
    for (const Json& weights : weight_settings())
      if (sizes.is_null()) sizes = weights.value("block_structure", Json());
    if (sizes.is_null()) return {0, 0};
    const auto is_size = [&](const Json& one) {
      return one.is_number_integer() && one.get<int64_t>() > 0 && one.get<int64_t>() <= kMaxBlock;
    };
    if (!sizes.is_array() || sizes.size() != 2 || !is_size(sizes[0]) || !is_size(sizes[1]))
      user_error("{}: the block size {} in the quantization_config is not supported", where_, sizes.dump());
    return {sizes[0].get<int64_t>(), sizes[1].get<int64_t>()};
  }

  void add_packed(const TensorView& codes, const std::string& name) {
    const TensorView lengths = need(name + ".weight_shape");
    if (lengths.shape.num_elements() != 2 || is_floating(lengths.dtype) || codes.shape.rank() != 2)
      user_error("{}: '{}' is not a packed matrix; download the model again", where_, codes.name);
    const auto length = [&](int64_t axis) {
      return static_cast<int64_t>(load_element(lengths.dtype, lengths.bytes.data(), axis));
    };
    QuantizedModule module = module_of(codes, name, length(0), length(1));
    module.bits = 4;
    for (const Json& weights : weight_settings()) {
      const Json bits = weights.value("num_bits", Json(4));
      if (bits.is_number_integer() && bits > 0 && bits <= 8 &&
          (module.columns * bits.get<int>() + 31) / 32 == codes.shape[1])
        module.bits = bits.get<int>();
    }
    module.scales = need(name + ".weight_scale");
    module.zeros = take(name + ".weight_zero_point");
    module.groups = take(name + ".weight_g_idx");
    if (module.columns < 1 || module.rows < 1) user_error("{}: '{}' has no elements", where_, codes.name);
    show(codes, name, {module.rows, module.columns}, module.scales->dtype, packed_decoder(module));
  }

  void add_bytes(const TensorView& codes, const std::string& name) {
    QuantizedModule module = module_of(codes, name, codes.shape[0], codes.shape[1]);
    if (method_ == "bitsandbytes") return add_bitsandbytes(codes, name, module);
    if (codes.dtype == DType::u8 || codes.dtype == DType::boolean)
      user_error("{}: '{}' has the dtype {}, which is not supported in a {} checkpoint", where_, codes.name,
                 dtype_name(codes.dtype), method_);
    module.scales = take(name + ".weight_scale");
    // Despite the "inv" in its name, codes are multiplied by this scale.
    if (!module.scales) module.scales = need(name + ".weight_scale_inv");
    module.zeros = take(name + ".weight_zero_point");
    module.groups = take(name + ".weight_g_idx");
    std::tie(module.block_rows, module.block_columns) = block_size();
    show(codes, name, codes.shape, module.scales->dtype, byte_decoder(module));
  }

  void add_bitsandbytes(const TensorView& codes, const std::string& name, QuantizedModule& module) {
    for (const char* kind : {"nf4", "fp4"}) {
      const std::string state = codes.name + ".quant_state.bitsandbytes__" + kind;
      if (files_.find(state) != nullptr) return add_four_bits(codes, name, need(state));
    }
    module.scales = need(name + ".SCB");
    if (codes.dtype != DType::i8 || module.scales->dtype != DType::f32 ||
        module.scales->shape != Shape{codes.shape[0]})
      user_error("{}: '{}' is not int8 with one f32 scale per row in '{}.SCB'", where_, codes.name, name);
    show(codes, name, codes.shape, DType::f16, std::make_shared<RowInt8Decoder>(module));
  }

  void add_four_bits(const TensorView& codes, const std::string& name, const TensorView& state) {
    const std::string_view json(reinterpret_cast<const char*>(state.bytes.data()),
                                std::min<size_t>(state.bytes.size(), kMaxStateBytes));
    const std::string where = fmt::format("{}: '{}'", where_, state.name);
    const Json read = parse_json_object<Json>(json, where);
    const auto fail = [&] {
      user_error("{}: this is not the quant_state of a matrix; download the model again", where);
    };
    const auto integer = [&](const Json& from, int64_t max) {
      if (!from.is_number_integer() || from.get<int64_t>() < 1 || from.get<int64_t>() > max) fail();
      return from.get<int64_t>();
    };
    if (!read.contains("shape") || !read["shape"].is_array() || read["shape"].size() != 2 ||
        !read.contains("blocksize"))
      fail();
    const Shape shape{integer(read["shape"][0], 1 << 24), integer(read["shape"][1], 1 << 24)};
    FourBitDecoder::Parts parts{.block = integer(read["blocksize"], 1 << 16),
                                .absmax = need(codes.name + ".absmax")};
    const std::vector<float> values = floats_of_part(codes.name + ".quant_map", 16);
    std::ranges::copy(values, parts.values.begin());
    const int64_t num_blocks = (shape.num_elements() + parts.block - 1) / parts.block;
    if (parts.absmax.dtype == DType::u8) {
      parts.nested_block = integer(read.value("nested_blocksize", Json(256)), 1 << 16);
      parts.offset = read.value("nested_offset", 0.0F);
      parts.nested_values = floats_of_part(codes.name + ".nested_quant_map", 256);
      parts.nested_absmax = floats_of_part(codes.name + ".nested_absmax",
                                           (num_blocks + parts.nested_block - 1) / parts.nested_block);
    } else if (parts.absmax.dtype != DType::f32) {
      fail();
    }
    if (parts.absmax.shape.num_elements() != num_blocks ||
        std::ssize(codes.bytes) != (shape.num_elements() + 1) / 2)
      user_error("{}: '{}' or its absmax does not have the size of {}; download the model again", where_,
                 codes.name, to_string(shape));
    const bool is_half = read.value("dtype", Json()) == "float16";
    show(codes, name, shape, is_half ? DType::f16 : DType::bf16,
         std::make_shared<FourBitDecoder>(std::move(parts)));
  }

  std::vector<float> floats_of_part(const std::string& name, int64_t count) {
    const TensorView part = need(name);
    if (part.dtype != DType::f32 || part.shape.num_elements() != count)
      user_error("{}: expected '{}' with {} elements in f32, found {} in {}", where_, name, count,
                 part.shape.num_elements(), dtype_name(part.dtype));
    return floats_of(part);
  }

  const io::WeightFiles& files_;
  const Json& config_;
  std::string method_, where_;
  std::vector<TensorView> shown_;
  std::set<std::string, std::less<>> used_;
};

/// Throws a UserError for variants of a method that are not supported.
void check_variant(const Json& config, const std::string& method, const std::string& where) {
  const auto refuse = [&](const char* key, const std::string& found, std::string_view known) {
    user_error(
        "{}: {} of quantization method {} is '{}', which is not supported ({}); use the original model",
        where, key, method, found, known);
  };
  const auto expect = [&](const char* key, std::initializer_list<std::string_view> known) {
    const auto found = config.find(key);
    if (found == config.end() || !found->is_string()) return;
    std::string value = found->get<std::string>();
    std::ranges::transform(value, value.begin(), [](unsigned char c) { return std::tolower(c); });
    if (std::ranges::find(known, value) == known.end())
      refuse(key, value, fmt::format("{}", fmt::join(known, ", ")));
  };
  if (method == "gptq") expect("checkpoint_format", {"gptq", "gptq_v2"});
  if (method == "awq") expect("version", {"gemm"});
  if (method != "compressed-tensors") return;
  expect("format", {"dense", "pack-quantized", "int-quantized", "float-quantized", "naive-quantized",
                    "mixed-precision"});
  const auto sparsity = config.find("sparsity_config");
  if (sparsity != config.end() && sparsity->is_object() && !sparsity->empty() &&
      sparsity->value("format", Json("dense")) != "dense")
    refuse("sparsity_config", sparsity->value("format", Json()).dump(), "dense");
  const auto transform = config.find("transform_config");
  if (transform != config.end() && transform->is_object() &&
      !transform->value("config_groups", Json()).empty())
    refuse("transform_config", "a rotation", "none");
}

/// Returns the quantization settings of a model folder, and sets `method` to their quant_method; null if the
/// model is not quantized.
Json read_settings(const fs::path& folder, std::string& method) {
  const auto read = [&](const fs::path& file) {
    return parse_json_object<Json>(read_file(file, models::kMaxConfigBytes), file.string());
  };
  for (const char* key : {"quantization_config", "compression_config"}) {
    if (!path_exists(folder / kModelConfig)) break;
    const Json config = read(folder / kModelConfig);
    const auto found = config.find(key);
    if (found == config.end() || !found->is_object()) continue;
    const Json name = found->value("quant_method", Json("compressed-tensors"));
    method = name.is_string() ? name.get<std::string>() : name.dump();
    return *found;
  }
  for (const auto& [name, kind] : {std::pair("quantize_config.json", "gptq"), {"quant_config.json", "awq"}}) {
    if (!path_exists(folder / name)) continue;
    method = kind;
    return read(folder / name);
  }
  return nullptr;
}

}  // namespace

void show_dequantized(io::WeightFiles& files, const fs::path& folder) {
  std::string method;
  const Json config = read_settings(folder, method);
  if (config.is_null()) return;
  check_variant(config, method, folder.string());
  files.show(Checkpoint(files, config, method).dequantized(), {});
}

}  // namespace hearth::hub
