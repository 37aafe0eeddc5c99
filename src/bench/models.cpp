#include "bench/models.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "models/yolox/yolox.h"
#include "tasks/classify/classifier.h"
#include "tasks/detect/yolox_objective.h"
#include "tasks/diffuse/denoiser_objective.h"
#include "tasks/language/language_model.h"
#include "tasks/segment/segmenter.h"

namespace hearth::bench {
namespace {

struct Llama {
  std::string_view name;
  int64_t vocab_size, hidden, intermediate, layers, heads, kv_heads, positions;
};

constexpr Llama kLlamas[] = {{"llama15m", 32000, 288, 768, 6, 6, 6, 1024},
                             {"llama110m", 32000, 768, 2048, 12, 12, 12, 1024},
                             {"llama1b", 128256, 2048, 8192, 16, 32, 8, 2048},
                             {"llama8b", 128256, 4096, 14336, 32, 32, 8, 8192}};
constexpr Llama kTinyLlama{"tiny", 320, 64, 128, 2, 4, 2, 64};

const Llama& find_llama(std::string_view name) {
  const auto* const found = std::ranges::find(kLlamas, name, &Llama::name);
  HEARTH_CHECK(found != std::end(kLlamas));
  return *found;
}

struct Denoiser {
  std::string_view name, diffusers_class, sizes;
  int64_t heads, layers, text_tokens;
  int64_t head_size = 64;
};
constexpr Denoiser kDenoisers[] = {
    {"dit_s4", "DiTTransformer2DModel",
     R"("in_channels": 4, "patch_size": 4, "num_embeds_ada_norm": 1000, "attention_bias": true)", 6, 12, 0},
    {"flux_tiny", "FluxTransformer2DModel",
     R"("in_channels": 64, "num_single_layers": 4, "joint_attention_dim": 256, "pooled_projection_dim": 256,
"axes_dims_rope": [16, 24, 24])",
     8, 2, 64},
    {"flux1_dev", "FluxTransformer2DModel", R"("guidance_embeds": true, "num_single_layers": 38)", 24, 19,
     512, 128},
    {"flux1_535m", "FluxTransformer2DModel", R"("guidance_embeds": true, "num_single_layers": 1)", 24, 1, 512,
     128}};

constexpr int64_t kTinyWidth = 8;
constexpr int kLevels = 4;

ir::ValueId build_conv_stack(nn::Builder& builder, ir::ValueId images, const BenchCase& bench) {
  ir::ValueId x = images;
  for (int level = 0; level < kLevels; ++level) {
    if (level > 0) x = builder.max_pool(x, 2, 2);
    const int64_t width = (bench.tiny ? kTinyWidth : bench.width) << level;
    for (int conv = 0; conv < 2; ++conv) {
      const nn::Builder::Scope scope(builder, fmt::format("level{}.{}", level + 1, conv));
      x = builder.conv("conv", x, {.out_channels = width, .kaiming_fan_out = true});
      x = builder.relu(builder.batch_norm("bn", x));
    }
  }
  return builder.linear("fc", builder.global_avg_pool(x), bench.num_classes);
}

}  // namespace

BenchCase tiny_case(BenchCase bench) {
  const bool has_images = bench.channels > 0;
  bench.tiny = true;
  bench.batch = std::min<int64_t>(bench.batch, 2);
  const bool has_boxes = has_images && labels_of(bench) == Labels::boxes;
  bench.length = std::min<int64_t>(bench.length, has_images && !has_boxes ? 16 : 32);
  bench.rank = std::min<int64_t>(bench.rank, 4);
  bench.prompt = std::min<int64_t>(bench.prompt, 4);
  return bench;
}

Labels labels_of(const BenchCase& bench) {
  const auto detects = [&](const models::YoloxSize& size) { return size.name == bench.model; };
  if (std::ranges::any_of(models::yolox_sizes(), detects)) return Labels::boxes;
  const auto segments = [&](const models::ModelDef& model) {
    return model.name == bench.model && model.purpose == models::Purpose::segment;
  };
  return std::ranges::any_of(models::model_list(), segments) ? Labels::masks : Labels::classes;
}

models::DecoderConfig bench_decoder(const BenchCase& bench) {
  if (bench.decoder != nullptr) return *bench.decoder;
  const Llama& llama = bench.tiny ? kTinyLlama : find_llama(bench.model);
  const std::string json = fmt::format(
      R"({{"model_type": "llama", "vocab_size": {}, "hidden_size": {}, "intermediate_size": {},
"num_hidden_layers": {}, "num_attention_heads": {}, "num_key_value_heads": {}, "max_position_embeddings": {},
"rms_norm_eps": 1e-5, "tie_word_embeddings": true}})",
      llama.vocab_size, llama.hidden, llama.intermediate, llama.layers, llama.heads, llama.kv_heads,
      llama.positions);
  return models::parse_decoder_config(json, std::string(bench.name));
}

std::optional<tasks::DenoiseFormat> bench_latents(const BenchCase& bench) {
  const auto* const found = std::ranges::find(kDenoisers, bench.model, &Denoiser::name);
  if (found == std::end(kDenoisers)) return std::nullopt;
  const std::string json = fmt::format(
      R"({{"_class_name": "{}", "num_attention_heads": {}, "attention_head_dim": {}, "num_layers": {},
"sample_size": {}, {}}})",
      found->diffusers_class, bench.tiny ? 1 : found->heads, found->head_size, bench.tiny ? 1 : found->layers,
      bench.length, found->sizes);
  return tasks::DenoiseFormat{.model = models::parse_denoiser_config(json, std::string(bench.name)),
                              .text_tokens = found->text_tokens};
}

std::shared_ptr<const engine::Objective> bench_objective(const BenchCase& bench) {
  if (const auto latents = bench_latents(bench))
    return tasks::denoiser_objective({.format = *latents, .latents = Extent(bench.length)});
  if (bench.channels == 0)
    return tasks::language_model({.config = bench_decoder(bench), .context = bench.length});
  const Labels labels = labels_of(bench);
  if (labels == Labels::boxes) {
    return tasks::yolox_objective({.model = std::string(bench.model),
                                   .num_classes = bench.num_classes,
                                   .height = bench.length,
                                   .width = bench.length,
                                   .max_boxes = kMaxBoxes});
  }
  models::ModelOptions model{.num_classes = bench.num_classes,
                             .channels = bench.channels,
                             .image_size = bench.length,
                             .width = bench.tiny ? kTinyWidth : bench.width};
  if (bench.model != "conv_stack") model.name = std::string(bench.model);
  if (labels == Labels::masks) return tasks::segmenter({.model = model});
  tasks::ClassifierOptions options{.model = model};
  if (bench.model == "conv_stack") {
    options.build_model = [bench](nn::Builder& builder, ir::ValueId images) {
      return build_conv_stack(builder, images, bench);
    };
  }
  return tasks::classifier(options);
}

}  // namespace hearth::bench
