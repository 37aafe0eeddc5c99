#include "models/autoencoder/autoencoder.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace hearth::models {
namespace {

using testing::HasSubstr;
using ConfigJson = nlohmann::ordered_json;

ConfigJson flux1() {
  return {{"_class_name", "AutoencoderKL"}, {"block_out_channels", {32, 64, 64}},
          {"latent_channels", 16},          {"layers_per_block", 2},
          {"norm_num_groups", 32},          {"use_quant_conv", false},
          {"use_post_quant_conv", false},   {"shift_factor", 0.1159},
          {"scaling_factor", 0.3611}};
}

std::string refusal(const ConfigJson& json) {
  try {
    parse_autoencoder_config(json.dump(), "config.json");
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

TEST(AutoencoderConfig, SaysHowLatentsAreNoised) {
  const AutoencoderConfig config = parse_autoencoder_config(flux1().dump(), "config.json");
  EXPECT_EQ(config.factor(), 4);
  EXPECT_EQ(config.channels, 16);
  EXPECT_EQ(config.shift, 0.1159);
  EXPECT_EQ(config.scale, 0.3611);
  EXPECT_FALSE(config.quant_conv);
  EXPECT_TRUE(config.attention);
  EXPECT_FALSE(config.has_statistics);
  ConfigJson json = flux1();
  json["_class_name"] = "AutoencoderKLFlux2";
  json["decoder_block_out_channels"] = {64, 64, 96};
  const AutoencoderConfig flux2 = parse_autoencoder_config(json.dump(), "config.json");
  EXPECT_TRUE(flux2.has_statistics);
  EXPECT_EQ(flux2.statistics_eps, 1e-4);
  EXPECT_EQ(flux2.decoder_widths.back(), 96);
  EXPECT_EQ(flux2.scale, 1);
}

TEST(AutoencoderConfig, RefusesWhatItCannotFollow) {
  const auto with = [](const char* key, const ConfigJson& value) {
    ConfigJson json = flux1();
    json[key] = value;
    return refusal(json);
  };
  EXPECT_THAT(with("_class_name", "AutoencoderDC"), HasSubstr("_class_name AutoencoderKL"));
  EXPECT_THAT(with("block_out_channels", {32, 48}), HasSubstr("multiples of norm_num_groups 32"));
  EXPECT_THAT(with("block_out_channels", ConfigJson::array()), HasSubstr("1 to 8 widths"));
  EXPECT_THAT(with("act_fn", "relu"), HasSubstr("expected silu for \"act_fn\""));
  EXPECT_THAT(with("in_channels", 4), HasSubstr("expected 3 for \"in_channels\""));
  EXPECT_THAT(with("latents_mean", {0.5}), HasSubstr("expected null for \"latents_mean\""));
  EXPECT_THAT(with("down_block_types", {"AttnDownBlock2D"}), HasSubstr("3 times DownEncoderBlock2D"));
  EXPECT_THAT(with("scaling_factor", 0), HasSubstr("a positive number"));
  EXPECT_THAT(with("layers_per_block", 0), HasSubstr("a whole number from 1"));
}

struct Grown {
  ir::Graph graph;
  nn::Builder builder{graph, nn::Builder::Mode::eval, 1};
  ir::ValueId input(const Shape& shape) { return builder.input("x", {.dtype = DType::f32, .shape = shape}); }
  const nn::Tensor* find(std::string_view name) const {
    const auto found = std::ranges::find(builder.tensors(), name, &nn::Tensor::name);
    return found == builder.tensors().end() ? nullptr : &*found;
  }
};

TEST(Autoencoder, MakesSmallerAndLargerImages) {
  const AutoencoderConfig config = parse_autoencoder_config(flux1().dump(), "config.json");
  Grown encoder, decoder;
  const ir::ValueId moments = build_image_encoder(encoder.builder, config, encoder.input({2, 8, 12, 3}));
  EXPECT_EQ(encoder.graph.type(moments).shape, (Shape{2, 2, 3, 32}));
  const ir::ValueId images = build_image_decoder(decoder.builder, config, decoder.input({2, 2, 3, 16}));
  EXPECT_EQ(decoder.graph.type(images).shape, (Shape{2, 8, 12, 3}));
  EXPECT_NE(encoder.find("encoder.down_blocks.1.downsamplers.0.conv.weight"), nullptr);
  EXPECT_EQ(encoder.find("encoder.down_blocks.2.downsamplers.0.conv.weight"), nullptr);
  EXPECT_EQ(encoder.find("quant_conv.weight"), nullptr);
  EXPECT_NE(decoder.find("decoder.up_blocks.2.resnets.2.conv2.bias"), nullptr);
  // Pixels as rows: no column order of images that were made flat.
  EXPECT_TRUE(nn::is_in_file_order(encoder.find("encoder.mid_block.attentions.0.to_q.weight")->layout));
}

}  // namespace
}  // namespace hearth::models
