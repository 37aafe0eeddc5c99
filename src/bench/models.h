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

/// A benchmark case: training, generation or a kernel on random data, comparable to other programs.
struct BenchCase {
  std::string_view name;
  /// Images: one of model_list() or yolox_sizes(), or conv_stack, the contracting half of a U-Net
  /// (Ronneberger et al. 2015, arXiv 1505.04597) with batch norm and a classifier; trained by SGD with
  /// momentum. Tokens: llama15m, llama110m or llama1b (the shapes of Llama 3.2 1B), trained by AdamW, or
  /// generating if `prompt` > 0. Latents: dit_s4 (arXiv 2212.09748) or flux_tiny, trained by AdamW. Kernels:
  /// the model that defines the shapes.
  std::string_view model;
  DType precision = DType::f32;
  int64_t batch = 1;         ///< images, or rows of tokens
  int64_t length = 0;        ///< side of an image or of latents in elements, or tokens per row
  int64_t channels = 0;      ///< channels of an image or of latents
  int64_t num_classes = 10;  ///< image classes
  int64_t width = 64;        ///< ModelOptions::width
  int64_t rank = 0;          ///< rank of a LoRA on every linear layer; 0: all weights are trained
  /// Quantization of the frozen weights under the LoRA.
  ops::Quantization quantized = ops::Quantization::none;
  int64_t prompt = 0;            ///< tokens before `length` new ones; 0: training
  int64_t arena_bytes = 0;       ///< recomputation holds the arena to it; 0: no limit
  std::string_view kernel = {};  ///< a GPU's kernel alone (bench/kernel.h)
  /// The same work at sizes of a test.
  bool tiny = false;
  /// If not null, replaces the decoder that `model` names. It must outlive the case.
  const models::DecoderConfig* decoder = nullptr;
  passes::OffloadOptions offload = {};  ///< offload options for training
};

/// Returns the case with BenchCase::tiny and reduced sizes.
BenchCase tiny_case(BenchCase bench);

/// Kind of labels of a case's images: a class, a class per pixel, or boxes.
enum class Labels : uint8_t { classes, masks, boxes };
Labels labels_of(const BenchCase& bench);
/// Boxes per image: the capacity of the input, and the number that is filled.
inline constexpr int64_t kMaxBoxes = 120;
inline constexpr int64_t kNumBoxes = 6;

/// Returns the decoder config of a token case.
models::DecoderConfig bench_decoder(const BenchCase& bench);
/// Returns the row format of a latents case; nothing for other cases.
std::optional<tasks::DenoiseFormat> bench_latents(const BenchCase& bench);
/// Returns the objective that a training case minimizes.
std::shared_ptr<const engine::Objective> bench_objective(const BenchCase& bench);

}  // namespace hearth::bench
