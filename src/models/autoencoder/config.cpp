#include <algorithm>
#include <string_view>

#include "base/foreign.h"
#include "base/json.h"
#include "models/autoencoder/autoencoder.h"
#include "models/decoder/config.h"
#include "models/decoder/config_reader.h"

namespace hearth::models {
namespace {

constexpr size_t kMaxLevels = 8;

std::vector<int64_t> read_widths(const ConfigReader& reader, const char* key, int64_t groups) {
  std::vector<int64_t> widths = reader.ids(key);
  const auto is_absurd = [&](int64_t width) { return width < 1 || width > (1 << 16) || width % groups != 0; };
  if (widths.empty() || widths.size() > kMaxLevels || std::ranges::any_of(widths, is_absurd))
    reader.fail(key,
                fmt::format("1 to {} widths that are multiples of norm_num_groups {}", kMaxLevels, groups));
  return widths;
}

/// Throws a UserError if `key` is present and its value is not a list of `count` blocks of the supported
/// `kind`.
void check_blocks(const ConfigReader& reader, const char* key, std::string_view kind, size_t count) {
  if (!reader.has(key)) return;
  const nlohmann::ordered_json& blocks = reader.at(key);
  const auto is_kind = [&](const nlohmann::ordered_json& block) { return block == kind; };
  if (!blocks.is_array() || blocks.size() != count || !std::ranges::all_of(blocks, is_kind))
    reader.fail(key, fmt::format("{} times {}", count, kind));
}

void read_latents(const ConfigReader& reader, bool flux2, AutoencoderConfig& config) {
  config.has_statistics = flux2;
  if (flux2) {
    config.statistics_eps = reader.number("batch_norm_eps", 1e-4);
    if (reader.has("patch_size") && reader.ids("patch_size") != std::vector<int64_t>{2, 2})
      reader.fail("patch_size", "[2, 2]");
    return;
  }
  config.shift = reader.number("shift_factor", 0);
  config.scale = reader.number("scaling_factor", 0.18215);
  for (const char* key : {"latents_mean", "latents_std"})
    if (reader.has(key)) reader.fail(key, "null");
  if (!(config.scale > 0)) reader.fail("scaling_factor", "a positive number");
}

}  // namespace

AutoencoderConfig parse_autoencoder_config(std::string_view json, const std::string& where) {
  const auto object = parse_json_object<nlohmann::ordered_json>(json, where);
  const ConfigReader reader(object, where);
  const std::string name = reader.text("_class_name", "");
  const bool flux2 = name == "AutoencoderKLFlux2";
  if (!flux2 && name != "AutoencoderKL") {
    user_error("{}: expected the _class_name AutoencoderKL or AutoencoderKLFlux2, got '{}'", where,
               name.substr(0, 60));
  }
  AutoencoderConfig config;
  config.groups = reader.integer("norm_num_groups", 32, 1, 1 << 12);
  config.widths = read_widths(reader, "block_out_channels", config.groups);
  config.decoder_widths = config.widths;
  if (reader.has("decoder_block_out_channels"))
    config.decoder_widths = read_widths(reader, "decoder_block_out_channels", config.groups);
  if (config.decoder_widths.size() != config.widths.size())
    reader.fail("decoder_block_out_channels", fmt::format("{} widths", config.widths.size()));
  config.layers = reader.integer("layers_per_block", flux2 ? 2 : 1, 1, 64);
  config.channels = reader.integer("latent_channels", flux2 ? 32 : 4, 1, 1 << 12);
  config.attention = reader.flag("mid_block_add_attention", true);
  config.quant_conv = reader.flag("use_quant_conv", true);
  config.post_quant_conv = reader.flag("use_post_quant_conv", true);
  for (const char* key : {"in_channels", "out_channels"})
    if (reader.integer(key, 3, 1, 1 << 12) != 3) reader.fail(key, "3");
  if (reader.text("act_fn", "silu") != "silu") reader.fail("act_fn", "silu");
  check_blocks(reader, "down_block_types", "DownEncoderBlock2D", config.widths.size());
  check_blocks(reader, "up_block_types", "UpDecoderBlock2D", config.widths.size());
  read_latents(reader, flux2, config);
  return config;
}

AutoencoderConfig read_autoencoder_config(const fs::path& file) {
  if (!fs::exists(file)) {
    const std::string advice = download_advice(file.parent_path());
    user_error("expected the config.json of an autoencoder, but there is no '{}'{}", file.string(),
               advice.empty() ? "; try model.autoencoder=FOLDER" : advice);
  }
  return parse_autoencoder_config(read_file(file, kMaxConfigBytes), file.string());
}

}  // namespace hearth::models
