#include "encoders/image_coder.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/function_ref.h"
#include "hub/weights.h"
#include "io/safetensors.h"
#include "temporary_folder.h"

namespace hearth::encoders {
namespace {

using testing::HasSubstr;

constexpr const char* kConfig = R"({"_class_name": "AutoencoderKL", "block_out_channels": [8, 8, 8],
"latent_channels": 2, "norm_num_groups": 2, "mid_block_add_attention": false, "shift_factor": 0.25,
"scaling_factor": 2.0, "use_quant_conv": false, "use_post_quant_conv": false})";

/// Both halves, so that all weights are in one file.
class Both : public engine::Objective {
 public:
  explicit Both(models::AutoencoderConfig config) : config_(std::move(config)) {}
  Graph build(nn::Builder& builder, engine::BatchShape) const override {
    const auto input = [&](const char* name, int64_t channels) {
      return builder.input(name, {.dtype = DType::f32, .shape = {1, 4, 4, channels}});
    };
    const ir::ValueId x = input("x", 3), z = input("z", config_.channels);
    return {.inputs = {x, z},
            .outputs = {models::build_image_encoder(builder, config_, x),
                        models::build_image_decoder(builder, config_, z)}};
  }

 private:
  models::AutoencoderConfig config_;
};

class Images : public testing::Test {
 protected:
  Images() { put_weights(kConfig); }
  void put_weights(const char* config) const {
    write_file_atomically(folder_.path() / "config.json", config);
    const int64_t sizes[] = {1};
    engine::Engine engine(
        {.objective = std::make_shared<Both>(models::parse_autoencoder_config(config, "config.json"))}, {},
        sizes);
    engine.initialize();
    hub::save_weights(engine, weights(), false);
  }
  fs::path weights() const { return folder_.path() / "diffusion_pytorch_model.safetensors"; }
  ImageCoder coder(int64_t budget = 0) const {
    return ImageCoder(folder_.path(), std::nullopt, {.num_threads = 2}, budget);
  }

  /// Sets every value of a tensor of the file.
  void fill(std::string_view name, float value) const {
    const io::SafetensorsFile file(weights());
    std::vector<float> values(static_cast<size_t>(file.find(name)->shape.num_elements()), value);
    std::vector<io::TensorView> tensors = file.tensors();
    std::ranges::find(tensors, name, &io::TensorView::name)->bytes = std::as_bytes(std::span(values));
    io::write_safetensors(folder_.path() / "other", tensors);
    fs::rename(folder_.path() / "other", weights());
  }
  /// Bytes that decoding so many latents at once takes.
  int64_t bytes_for(Extent latents) const {
    const auto config = models::parse_autoencoder_config(kConfig, "config.json");
    const auto grow = [&](nn::Builder& builder) {
      const ir::ValueId z = builder.input(
          "z", {.dtype = DType::f32, .shape = {1, latents.height, latents.width, config.channels}});
      return ModelPart::Graph{.inputs = {z}, .outputs = {models::build_image_decoder(builder, config, z)}};
    };
    return ModelPart(grow, {.num_threads = 2}).memory_bytes();
  }

  TemporaryFolder folder_;
};

std::string refusal(FunctionRef<void()> body) {
  try {
    body();
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

TEST_F(Images, BecomeLatents) {
  ImageCoder images = coder();
  EXPECT_EQ(images.factor(), 4);
  EXPECT_EQ(images.channels(), 2);
  const data::Image image{
      .height = 8, .width = 12, .channels = 3, .pixels = std::vector<uint8_t>(8 * 12 * 3, 128)};
  EXPECT_EQ(images.encode(image).size(), size_t{2 * 2 * 3});
  // Of a gray image each channel is the same.
  data::Image gray{.height = 8, .width = 12, .channels = 1, .pixels = std::vector<uint8_t>(8 * 12, 128)};
  EXPECT_EQ(images.encode(gray), images.encode(image));
  gray.width = 8;
  gray.height = 12;
  EXPECT_EQ(images.encode(gray).size(), size_t{2 * 3 * 2}) << "another size";
  gray.height = 10;
  EXPECT_THAT(refusal([&] { images.encode(gray); }),
              HasSubstr("the image has 8 x 10 pixels, but its sides must be multiples of 4"));
}

TEST_F(Images, MeansAreShiftedAndScaled) {
  fill("encoder.conv_out.weight", 0);
  fill("encoder.conv_out.bias", 1.5F);
  const data::Image image{
      .height = 4, .width = 4, .channels = 3, .pixels = std::vector<uint8_t>(4 * 4 * 3, 7)};
  EXPECT_THAT(coder().encode(image), testing::Each(2.5F));
}

TEST_F(Images, AreCodedOnAGpuAsOnTheProcessor) {
  ImageCoder here = coder();
  ImageCoder there(folder_.path(), std::nullopt, {.gpu = exec::GpuRequest{.device = "emulated"}}, 0);
  data::Image image{.height = 8, .width = 8, .channels = 3};
  for (int i = 0; i < 8 * 8 * 3; ++i) image.pixels.push_back(static_cast<uint8_t>(i * 37 % 256));
  const std::vector<float> latents = here.encode(image);
  EXPECT_THAT(there.encode(image), testing::Pointwise(testing::FloatNear(1e-4F), latents));
  const std::vector<uint8_t> pixels = here.decode(latents, 2).pixels, coded = there.decode(latents, 2).pixels;
  ASSERT_EQ(coded.size(), pixels.size());
  for (size_t i = 0; i < pixels.size(); ++i) EXPECT_NEAR(coded[i], pixels[i], 1) << i;
}

TEST_F(Images, AreEncodedOnTheProcessorWhereAGpuHasNoRoom) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const data::Image image{
      .height = 8, .width = 8, .channels = 3, .pixels = std::vector<uint8_t>(8 * 8 * 3, 99)};
  EXPECT_EXIT(
      {
        setenv("HEARTH_EMULATED", "64KiB", 1);
        ImageCoder there(folder_.path(), std::nullopt, {.gpu = exec::GpuRequest{.device = "emulated"}}, 0);
        std::_Exit(there.encode(image) == coder().encode(image) ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(Images, LatentsOfAnotherScaleHaveAnotherHash) {
  const uint64_t hash = coder().hash();
  EXPECT_EQ(coder().hash(), hash);
  std::string config = kConfig;
  config.replace(config.find("2.0"), 3, "1.5");
  write_file_atomically(folder_.path() / "config.json", config);
  EXPECT_NE(coder().hash(), hash);
}

TEST_F(Images, AttentionMayHaveItsOldNames) {
  std::string config = kConfig;
  config.replace(config.find("false"), 5, "true");
  put_weights(config.c_str());
  const std::vector<float> latents(2 * 2 * 2, 0.5F);
  const std::vector<uint8_t> picture = coder().decode(latents, 2).pixels;
  const io::SafetensorsFile file(weights());
  std::vector<io::TensorView> tensors = file.tensors();
  int64_t num_renamed = 0;
  for (const auto& [name, old_name] : {std::pair<std::string, std::string>(".to_q.", ".query."),
                                       {".to_k.", ".key."},
                                       {".to_v.", ".value."},
                                       {".to_out.0.", ".proj_attn."}}) {
    for (io::TensorView& tensor : tensors) {
      const size_t at = tensor.name.find(name);
      if (at == tensor.name.npos) continue;
      tensor.name.replace(at, name.size(), old_name);
      ++num_renamed;
    }
  }
  EXPECT_EQ(num_renamed, 16);
  io::write_safetensors(folder_.path() / "other", tensors);
  fs::rename(folder_.path() / "other", weights());
  EXPECT_EQ(coder().decode(latents, 2).pixels, picture);
}

TEST_F(Images, WithoutWeightsThereAreNone) {
  fs::remove(weights());
  EXPECT_THAT(refusal([&] { coder(); }), HasSubstr("weights of the autoencoder are missing"));
  write_file_atomically(folder_.path() / "diffusion_pytorch_model.bin", "\x80\2K\1.");
  EXPECT_THAT(refusal([&] { coder(); }), HasSubstr("before PyTorch 1.6"));
}

TEST_F(Images, LevelsAreRoundedWithinTheirRange) {
  fill("decoder.conv_out.weight", 0);
  for (const auto& [value, level] : {std::pair{0.0F, 128}, {1.0F, 255}, {3.0F, 255}, {-2.0F, 0}}) {
    fill("decoder.conv_out.bias", value);
    const data::Image image = coder().decode(std::vector<float>(2 * 1 * 2), {1, 2});
    EXPECT_EQ(image.size(), (Extent{4, 8}));
    EXPECT_THAT(image.pixels, testing::Each(level)) << value;
  }
}

TEST_F(Images, AreDecodedInTilesWhereTheBudgetAsksForIt) {
  const Extent size{24, 40};
  const int64_t budget = bytes_for({16, 16});
  ASSERT_LT(budget, bytes_for(size));
  ImageCoder tiled = coder(budget);
  EXPECT_EQ(tiled.tile_of(size), (Extent{16, 16}));
  EXPECT_EQ(tiled.tile_of({16, 16}), (Extent{16, 16}));
  EXPECT_EQ(tiled.tile_of({8, 12}), (Extent{8, 12})) << "fits as it is";
  EXPECT_EQ(coder().tile_of(size), size);
  EXPECT_THAT(refusal([&] {
                coder(bytes_for({4, 4})).tile_of(size);
              }),
              HasSubstr("too small to decode 8 x 8 latents"));
}

TEST_F(Images, TilesPassOverWithoutSeams) {
  const Extent size{24, 40};
  fill("decoder.conv_out.weight", 0);
  fill("decoder.conv_out.bias", 0.5F);
  const data::Image image = coder(bytes_for({16, 16})).decode(std::vector<float>(2 * 24 * 40), size);
  EXPECT_EQ(image.size(), (Extent{96, 160}));
  EXPECT_THAT(image.pixels, testing::Each(191));
}

/// The pixel in which two images differ most.
Extent largest_difference(const data::Image& a, const data::Image& b) {
  Extent place;
  int most = -1;
  for (size_t i = 0; i < a.pixels.size(); ++i) {
    const int difference = std::abs(a.pixels[i] - b.pixels[i]);
    if (difference <= most) continue;
    most = difference;
    const auto pixel = static_cast<int64_t>(i) / 3;
    place = {pixel / a.width, pixel % a.width};
  }
  return place;
}

TEST_F(Images, TilesLieWhereTheyBelong) {
  const Extent size{24, 40};
  ImageCoder tiled = coder(bytes_for({16, 16}));
  const std::vector<float> empty(2 * 24 * 40);
  for (const Extent at : {Extent{2, 3}, Extent{20, 5}, Extent{3, 36}, Extent{21, 20}}) {
    std::vector<float> latents = empty;
    latents[static_cast<size_t>(at.height * 40 + at.width)] = 40;
    const Extent found = largest_difference(tiled.decode(latents, size), tiled.decode(empty, size));
    // A latent shows around its place, too; the next tile begins 48 pixels on.
    EXPECT_NEAR(found.height, 4 * at.height + 2, 16) << at.height << " " << at.width;
    EXPECT_NEAR(found.width, 4 * at.width + 2, 16) << at.height << " " << at.width;
  }
}

TEST_F(Images, OneTileMakesTheSameBits) {
  std::vector<float> latents;
  for (int i = 0; i < 2 * 12 * 16; ++i) latents.push_back(static_cast<float>(std::sin(i)));
  const Extent size{12, 16};
  EXPECT_EQ(coder(bytes_for(size)).decode(latents, size).pixels, coder().decode(latents, size).pixels);
}

TEST_F(Images, TheHashIsOfTheWeights) {
  const uint64_t before = coder().hash();
  EXPECT_EQ(coder().hash(), before);
  fill("encoder.conv_out.bias", 1.5F);
  EXPECT_NE(coder().hash(), before);
}

TEST_F(Images, StatisticsAreNeededWhereTheConfigNamesThem) {
  write_file_atomically(
      folder_.path() / "config.json",
      R"({"_class_name": "AutoencoderKLFlux2", "block_out_channels": [8, 8, 8], "latent_channels": 2,
"norm_num_groups": 2})");
  EXPECT_THAT(refusal([&] { coder(); }), HasSubstr("no tensor 'bn.running_mean' of shape [8]"));
}

}  // namespace
}  // namespace hearth::encoders
