#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "base/error.h"
#include "hub/denoiser_adapter.h"
#include "hub/denoiser_config.h"
#include "hub/export_denoiser.h"
#include "hub/floats.h"
#include "hub/open_weights.h"
#include "temporary_folder.h"

namespace hearth::hub {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// A file of tensors that count upward from a number of their own.
class DenoiserFiles : public testing::Test {
 protected:
  fs::path at(const std::string& name) const { return folder_.path() / name; }

  void add(const std::string& name, const Shape& shape, float first) {
    std::vector<float> values(static_cast<size_t>(shape.num_elements()));
    std::iota(values.begin(), values.end(), first);
    add(name, shape, values);
  }
  void add(const std::string& name, const Shape& shape, const std::vector<float>& values) {
    const auto bytes = std::as_bytes(std::span(values));
    memory_.emplace_back(bytes.begin(), bytes.end());
    views_.push_back({.name = name, .dtype = DType::f32, .shape = shape, .bytes = memory_.back()});
  }
  void add_8_bit(const std::string& name, const Shape& shape, const std::vector<uint8_t>& bits) {
    const auto bytes = std::as_bytes(std::span(bits));
    memory_.emplace_back(bytes.begin(), bytes.end());
    views_.push_back({.name = name, .dtype = DType::f8_e4m3, .shape = shape, .bytes = memory_.back()});
  }
  fs::path write(const std::map<std::string, std::string>& metadata = {}) {
    io::write_safetensors(at("file.safetensors"), views_, metadata);
    return at("file.safetensors");
  }
  std::vector<float> values(const io::WeightFiles& files, const std::string& name) const {
    const io::TensorView* found = files.find(name);
    return found == nullptr ? std::vector<float>{} : floats_of(*found);
  }
  template <typename Action>
  std::string refusal(Action action) const {
    try {
      action();
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  }

  TemporaryFolder folder_;
  std::vector<std::vector<std::byte>> memory_;
  std::vector<io::TensorView> views_;
};

TEST_F(DenoiserFiles, RowsOfTheAuthorsBecomeSeveralTensors) {
  add("double_blocks.0.img_attn.qkv.weight", {6, 2}, 0);
  add("double_blocks.0.img_attn.qkv.bias", {6}, 100);
  add("double_blocks.0.txt_attn.norm.key_norm.scale", {2}, 200);
  add("single_blocks.0.linear1.weight", {14, 2}, 0);
  add("single_blocks.0.linear1.bias", {14}, 0);
  const io::WeightFiles files = open_weights(write());
  EXPECT_THAT(values(files, "transformer_blocks.0.attn.to_k.weight"), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(values(files, "transformer_blocks.0.attn.to_v.bias"), ElementsAre(104, 105));
  EXPECT_THAT(values(files, "transformer_blocks.0.attn.norm_added_k.weight"), ElementsAre(200, 201));
  EXPECT_THAT(values(files, "single_transformer_blocks.0.attn.to_v.bias"), ElementsAre(4, 5));
  EXPECT_EQ(files.find("single_transformer_blocks.0.proj_mlp.weight")->shape, (Shape{8, 2}));
  EXPECT_EQ(files.tensors().size(), 3U + 3 + 1 + 4 + 4);
}

TEST_F(DenoiserFiles, SaysWhatAModelWithoutAConfigIs) {
  constexpr int64_t kWidth = 256;
  for (const char* block : {"double_blocks.0", "double_blocks.1", "single_blocks.0"}) {
    add(std::string(block) + (block[0] == 'd' ? ".img_attn.norm.query_norm.scale" : ".norm.query_norm.scale"),
        {128}, 0);
  }
  add("img_in.weight", {kWidth, 64}, 0);
  add("txt_in.weight", {kWidth, 40}, 0);
  add("vector_in.in_layer.weight", {kWidth, 24}, 0);
  add("guidance_in.in_layer.weight", {kWidth, 8}, 0);
  add("final_layer.linear.weight", {64, kWidth}, 0);
  recipe::Model model;
  model.path = write().string();
  const models::DenoiserConfig config = describe_denoiser(model).config;
  EXPECT_EQ(config.family, models::DenoiserConfig::Family::flux);
  EXPECT_EQ(config.heads, 2);
  EXPECT_EQ(config.num_double, 2);
  EXPECT_EQ(config.num_single, 1);
  EXPECT_EQ(config.channels, 16);
  EXPECT_EQ(config.text_width, 40);
  EXPECT_EQ(config.pooled_width, 24);
  EXPECT_TRUE(config.guidance);
}

TEST_F(DenoiserFiles, TellsFlux2ByItsModulation) {
  constexpr int64_t kWidth = 128;
  add("double_blocks.0.img_attn.norm.query_norm.scale", {128}, 0);
  add("double_stream_modulation_img.lin.weight", {6 * kWidth, kWidth}, 0);
  add("img_in.weight", {kWidth, 128}, 0);
  add("txt_in.weight", {kWidth, 40}, 0);
  add("time_in.in_layer.weight", {kWidth, 32}, 0);
  add("final_layer.linear.weight", {128, kWidth}, 0);
  recipe::Model model;
  model.path = write().string();
  const models::DenoiserConfig config = describe_denoiser(model).config;
  EXPECT_EQ(config.family, models::DenoiserConfig::Family::flux2);
  EXPECT_EQ(config.channels, 32);
  EXPECT_EQ(config.time_channels, 32);
  EXPECT_FALSE(config.guidance);
}

TEST_F(DenoiserFiles, RefusesHeadsWhoseAxesNobodyKnows) {
  add("double_blocks.0.img_attn.norm.query_norm.scale", {64}, 0);
  add("img_in.weight", {128, 64}, 0);
  recipe::Model model;
  model.path = write().string();
  EXPECT_THAT(
      refusal([&] { describe_denoiser(model); }),
      HasSubstr(
          "'transformer_blocks.0.attn.norm_q.weight' is missing or has another shape; set model.config"));
}

TEST_F(DenoiserFiles, TheLastModulationOfTheAuthorsIsTurnedRound) {
  add("double_blocks.0.img_mlp.2.bias", {2}, 0);
  add("final_layer.adaLN_modulation.1.bias", {4}, 0);
  const io::WeightFiles files = open_weights(write());
  const io::TensorView& turned = *files.find("norm_out.linear.bias");
  EXPECT_THAT(floats_of(turned), ElementsAre(2, 3, 0, 1));
  // It lies in memory of its own, which is not to be given back.
  files.release(turned);
  EXPECT_THAT(floats_of(turned), ElementsAre(2, 3, 0, 1));
}

TEST_F(DenoiserFiles, EightBitsHaveAScale) {
  // 1.0 and 1.5.
  add_8_bit("x_embedder.weight", {1, 2}, {0x38, 0x3c});
  add("x_embedder.weight_scale", {}, std::vector<float>{0.5});
  add_8_bit("context_embedder.weight", {1, 2}, {0x38, 0x3c});
  const io::WeightFiles files = open_weights(write());
  EXPECT_THAT(values(files, "x_embedder.weight"), ElementsAre(0.5, 0.75));
  EXPECT_THAT(values(files, "context_embedder.weight"), ElementsAre(1, 1.5));
  EXPECT_EQ(files.tensors().size(), 2U);
}

TEST_F(DenoiserFiles, ScalesOfOtherKindsAndOtherTensorsAreRefused) {
  const auto open = [&] { open_weights(write()); };
  add("double_blocks.0.img_attn.qkv.weight", {5, 2}, 0);
  EXPECT_THAT(refusal(open), HasSubstr("expected 'double_blocks.0.img_attn.qkv.weight' as the rows of 3"));
  views_.clear();
  add("double_blocks.0.img_attn.gate.weight", {6, 2}, 0);
  EXPECT_THAT(refusal(open),
              HasSubstr("'double_blocks.0.img_attn.gate.weight' is not a tensor of a FLUX transformer"));
  views_.clear();
  add_8_bit("x_embedder.weight", {2, 1}, {0x38, 0x3c});
  add("x_embedder.weight_scale", {2, 1}, 1);
  EXPECT_THAT(refusal(open), HasSubstr("expected one scale per tensor"));
}

TEST_F(DenoiserFiles, KohyasBlocksOfSeveralModulesAreTakenApart) {
  const std::string module = "lora_unet_double_blocks_0_img_attn_qkv";
  add(module + ".lora_down.weight", {3, 2}, 1);
  add(module + ".lora_up.weight", {6, 3}, {1, 0, 0, 2, 0, 0, 0, 3, 0, 0, 4, 0, 0, 0, 5, 0, 0, 6});
  add(module + ".alpha", {}, std::vector<float>{6});
  const DenoiserAdapter adapter(write());
  ASSERT_EQ(adapter.modules().size(), 3U);
  const auto& k = adapter.modules().at("transformer_blocks.0.attn.to_k");
  EXPECT_EQ(k.rank, 1);
  EXPECT_EQ(k.scale, 2);
  EXPECT_THAT(floats_of(adapter.matrix("transformer_blocks.0.attn.to_k", 'A')), ElementsAre(3, 4));
  EXPECT_THAT(floats_of(adapter.matrix("transformer_blocks.0.attn.to_k", 'B')), ElementsAre(3, 4));
}

TEST_F(DenoiserFiles, KohyasSharedMatrixServesEveryModule) {
  const std::string module = "lora_unet_double_blocks_0_img_attn_qkv";
  add(module + ".lora_down.weight", {3, 2}, 1);
  add(module + ".lora_up.weight", {3, 3}, 1);
  const DenoiserAdapter adapter(write());
  EXPECT_EQ(adapter.modules().at("transformer_blocks.0.attn.to_v").rank, 3);
  EXPECT_EQ(adapter.modules().at("transformer_blocks.0.attn.to_v").scale, 1);
  EXPECT_EQ(adapter.matrix("transformer_blocks.0.attn.to_q", 'A').shape, (Shape{3, 2}));
  EXPECT_THAT(floats_of(adapter.matrix("transformer_blocks.0.attn.to_v", 'B')), ElementsAre(7, 8, 9));
}

TEST_F(DenoiserFiles, ALoraGoesToKohyasKeysAndBack) {
  add("transformer.transformer_blocks.0.attn.to_q.lora_A.weight", {1, 2}, 1);
  add("transformer.transformer_blocks.0.attn.to_q.lora_B.weight", {2, 1}, 3);
  add("transformer.transformer_blocks.0.attn.to_v.lora_A.weight", {1, 2}, 5);
  add("transformer.transformer_blocks.0.attn.to_v.lora_B.weight", {2, 1}, 7);
  add("transformer.norm_out.linear.lora_A.weight", {1, 2}, 9);
  add("transformer.norm_out.linear.lora_B.weight", {4, 1}, 11);
  const char* said = R"({"transformer.r": 1, "transformer.lora_alpha": 0.5,
                         "transformer.target_modules": ["to_q", "to_v", "norm_out.linear"]})";
  const DenoiserAdapter adapter(write({{"lora_adapter_metadata", said}}));
  EXPECT_EQ(adapter.modules().at("norm_out.linear").scale, 0.5);
  write_kohya_lora(adapter, at("kohya.safetensors"));
  const io::SafetensorsFile kohya(at("kohya.safetensors"));
  EXPECT_THAT(floats_of(*kohya.find("lora_unet_final_layer_adaLN_modulation_1.lora_up.weight")),
              ElementsAre(13, 14, 11, 12));
  EXPECT_THAT(floats_of(*kohya.find("lora_unet_double_blocks_0_img_attn_qkv.alpha")), ElementsAre(1.5));
  EXPECT_EQ(kohya.metadata().at("ss_network_alpha"), "0.5");
  const DenoiserAdapter back(at("kohya.safetensors"));
  EXPECT_EQ(back.modules().at("transformer_blocks.0.attn.to_v").scale, 0.5);
  for (const std::string& name : adapter.files().names())
    EXPECT_EQ(values(back.files(), name), values(adapter.files(), name)) << name;
}

TEST_F(DenoiserFiles, ALorasScaleIsInItsMatrices) {
  add("transformer.transformer_blocks.0.attn.to_q.lora_A.weight", {2, 2}, 1);
  add("transformer.transformer_blocks.0.attn.to_q.lora_B.weight", {2, 2}, 3);
  const char* said =
      R"({"transformer.r": 2, "transformer.lora_alpha": 8, "transformer.target_modules": ["to_q"]})";
  const DenoiserAdapter adapter(write({{"lora_adapter_metadata", said}}));
  write_diffusers_lora(adapter, at("diffusers.safetensors"));
  const io::SafetensorsFile file(at("diffusers.safetensors"));
  EXPECT_THAT(floats_of(*file.find("transformer.transformer_blocks.0.attn.to_q.lora_B.weight")),
              ElementsAre(12, 16, 20, 24));
  EXPECT_THAT(file.metadata().at("lora_adapter_metadata"), HasSubstr(R"("transformer.lora_alpha":2)"));
  // Whoever trains on has the scale again.
  const DenoiserAdapter back(at("diffusers.safetensors"));
  EXPECT_EQ(back.modules().at("transformer_blocks.0.attn.to_q").scale, 4);
  EXPECT_THAT(floats_of(back.matrix("transformer_blocks.0.attn.to_q", 'B')), ElementsAre(3, 4, 5, 6));
}

TEST_F(DenoiserFiles, MatricesThatDoNotBelongTogetherAreRefused) {
  const auto open = [&] { DenoiserAdapter{write()}; };
  add("transformer.x_embedder.lora_A.weight", {2, 3}, 0);
  EXPECT_THAT(refusal(open), HasSubstr("'x_embedder' has lora_A but no lora_B"));
  add("transformer.x_embedder.lora_B.weight", {4, 1}, 0);
  EXPECT_THAT(refusal(open), HasSubstr("expected lora_A [rank, in] and lora_B [out, rank] of modules"));
  views_.clear();
  add("x_embedder.weight", {4, 1}, 0);
  EXPECT_THAT(refusal(open), HasSubstr("expected names of a denoiser's LoRA"));
}

TEST_F(DenoiserFiles, ALoraWithoutItsModelAsksForIt) {
  add("transformer.transformer_blocks.0.attn.to_q.lora_A.weight", {1, 2}, 1);
  add("transformer.transformer_blocks.0.attn.to_q.lora_B.weight", {2, 1}, 3);
  const fs::path file = write();
  ASSERT_TRUE(is_denoiser(file));
  EXPECT_THAT(refusal([&] { find_denoiser(file); }), HasSubstr("try --base DIR"));
  EXPECT_EQ(find_denoiser(file, folder_.path()).adapter, file);
}

}  // namespace
}  // namespace hearth::hub
