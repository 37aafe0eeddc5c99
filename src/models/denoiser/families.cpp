#include "models/denoiser/denoiser.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/foreign.h"
#include "base/json.h"
#include "models/decoder/config.h"
#include "models/decoder/config_reader.h"
#include "models/denoiser/blocks.h"
#include "models/unsupported.h"

namespace hearth::models {
namespace {

using Json = nlohmann::ordered_json;
using Reader = ConfigReader;
using Family = DenoiserConfig::Family;

constexpr int64_t kMaxLayers = 1024;
constexpr int64_t kMaxWidth = 1 << 17;

/// Reads the number of a head's elements that RoPE rotates by each axis of the position.
std::vector<int64_t> read_axes(const Reader& reader, const DenoiserConfig& config,
                               std::vector<int64_t> default_value, size_t count) {
  std::vector<int64_t> axes =
      reader.has("axes_dims_rope") ? reader.ids("axes_dims_rope") : std::move(default_value);
  int64_t sum = 0;
  for (const int64_t axis : axes) {
    if (axis % 2 != 0 || axis > config.head_size)
      reader.fail("axes_dims_rope", "even numbers up to attention_head_dim");
    sum += axis;
  }
  if (axes.size() != count || sum != config.head_size) {
    user_error("{}: expected {} axes_dims_rope that add up to the {} elements of a head, got [{}]",
               reader.where(), count, config.head_size, fmt::join(axes, ", "));
  }
  return axes;
}

/// Converts `features`, the channels of a patch (in_channels of FLUX), to channels of a latent.
int64_t unpacked(const Reader& reader, const char* key, int64_t features, int64_t patch) {
  if (features % (patch * patch) != 0)
    user_error("{}: expected {} to be a multiple of {}, the number of latents of a token, got {}",
               reader.where(), key, patch * patch, features);
  return features / (patch * patch);
}

void read_heads(const Reader& reader, int64_t heads, int64_t head_size, DenoiserConfig& config) {
  config.heads = reader.integer("num_attention_heads", heads, 1, 1 << 12);
  config.head_size = reader.integer("attention_head_dim", head_size, 2, 1 << 12);
  if (config.width() > kMaxWidth)
    user_error("{}: expected num_attention_heads times attention_head_dim up to {}, got {}", reader.where(),
               kMaxWidth, config.width());
}

/// Throws a UserError for the FLUX.1 tools (Fill, Depth, Canny), which read a second image in additional
/// in_channels.
[[noreturn]] void refuse_tool(const Reader& reader, const DenoiserConfig& config) {
  const int64_t ratio = config.channels / std::max<int64_t>(config.out_channels, 1);
  user_error(
      "{}: the model predicts {} of the {} channels that it reads{}, which is not supported; use "
      "FLUX.1-dev with the recipe flux-lora, or FLUX.2 klein 4B with klein-lora",
      reader.where(), config.out_channels, config.channels,
      ratio == 6   ? ", so it is a FLUX.1-Fill"
      : ratio == 2 ? ", so it is a FLUX.1-Canny or FLUX.1-Depth"
                   : "");
}

/// Default sizes of FLUX.1 or FLUX.2 in diffusers, for keys that both have.
struct FluxSizes {
  int64_t features, heads, num_double, num_single, text_width;
};
void read_flux_sizes(const Reader& reader, const FluxSizes& sizes, DenoiserConfig& config) {
  if (reader.integer("patch_size", 1, 1, 1 << 10) != 1) reader.fail("patch_size", "1");
  config.patch = reader.integer("latent_patch", 2, 1, 64);
  const int64_t features = reader.integer("in_channels", sizes.features, 1, 1 << 20);
  config.channels = unpacked(reader, "in_channels", features, config.patch);
  config.out_channels =
      unpacked(reader, "out_channels", reader.integer("out_channels", features, 1, 1 << 20), config.patch);
  if (config.out_channels != config.channels) refuse_tool(reader, config);
  read_heads(reader, sizes.heads, 128, config);
  config.num_double = reader.integer("num_layers", sizes.num_double, 0, kMaxLayers);
  config.num_single = reader.integer("num_single_layers", sizes.num_single, 0, kMaxLayers);
  config.text_width = reader.integer("joint_attention_dim", sizes.text_width, 1, 1 << 20);
}

DenoiserConfig read_flux(const Reader& reader) {
  DenoiserConfig config{.family = Family::flux};
  read_flux_sizes(
      reader, {.features = 64, .heads = 24, .num_double = 19, .num_single = 38, .text_width = 4096}, config);
  config.mlp = 4 * config.width();
  config.pooled_width = reader.integer("pooled_projection_dim", 768, 1, 1 << 20);
  config.guidance = reader.flag("guidance_embeds", false);
  config.axes = read_axes(reader, config, {16, 56, 56}, 3);
  config.num_classes = reader.integer("num_classes", 0, 0, 1 << 20);
  if (config.num_classes > 0) config.class_tokens = reader.integer("class_tokens", 1, 1, 1 << 12);
  return config;
}

DenoiserConfig read_flux2(const Reader& reader) {
  DenoiserConfig config{.family = Family::flux2};
  read_flux_sizes(
      reader, {.features = 128, .heads = 48, .num_double = 8, .num_single = 48, .text_width = 15360}, config);
  const double ratio = reader.number("mlp_ratio", 3);
  if (!(ratio > 0 && ratio <= 64)) reader.fail("mlp_ratio", "a number up to 64");
  config.mlp = static_cast<int64_t>(static_cast<double>(config.width()) * ratio);
  config.time_channels = 2 * (reader.integer("timestep_guidance_channels", 256, 2, 1 << 16) / 2);
  config.guidance = reader.flag("guidance_embeds", true);
  config.axes = read_axes(reader, config, {32, 32, 32, 32}, 4);
  config.theta = reader.number("rope_theta", 2000);
  config.eps = reader.number("eps", 1e-6);
  return config;
}

DenoiserConfig read_dit(const Reader& reader) {
  DenoiserConfig config{.family = Family::dit};
  if (reader.text("norm_type", "ada_norm_zero") != "ada_norm_zero") reader.fail("norm_type", "ada_norm_zero");
  if (reader.text("activation_fn", "gelu-approximate") != "gelu-approximate")
    reader.fail("activation_fn", "gelu-approximate");
  if (reader.flag("norm_elementwise_affine", false)) reader.fail("norm_elementwise_affine", "false");
  read_heads(reader, 16, 72, config);
  if (config.width() % 4 != 0)
    user_error("{}: expected num_attention_heads times attention_head_dim to be a multiple of 4, got {}",
               reader.where(), config.width());
  config.patch = reader.integer("patch_size", 2, 1, 64);
  config.channels = reader.integer("in_channels", 4, 1, 1 << 16);
  config.out_channels = reader.integer("out_channels", config.channels, 1, 1 << 17);
  if (config.out_channels != config.channels && config.out_channels != 2 * config.channels)
    reader.fail("out_channels", "in_channels, or twice as many with a learned variance,");
  config.num_single = reader.integer("num_layers", 28, 1, kMaxLayers);
  config.mlp = 4 * config.width();
  config.side = reader.integer("sample_size", 32, 1, 1 << 14) / config.patch;
  if (config.side < 1) reader.fail("sample_size", "at least one patch");
  config.mlp_eps = reader.number("norm_eps", 1e-5);
  config.qkv_bias = reader.flag("attention_bias", true);
  config.num_classes = reader.integer("num_embeds_ada_norm", 1000, 1, 1 << 20);
  return config;
}

struct ClassOfDiffusers {
  const char* name;
  DenoiserConfig (*read)(const Reader& reader);
  ir::ValueId (*build)(nn::Builder& builder, const DenoiserConfig& config, const DenoiserInputs& in);
};
/// Supported network classes, in the order of DenoiserConfig::Family.
constexpr ClassOfDiffusers kClasses[] = {{"FluxTransformer2DModel", read_flux, build_flux},
                                         {"Flux2Transformer2DModel", read_flux2, build_flux2},
                                         {"DiTTransformer2DModel", read_dit, build_dit}};

}  // namespace

DenoiserConfig parse_denoiser_config(std::string_view json, const std::string& where) {
  const Json object = parse_json_object<Json>(json, where);
  const Reader reader(object, where);
  const std::string name = reader.text("_class_name", "");
  for (const ClassOfDiffusers& known : kClasses) {
    if (name == known.name) return known.read(reader);
  }
  refuse_unsupported_image_model(name, where);
  user_error(
      "{}: expected _class_name FluxTransformer2DModel, Flux2Transformer2DModel or DiTTransformer2DModel, "
      "got "
      "'{}'",
      where, name);
}

std::string read_denoiser_json(const fs::path& config_json) {
  if (!fs::exists(config_json)) refuse_unsupported_pipeline(config_json.parent_path());
  if (!fs::exists(config_json))
    user_error("expected the config.json of a denoiser, but there is no '{}'{}", config_json.string(),
               download_advice(config_json.parent_path()));
  return read_file(config_json, kMaxConfigBytes);
}

DenoiserConfig read_denoiser_config(const fs::path& config_json) {
  return parse_denoiser_config(read_denoiser_json(config_json), config_json.string());
}

ir::ValueId build_denoiser(nn::Builder& builder, const DenoiserConfig& config, const DenoiserInputs& in) {
  return kClasses[static_cast<size_t>(config.family)].build(builder, config, in);
}

}  // namespace hearth::models
