#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/dtype.h"

/// Enums of the choices in recipes, shared by all parts of the program.
namespace hearth {

/// Parallelism strategy: the division of an optimizer update among several workers.
enum class Parallel : uint8_t {
  data,  ///< data parallelism: each worker computes the gradients of some micro-batches
  /// Data parallelism, with the optimizer state divided among the workers: ZeRO stage 1 (SumOptions::owners).
  zero1,
  /// zero1, with weights divided among the workers too: FSDP (passes/parallel/shard_weights.h).
  sharded,
  /// Pipeline parallelism: each worker runs some layers of the model on all micro-batches
  /// (passes/parallel/stages.h).
  pipeline,
  /// Local SGD: several local updates between exchanges. Not set by name, but by the recipe key
  /// exchange.local_steps.
  local_sgd
};
/// Compression of the gradients that workers exchange (passes/parallel/compress.h).
enum class Compress : uint8_t { none, bf16, powersgd, fp8 };
/// Rounding of the operands of matmuls with weights (ops/matmul/round_e4m3.h): none, or to E4M3 values, which
/// share a power of two as scale.
enum class MatmulPrecision : uint8_t {
  same,        ///< no rounding: the recipe key `precision`
  fp8,         ///< a scale per row of activations and gradients, and per row or column of a weight
  fp8_tensor,  ///< a scale per tensor
  fp8_blocks   ///< a scale per 128 elements of a row, and per 128 x 128 elements of a weight (DeepSeek-V3)
};
/// Precision of the activations that are saved for the backward pass (passes/memory/encode_saved.h).
enum class SavedActivations : uint8_t {
  full,      ///< that of training
  fp8,       ///< E4M3 with a scale for each row, where a rounding error is acceptable
  automatic  ///< full or fp8, chosen by the planner
};
/// When to test a GPU's kernels before training. once: once for each combination of GPU, driver and build of
/// Hearth.
enum class SelfTestMode : uint8_t { always, once, never };
/// Whether to record a step as a GPU graph and replay it. automatic: only if the first replay gives the same
/// bits as launching the kernels one by one.
enum class RecordMode : uint8_t { automatic, always, never };
/// Handling of the EXIF orientation: rotate the pixels upright, or keep them as stored.
enum class Exif : uint8_t { apply, ignore };
/// Handling of text samples that have more tokens than a training row.
enum class Overlong : uint8_t {
  automatic,  ///< splits plain text, truncates records
  truncate,   ///< keeps the first tokens
  drop,
  split,  ///< continues in another row, without attention to the tokens of the previous row
  refuse  ///< throws a UserError that names the sample
};
/// Format of the records in a data file.
enum class RecordFormat : uint8_t {
  detect,             ///< detected from the fields of each record
  text,               ///< {text}
  prompt_completion,  ///< {prompt, completion}; also other names for the two, such as question and answer
  alpaca,             ///< {instruction, input, output}; system and history are optional
  sharegpt,           ///< {conversations: [{from, value}]}; system and tools are optional
  openai,             ///< {messages: [{role, content}]}; tools is optional
  preference          ///< {prompt, chosen, rejected}: strings, messages or full conversations
};
/// Divergence of a student's distribution P from its teacher's Q (knowledge distillation).
enum class Divergence : uint8_t {
  forward,  ///< KL(Q || P)
  reverse,  ///< KL(P || Q)
  jsd       ///< generalized Jensen-Shannon divergence (Agarwal et al. 2023, arXiv 2306.13649):
            ///< beta KL(Q || M) + (1 - beta) KL(P || M), M = (1 - beta) P + beta Q
};

/// Names in recipes of the values of `Enum`, in the order of the values from kFirst<Enum> on; empty for enums
/// that recipes do not use. A value without a name cannot be set in a recipe.
template <typename Enum>
inline constexpr std::array<std::string_view, 0> kNames = {};
/// The value of `Enum` that has the first name in kNames<Enum>.
template <typename Enum>
inline constexpr Enum kFirst = Enum{};
template <>
inline constexpr auto kNames<Parallel> = std::to_array<std::string_view>({"data", "zero1", "sharded",
                                                                          "pipeline"});
template <>
inline constexpr auto kNames<Compress> = std::to_array<std::string_view>({"none", "bf16", "powersgd", "fp8"});
template <>
inline constexpr auto kNames<MatmulPrecision> = std::to_array<std::string_view>({"same", "fp8", "fp8-tensor",
                                                                                 "fp8-blocks"});
template <>
inline constexpr auto kNames<SavedActivations> = std::to_array<std::string_view>({"full", "fp8", "auto"});
template <>
inline constexpr auto kNames<SelfTestMode> = std::to_array<std::string_view>({"always", "once", "never"});
template <>
inline constexpr auto kNames<RecordMode> = std::to_array<std::string_view>({"auto", "always", "never"});
template <>
inline constexpr auto kNames<Exif> = std::to_array<std::string_view>({"apply", "ignore"});
template <>
inline constexpr auto kNames<Overlong> = std::to_array<std::string_view>({"auto", "truncate", "drop", "split",
                                                                          "refuse"});
template <>
inline constexpr auto kNames<RecordFormat> = std::to_array<std::string_view>(
    {"detect", "text", "prompt_completion", "alpaca", "sharegpt", "openai", "preference"});
template <>
inline constexpr auto kNames<Divergence> = std::to_array<std::string_view>({"forward", "reverse", "jsd"});
/// Values of the recipe key `precision`: the dtype in which training computes.
template <>
inline constexpr auto kNames<DType> = std::to_array<std::string_view>({"fp32", "bf16", "fp16"});
template <>
inline constexpr DType kFirst<DType> = DType::f32;
static_assert(static_cast<int>(DType::bf16) == static_cast<int>(DType::f32) + 1 &&
              static_cast<int>(DType::f16) == static_cast<int>(DType::f32) + 2);

/// Returns the enum value for index `name` of kNames<Enum>.
template <typename Enum>
constexpr Enum value_of(size_t name) {
  return static_cast<Enum>(name + static_cast<size_t>(kFirst<Enum>));
}
/// Returns the name of a value, which must have one.
template <typename Enum>
constexpr std::string_view name_of(Enum value) {
  return kNames<Enum>[static_cast<size_t>(value) - static_cast<size_t>(kFirst<Enum>)];
}
/// Returns the value with a name; nullopt if there is none.
template <typename Enum>
constexpr std::optional<Enum> value_named(std::string_view name) {
  const auto found = std::ranges::find(kNames<Enum>, name);
  if (found == kNames<Enum>.end()) return std::nullopt;
  return value_of<Enum>(static_cast<size_t>(found - kNames<Enum>.begin()));
}

}  // namespace hearth
