#include "models/denoiser/denoiser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "models/decoder/config.h"
#include "ops/reference.h"
#include "temporary_folder.h"

namespace hearth::models {
namespace {

using Json = nlohmann::ordered_json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

Json tiny_flux() {
  return {{"_class_name", "FluxTransformer2DModel"},
          {"in_channels", 4},
          {"num_layers", 1},
          {"num_single_layers", 1},
          {"attention_head_dim", 16},
          {"num_attention_heads", 2},
          {"joint_attention_dim", 32},
          {"pooled_projection_dim", 24},
          {"axes_dims_rope", {4, 4, 8}}};
}

Json tiny_dit() {
  return {{"_class_name", "DiTTransformer2DModel"},
          {"num_attention_heads", 2},
          {"attention_head_dim", 12},
          {"in_channels", 3},
          {"out_channels", 6},
          {"num_layers", 1},
          {"sample_size", 8},
          {"num_embeds_ada_norm", 7}};
}

DenoiserConfig denoiser_from(const Json& json) { return parse_denoiser_config(json.dump(), "config.json"); }

std::string refused_denoiser(const Json& json) {
  try {
    denoiser_from(json);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

/// A denoiser of two images of 4 x 4 tokens.
struct Grown {
  ir::Graph graph;
  nn::Builder builder;
  DenoiserConfig config;
  ir::ValueId made = ir::kNone;

  explicit Grown(const Json& json, nn::Adapter adapter = {}, Extent patches = 4)
      : builder(graph, nn::Builder::Mode::train, 1, std::move(adapter)), config(denoiser_from(json)) {
    const int64_t rows = 2;
    const auto input = [&](const char* name, const Shape& shape, DType dtype = DType::f32) {
      return builder.input(name, {.dtype = dtype, .shape = shape});
    };
    DenoiserInputs in{.tokens = input("tokens", {rows * patches.num_pixels(), config.features()}),
                      .time = input("time", {rows}),
                      .num_rows = rows,
                      .patches = patches};
    if (config.num_classes > 0) {
      in.labels = input("labels", {rows}, DType::i32);
    } else {
      in.text_tokens = 3;
      in.text = input("text", {rows * in.text_tokens, config.text_width});
      in.pooled = input("pooled", {rows, config.pooled_width});
    }
    made = build_denoiser(builder, config, in);
  }
  const nn::Tensor& tensor(const std::string& name) const {
    return *std::ranges::find(builder.tensors(), name, &nn::Tensor::name);
  }
};

TEST(DenoiserConfig, ReadsFluxDevAsDiffusersDefaultsSay) {
  const DenoiserConfig config =
      denoiser_from({{"_class_name", "FluxTransformer2DModel"}, {"guidance_embeds", true}});
  EXPECT_EQ(config.patch, 2);
  EXPECT_EQ(config.channels, 16);
  EXPECT_EQ(config.features(), 64);
  EXPECT_EQ(config.out_features(), 64);
  EXPECT_EQ(config.width(), 3072);
  EXPECT_EQ(config.num_double, 19);
  EXPECT_EQ(config.num_single, 38);
  EXPECT_TRUE(config.guidance);
  EXPECT_THAT(config.axes, ElementsAre(16, 56, 56));
  EXPECT_EQ(config.theta, 10000);
}

TEST(DenoiserConfig, ReadsFlux2) {
  const DenoiserConfig config = denoiser_from({{"_class_name", "Flux2Transformer2DModel"},
                                               {"num_layers", 5},
                                               {"num_single_layers", 20},
                                               {"num_attention_heads", 24},
                                               {"joint_attention_dim", 7680},
                                               {"guidance_embeds", false}});
  EXPECT_EQ(config.channels, 32);
  EXPECT_EQ(config.mlp, 9216);
  EXPECT_THAT(config.axes, ElementsAre(32, 32, 32, 32));
  EXPECT_EQ(config.theta, 2000);
}

TEST(DenoiserConfig, ReadsADitOfClasses) {
  const DenoiserConfig config = denoiser_from(tiny_dit());
  EXPECT_EQ(config.num_classes, 7);
  EXPECT_EQ(config.side, 4);
  EXPECT_EQ(config.features(), 12);
  EXPECT_EQ(config.out_features(), 24);
}

TEST(DenoiserConfig, KeysOfOursGiveFluxClassesAndAnotherPatch) {
  Json json = tiny_flux();
  json["in_channels"] = 16;
  json["latent_patch"] = 4;
  json["num_classes"] = 10;
  json["class_tokens"] = 2;
  const DenoiserConfig config = denoiser_from(json);
  EXPECT_EQ(config.channels, 1);
  EXPECT_EQ(config.num_classes, 10);
  EXPECT_EQ(config.class_tokens, 2);
}

TEST(DenoiserConfig, RefusesWhatItCannotFollow) {
  Json json = tiny_flux();
  json["axes_dims_rope"] = {4, 4, 6};
  EXPECT_THAT(refused_denoiser(json), HasSubstr("3 axes_dims_rope that add up to the 16 elements of a head"));
  json["axes_dims_rope"] = {3, 5, 8};
  EXPECT_THAT(refused_denoiser(json),
              HasSubstr("expected even numbers up to attention_head_dim for \"axes_dims_rope\""));
  json = tiny_flux();
  json["in_channels"] = 6;
  EXPECT_THAT(refused_denoiser(json), HasSubstr("in_channels to be a multiple of 4"));
  json = tiny_flux();
  json["patch_size"] = 2;
  EXPECT_THAT(refused_denoiser(json), HasSubstr("expected 1 for \"patch_size\""));
  json = tiny_dit();
  json["norm_type"] = "layer_norm";
  EXPECT_THAT(refused_denoiser(json), HasSubstr("expected ada_norm_zero"));
  json["_class_name"] = "UNet2DConditionModel";
  EXPECT_THAT(refused_denoiser(json),
              HasSubstr("the UNet of Stable Diffusion 1, 2 and XL, which is not supported"));
  json["_class_name"] = "ZImageTransformer2DModel";
  EXPECT_THAT(refused_denoiser(json), HasSubstr("Z-Image, which is not supported"));
  json["_class_name"] = "OtherTransformer2DModel";
  EXPECT_THAT(refused_denoiser(json), HasSubstr("expected _class_name FluxTransformer2DModel"));
}

TEST(DenoiserConfig, FoldersOfUnsupportedPipelinesAreNamed) {
  for (const auto& [name, model] : {std::pair("StableDiffusionXLPipeline", "Stable Diffusion XL"),
                                    std::pair("StableDiffusionPipeline", "Stable Diffusion 1 and 2"),
                                    std::pair("QwenImageEditPipeline", "Qwen-Image")}) {
    const TemporaryFolder folder;
    write_file_atomically(folder.path() / "model_index.json", Json{{"_class_name", name}}.dump());
    for (const auto& read : {+[](const fs::path& file) { read_denoiser_config(file); },
                             +[](const fs::path& file) { read_decoder_config(file); }}) {
      try {
        read(folder.path() / "config.json");
        FAIL() << name;
      } catch (const UserError& error) {
        EXPECT_THAT(error.what(), AllOf(HasSubstr("model_index.json: "), HasSubstr(name), HasSubstr(model),
                                        HasSubstr("is not supported")));
      }
    }
  }
}

TEST(Denoiser, OfADitHasOneSizeOfImages) {
  try {
    const Grown grown(tiny_dit(), {}, Extent(4, 3));
    FAIL() << "nothing was refused";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), HasSubstr("expected latents of 8 x 8"));
    EXPECT_THAT(error.what(), HasSubstr("got 8 x 6"));
  }
}

TEST(Denoiser, WeightsOfPatchesLieInFilesAsDiffusersHasThem) {
  const Grown grown(tiny_dit());
  EXPECT_EQ(grown.tensor("pos_embed.proj.weight").layout.file_shape, (Shape{24, 3, 2, 2}));
  const nn::Tensor& last = grown.tensor("proj_out_2.bias");
  // Channel 1 of the pixel at (1, 0): 6 channels and 2 x 2 pixels.
  std::vector<float> file(24, 0), memory(24, 0);
  file[(1 * 2 + 0) * 6 + 1] = 1;
  nn::from_file_order(last.layout, file.data(), memory.data());
  EXPECT_EQ(memory[1 * 4 + 1 * 2 + 0], 1);
}

TEST(Denoiser, AnAdapterOfPatchesLiesInFilesAsTheirWeightDoes) {
  const Grown grown(tiny_dit(), {.rank = 2, .targets = {"proj_out_2", "to_q"}});
  EXPECT_EQ(grown.tensor("proj_out_2.lora_A.weight").layout.file_shape, (Shape{2, 24}));
  EXPECT_EQ(grown.tensor("proj_out_2.lora_B.weight").layout.file_shape, (Shape{24, 2}));
  std::vector<float> file(48, 0), memory(48, 0);
  file[((1 * 2 + 0) * 6 + 1) * 2 + 1] = 1;
  nn::from_file_order(grown.tensor("proj_out_2.lora_B.weight").layout, file.data(), memory.data());
  EXPECT_EQ(memory[(1 * 4 + 1 * 2 + 0) * 2 + 1], 1);
}

TEST(Denoiser, ANewOnePredictsZero) {
  for (const Json& json : {tiny_flux(), tiny_dit()}) {
    const Grown grown(json);
    std::map<ir::ValueId, std::vector<double>> values;
    ThreadPool threads(1);
    for (ir::ValueId id = 0; id < std::ssize(grown.graph.values); ++id) {
      if (grown.graph.value(id).producer != ir::kNone) continue;
      const auto size = static_cast<size_t>(grown.graph.type(id).shape.num_elements());
      const auto tensor = std::ranges::find(grown.builder.tensors(), id, &nn::Tensor::value);
      std::vector<float> memory(size, 0.5F);
      if (grown.graph.type(id).dtype == DType::i32) memory.assign(size, 3);
      if (tensor != grown.builder.tensors().end()) nn::initialize(*tensor, 1, memory, threads);
      values[id].assign(memory.begin(), memory.end());
    }
    ops::evaluate_reference(grown.graph, values);
    EXPECT_THAT(values.at(grown.made), testing::Each(0));
    const auto producer = [&](ir::ValueId id) { return grown.graph.node(grown.graph.value(id).producer); };
    const ir::Node last = producer(producer(grown.made).inputs[0]);
    EXPECT_THAT(values.at(last.inputs[0]), testing::Contains(testing::Ne(0)));
  }
}

}  // namespace
}  // namespace hearth::models
