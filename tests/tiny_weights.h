#pragma once

#include <fmt/format.h>

#include <cmath>
#include <list>
#include <string>
#include <vector>

#include "io/safetensors.h"

namespace hearth {

/// Tensors of numbers that look random.
class TinyWeights {
 public:
  void add(const std::string& name, const Shape& shape, float scale) {
    std::vector<float>& values = memory_.emplace_back();
    for (int64_t i = 0; i < shape.num_elements(); ++i)
      values.push_back(scale * std::sin(static_cast<float>(++drawn_ * 7919 % 100003)));
    tensors_.push_back(
        {.name = name, .dtype = DType::f32, .shape = shape, .bytes = std::as_bytes(std::span(values))});
  }
  void write(const fs::path& file) const { io::write_safetensors(file, tensors_); }

 private:
  std::list<std::vector<float>> memory_;
  std::vector<io::TensorView> tensors_;
  int64_t drawn_ = 0;
};

/// An autoencoder as diffusers has it, of random weights: latents of `channels`, one for 4 x 4 pixels.
inline void write_tiny_autoencoder(const fs::path& folder, int64_t channels, float scale = 1) {
  constexpr int64_t kWidth = 8, kLevels = 3;
  TinyWeights weights;
  const auto norm = [&](const std::string& name) {
    weights.add(name + ".weight", {kWidth}, 1.5F);
    weights.add(name + ".bias", {kWidth}, 0.1F);
  };
  const auto conv = [&](const std::string& name, int64_t outputs, int64_t inputs) {
    weights.add(name + ".weight", {outputs, inputs, 3, 3}, scale / std::sqrt(3 * static_cast<float>(inputs)));
    weights.add(name + ".bias", {outputs}, 0.1F);
  };
  const auto resnet = [&](const std::string& name) {
    for (const char* number : {"1", "2"}) {
      norm(name + ".norm" + number);
      conv(name + ".conv" + number, kWidth, kWidth);
    }
  };
  const auto half = [&](const std::string& name, const std::string& blocks, int64_t layers,
                        const std::string& resize, int64_t inputs, int64_t outputs) {
    conv(name + ".conv_in", kWidth, inputs);
    for (int64_t level = 0; level < kLevels; ++level) {
      const std::string block = fmt::format("{}.{}.{}", name, blocks, level);
      for (int64_t layer = 0; layer < layers; ++layer) resnet(fmt::format("{}.resnets.{}", block, layer));
      if (level + 1 < kLevels) conv(fmt::format("{}.{}.0.conv", block, resize), kWidth, kWidth);
    }
    for (const char* number : {"0", "1"}) resnet(name + ".mid_block.resnets." + number);
    norm(name + ".conv_norm_out");
    conv(name + ".conv_out", outputs, kWidth);
  };
  half("encoder", "down_blocks", 1, "downsamplers", 3, 2 * channels);
  half("decoder", "up_blocks", 2, "upsamplers", channels, 3);
  fs::create_directories(folder);
  weights.write(folder / "diffusion_pytorch_model.safetensors");
  write_file_atomically(
      folder / "config.json",
      R"({"_class_name": "AutoencoderKL", "block_out_channels": [8, 8, 8], "norm_num_groups": 2,
"mid_block_add_attention": false, "use_quant_conv": false, "use_post_quant_conv": false,
"shift_factor": 0.1, "scaling_factor": 0.5, "latent_channels": )" +
          std::to_string(channels) + "}");
}

}  // namespace hearth
