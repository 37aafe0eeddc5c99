#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "engine/objective.h"
#include "models/decoder/config.h"
#include "ops/matmul/quantized.h"
#include "passes/memory/offload.h"
#include "tasks/diffuse/denoise_rows.h"

namespace hearth::bench {

/// Work that is compared with other programs, on random data.
struct BenchCase {
  std::string_view name;
  /// Images: one of model_list() or yolox_sizes(), or conv_stack, the contracting half of a U-Net
  /// (Ronneberger et al. 2015, arXiv 1505.04597) with batch norm and a classifier after it; trained by SGD
  /// with momentum. Tokens: llama15m, llama110m or llama1b (the shapes of Llama 3.2 1B), trained by AdamW
  /// (or, where there is a prompt, asked for an answer). Latents: dit_s4 (arXiv 2212.09748) or flux_tiny,
  /// trained by AdamW. Where there is a kernel, the model whose shapes it has.
  std::string_view model;
  DType precision = DType::f32;
  int64_t batch = 1;         ///< images, or rows of tokens
  int64_t length = 0;        ///< side of an image or of latents, or tokens of a row
  int64_t channels = 0;      ///< of an image or of latents
  int64_t num_classes = 10;  ///< of images
  int64_t width = 64;        ///< ModelOptions::width
  int64_t rank = 0;          ///< of a LoRA on every linear layer; 0: all weights train
  /// How the weights under the LoRA are stored.
  ops::Quantization quantized = ops::Quantization::none;
  int64_t prompt = 0;            ///< tokens before `length` new ones; 0: training
  int64_t arena_bytes = 0;       ///< recomputation holds the arena to it; 0: no limit
  std::string_view kernel = {};  ///< a GPU's kernel alone (bench/kernel.h)
  /// The same work at sizes of a test.
  bool tiny = false;
  /// In place of the decoder that `model` names; it outlives the case.
  const models::DecoderConfig* decoder = nullptr;
  passes::OffloadOptions offload = {};  ///< of training
};

/// The same case with BenchCase::tiny.
BenchCase tiny_case(BenchCase bench);

/// What the pictures of a case have: a class, a class for each pixel, or boxes.
enum class Labels : uint8_t { classes, masks, boxes };
Labels labels_of(const BenchCase& bench);
/// Boxes of a picture that a case has room for, and those that it has.
inline constexpr int64_t kMaxBoxes = 120;
inline constexpr int64_t kNumBoxes = 6;

/// The decoder of a case of tokens.
models::DecoderConfig bench_decoder(const BenchCase& bench);
/// What rows of a case of latents hold; nothing for another case.
std::optional<tasks::DenoiseFormat> bench_latents(const BenchCase& bench);
/// What a case of training minimizes.
std::shared_ptr<const engine::Objective> bench_objective(const BenchCase& bench);

}  // namespace hearth::bench
