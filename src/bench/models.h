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

/// A benchmark case: training, generation or a single kernel on random data. Other programs run the same
/// cases for comparison.
struct BenchCase {
  std::string_view name;
  /// Model by kind of case. Images: one of model_list() or yolox_sizes(), or conv_stack, the contracting half
  /// of a U-Net (Ronneberger et al. 2015, arXiv 1505.04597) with batch norm and a classifier; trained by SGD
  /// with momentum. Tokens: llama15m, llama110m or llama1b (the shapes of Llama 3.2 1B), trained by AdamW, or
  /// generating text if `prompt` > 0. Latents: dit_s4 (arXiv 2212.09748) or flux_tiny, trained by AdamW.
  /// Kernels: the decoder that defines the shapes.
  std::string_view model;
  DType precision = DType::f32;
  MatmulPrecision matmul_precision = MatmulPrecision::same;  ///< of transformer blocks
  int64_t batch = 1;                                         ///< images per micro-batch, or rows of tokens
  /// Side of an image in pixels or of latents in elements; tokens per row; for generation, number of new
  /// tokens.
  int64_t length = 0;
  int64_t channels = 0;      ///< channels of an image or of latents
  int64_t num_classes = 10;  ///< number of image classes
  int64_t width = 64;        ///< width of the model (ModelOptions::width)
  int64_t rank = 0;          ///< rank of a LoRA on every linear layer; 0: all weights are trained
  /// Quantization of the frozen weights under the LoRA.
  ops::Quantization quantized = ops::Quantization::none;
  int64_t prompt = 0;       ///< for generation: number of tokens of the prompt; 0: training
  int64_t arena_bytes = 0;  ///< recomputation keeps the arena (activations) within this size; 0: no limit
  std::string_view kernel = {};  ///< if not empty, only this GPU kernel is timed (bench/kernel.h)
  /// True for reduced sizes, for tests.
  bool tiny = false;
  /// If not null, replaces the decoder that `model` names. It must outlive the case.
  const models::DecoderConfig* decoder = nullptr;
  passes::OffloadOptions offload = {};  ///< values to offload to host memory in training
};

/// Returns the case with BenchCase::tiny and reduced sizes.
BenchCase tiny_case(BenchCase bench);

/// Kind of labels of an image case: one class per image (classes), one class per pixel (masks), or boxes.
enum class Labels : uint8_t { classes, masks, boxes };
Labels labels_of(const BenchCase& bench);
/// Number of boxes per image: kMaxBoxes fit into the input, and kNumBoxes of them are filled with random
/// boxes.
inline constexpr int64_t kMaxBoxes = 120;
inline constexpr int64_t kNumBoxes = 6;

/// Returns the decoder config of a token case.
models::DecoderConfig bench_decoder(const BenchCase& bench);
/// Returns the row format of a latents case; nothing for other cases.
std::optional<tasks::DenoiseFormat> bench_latents(const BenchCase& bench);
/// Returns the objective that a training case minimizes.
std::shared_ptr<const engine::Objective> bench_objective(const BenchCase& bench);

}  // namespace hearth::bench
